package transformer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"quern/formats/gguf"
	"quern/model"
	infer "quern/runtime"
	"quern/runtime/transformer"
	"quern/tensor"
)

// small is a GGUF file of a decoder with one layer and few values.
func small(tb testing.TB, arch string, experts int, more map[string]any) []byte {
	tb.Helper()
	meta := gguf.NewMetadata(gguf.KV{Key: "general.architecture", Value: gguf.Scalar(arch)})
	set := func(key string, v uint32) { meta.Set(arch+"."+key, gguf.Scalar(v)) }
	set("block_count", 1)
	set("context_length", 16)
	set("embedding_length", 8)
	set("feed_forward_length", 6)
	set("attention.head_count", 2)
	set("attention.head_count_kv", 1)
	meta.Set(arch+".attention.layer_norm_rms_epsilon", gguf.Scalar(float32(1e-5)))
	if experts > 0 {
		set("expert_count", uint32(experts))
		set("expert_used_count", 2)
	}
	for k, v := range more {
		switch v := v.(type) {
		case uint32:
			meta.Set(arch+"."+k, gguf.Scalar(v))
		case float32:
			meta.Set(arch+"."+k, gguf.Scalar(v))
		case string:
			meta.Set(arch+"."+k, gguf.Scalar(v))
		}
	}
	var specs []gguf.TensorSpec
	var list []*tensor.Tensor
	add := func(name string, shape ...int64) {
		n := 1
		for _, d := range shape {
			n *= int(d)
		}
		var b []byte
		for i := range n {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32((i*7+len(name))%13-6)/8))
		}
		list = append(list, made(name, tensor.F32, shape, b))
		specs = append(specs, gguf.TensorSpec{Name: name, Type: tensor.F32, Shape: shape})
	}
	add("token_embd.weight", 10, 8)
	add("output_norm.weight", 8)
	for _, n := range []string{"attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"} {
		add("blk.0."+n+".weight", 8)
	}
	add("blk.0.attn_q_norm.weight", 4)
	add("blk.0.attn_k_norm.weight", 4)
	add("blk.0.attn_q.weight", 8, 8)
	add("blk.0.attn_k.weight", 4, 8)
	add("blk.0.attn_v.weight", 4, 8)
	add("blk.0.attn_output.weight", 8, 8)
	if experts > 0 {
		e := int64(experts)
		add("blk.0.ffn_gate_inp.weight", e, 8)
		add("blk.0.ffn_gate_exps.weight", e, 6, 8)
		add("blk.0.ffn_up_exps.weight", e, 6, 8)
		add("blk.0.ffn_down_exps.weight", e, 8, 6)
	} else {
		add("blk.0.ffn_gate.weight", 6, 8)
		add("blk.0.ffn_up.weight", 6, 8)
		add("blk.0.ffn_down.weight", 8, 6)
	}
	l, err := gguf.NewLayout(meta, specs, gguf.LayoutOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	var out bytes.Buffer
	if err := l.WriteTo(context.Background(), &out, list); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func fromBytes(ctx context.Context, b []byte) (*transformer.Model, error) {
	g, _, err := model.LoadGGUF(ctx, "x.gguf", func(context.Context, string) (tensor.Blob, error) { return tensor.BytesBlob("x.gguf", b), nil }, gguf.Options{})
	if err != nil {
		return nil, err
	}
	return transformer.FromGGUF(ctx, g)
}

var smallModels = []struct {
	arch    string
	experts int
	more    map[string]any
}{
	{"llama", 0, nil},
	{"llama", 3, nil},
	{"llama", 0, map[string]any{"rope.scaling.type": "yarn", "rope.scaling.factor": float32(4), "rope.scaling.original_context_length": uint32(8)}},
	{"qwen2", 0, nil},
	{"qwen3", 0, nil},
	{"qwen3moe", 4, nil},
	{"gemma2", 0, map[string]any{"attention.sliding_window": uint32(2)}},
	{"gemma3", 0, map[string]any{"attention.sliding_window": uint32(3), "final_logit_softcapping": float32(30)}},
}

// FuzzModel: whatever a file says of itself, it is refused or it runs; the logits
// of a text do not depend on how it is cut.
func FuzzModel(f *testing.F) {
	for _, m := range smallModels {
		f.Add(small(f, m.arch, m.experts, m.more))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		m, err := fromBytes(t.Context(), b)
		if err != nil {
			return
		}
		if err := runSmall(m); err != nil {
			t.Fatal(err)
		}
	})
}

// runSmall evaluates five tokens at once and one by one.
func runSmall(m *transformer.Model) error {
	ctx := context.Background()
	tokens := make([]int32, 5)
	for i := range tokens {
		tokens[i] = int32(i % m.Info().Vocab)
	}
	for _, act := range []infer.Act{infer.Exact, infer.Q8} {
		opt := infer.SessionOptions{Context: 8, Jobs: 2, Act: act}
		whole, err := m.NewSession(opt)
		if err != nil {
			return nil //nolint:nilerr // angles that mean nothing are found here
		}
		want, err := infer.Last(ctx, whole, tokens, nil)
		if err != nil {
			return err
		}
		single, err := m.NewSession(opt)
		if err != nil {
			return err
		}
		var got []float32
		for i := range tokens {
			if got, err = infer.Last(ctx, single, tokens[i:i+1], got); err != nil {
				return err
			}
		}
		for i, v := range want {
			if math.Float32bits(v) != math.Float32bits(got[i]) && (v == v || got[i] == got[i]) {
				return fmt.Errorf("%v: logit %d is %v at once and %v token by token", act, i, v, got[i])
			}
		}
	}
	return nil
}

func TestSmallModels(t *testing.T) {
	for _, m := range smallModels {
		x, err := fromBytes(t.Context(), small(t, m.arch, m.experts, m.more))
		if err != nil {
			t.Errorf("%s: %v", m.arch, err)
			continue
		}
		if err := runSmall(x); err != nil {
			t.Errorf("%s: %v", m.arch, err)
		}
		s, err := x.NewSession(infer.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := infer.Last(t.Context(), s, []int32{1, 2, 3, 4, 5, 6}, nil)
		if err != nil || len(l) != 10 {
			t.Errorf("%s: %v, %v", m.arch, l, err)
		}
		for _, v := range l {
			if v-v != 0 {
				t.Errorf("%s: logits %v", m.arch, l)
				break
			}
		}
	}
}

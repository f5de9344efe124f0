package order

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/model"
	"quern/tensor"
)

// routed is a model of three blocks, the first without experts, of 4 experts. A
// value says in which tensor and for which expert it stands.
func routed(t *testing.T, more ...gguf.KV) *model.Model {
	t.Helper()
	kvs := append([]gguf.KV{{Key: "general.architecture", Value: gguf.Scalar("x")}, {Key: "x.block_count", Value: gguf.Scalar(uint32(3))},
		{Key: "x.expert_count", Value: gguf.Scalar(uint32(4))}}, more...)
	m := &model.Model{Form: model.GGUF, Meta: gguf.NewMetadata(kvs...)}
	add := func(name string, typ tensor.Type, shape ...int64) {
		x := &tensor.Tensor{Name: name, Type: typ, Shape: shape, Key: tensor.Key{byte(len(m.Tensors) + 1)}}
		b := make([]byte, x.Bytes())
		for i := range b {
			b[i] = byte(int64(i)*shape[0]/int64(len(b))) + byte(16*len(m.Tensors))
		}
		x.Src = &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: x.RowBytes()}
		m.Tensors = append(m.Tensors, x)
		m.Plan = append(m.Plan, model.PlanInfo{Reason: name})
	}
	add("token_embd.weight", tensor.F32, 4, 8)
	add("blk.0.ffn_up.weight", tensor.F32, 4, 8)
	add("blk.1.ffn_gate_inp.weight", tensor.F32, 4, 8)
	add("blk.1.exp_probs_b.bias", tensor.F32, 4)
	add("blk.1.ffn_up_exps.weight", tensor.Q4_0, 4, 3, 32)
	add("blk.1.ffn_up_exps.bias", tensor.F32, 4, 8)
	add("blk.1.ffn_down_exps.scale", tensor.F32, 4)
	add("blk.1.ffn_norm_exps.weight", tensor.F32, 4)
	add("blk.1.ffn_gate_inp.scale", tensor.F32, 4)
	add("blk.1.ffn_gate_inp_shexp.weight", tensor.F32, 4)
	add("blk.2.ffn_gate_inp.weight", tensor.F32, 4, 8)
	add("blk.2.ffn_gate_up_exps.weight", tensor.F16, 4, 2, 8)
	return m
}

func read(t *testing.T, x *tensor.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(context.Background(), b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	return b
}

// expertsOf reads of which expert each slice is, and fails where one is mixed.
func expertsOf(t *testing.T, x *tensor.Tensor) []byte {
	t.Helper()
	b := read(t, x)
	var out []byte
	for n := len(b) / 4; len(b) > 0; b = b[n:] {
		if bytes.Count(b[:n], b[:1]) != n {
			t.Fatalf("%s: slices are mixed", x.Name)
		}
		out = append(out, b[0]&15)
	}
	return out
}

func TestByUse(t *testing.T) {
	in := routed(t)
	out, err := ByUse(in, Uses{1: {5, 9, 9, 0}, 2: {0, 1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	plain, first, second := []byte{0, 1, 2, 3}, []byte{1, 2, 0, 3}, []byte{3, 2, 1, 0}
	for i, want := range [][]byte{plain, plain, first, first, first, first, first, plain, plain, plain, second, second} {
		x := out.Tensors[i]
		if got := expertsOf(t, x); !bytes.Equal(got, want) {
			t.Errorf("%s: experts %v, want %v", x.Name, got, want)
		}
		if moved := !bytes.Equal(want, plain); moved == (x.Key == in.Tensors[i].Key) || out.Info(i).Reason != x.Name {
			t.Errorf("%s: key or plan", x.Name)
		}
	}
	if from, err := out.Meta.Uint32s(KeyFrom); err != nil || !slices.Equal(from, []uint32{0, 1, 2, 3, 1, 2, 0, 3, 3, 2, 1, 0}) {
		t.Errorf("%v, %v", from, err)
	}
	if _, err := ByUse(out, Uses{1: {5, 9, 9, 0}}); !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), "restore") {
		t.Errorf("twice: %v", err)
	}
	// Both ways back: for who compares, and as a step.
	ts, err := Original(out.Meta, out.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := ExpertsLast(out, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !moved.Meta.Has(KeyFrom) {
		t.Error("experts last takes the key away")
	}
	for _, m := range []*model.Model{out, moved} {
		back, err := Restore(m)
		if err != nil {
			t.Fatal(err)
		}
		if !back.Meta.Equal(in.Meta) {
			t.Error("keys are left")
		}
		for i, x := range in.Tensors {
			if !bytes.Equal(read(t, x), read(t, back.Tensors[i])) || !bytes.Equal(read(t, x), read(t, ts[i])) || back.Tensors[i].Name != x.Name {
				t.Errorf("%s: other bytes than at first", x.Name)
			}
		}
	}
}

// TestByUseInGroups: where the router chooses groups first, no expert leaves its own.
func TestByUseInGroups(t *testing.T) {
	out, err := ByUse(routed(t, gguf.KV{Key: "x.expert_group_count", Value: gguf.Scalar(uint32(2))}), Uses{1: {1, 2, 3, 4}})
	if err != nil {
		t.Fatal(err)
	}
	if got := expertsOf(t, out.Tensors[2]); !bytes.Equal(got, []byte{1, 0, 3, 2}) {
		t.Errorf("experts %v", got)
	}
}

func TestByUseRefuses(t *testing.T) {
	dense := &model.Model{Form: model.GGUF, Meta: gguf.NewMetadata(gguf.KV{Key: "general.architecture", Value: gguf.Scalar("x")})}
	tid := routed(t)
	tid.Tensors = append(tid.Tensors, &tensor.Tensor{Name: "blk.1.ffn_gate_tid2eid.weight", Type: tensor.I32, Shape: tensor.Shape{4, 8}})
	tid.Plan = append(tid.Plan, model.PlanInfo{})
	odd := routed(t)
	odd.Tensors[4] = &tensor.Tensor{Name: "blk.1.ffn_up_exps.weight", Type: tensor.F32, Shape: tensor.Shape{5, 3, 32}}
	for name, c := range map[string]struct {
		m    *model.Model
		uses Uses
		say  string
	}{
		"no experts":     {dense, Uses{0: {1}}, "expert_count"},
		"another form":   {&model.Model{Form: model.HF}, Uses{}, "GGUF"},
		"nothing":        {routed(t), Uses{}, "no counts"},
		"too few counts": {routed(t), Uses{1: {1, 2}}, "block 1 has 2 counts"},
		"another model":  {routed(t), Uses{1: {1, 2, 3, 4}, 7: {1, 2, 3, 4}}, "block 7"},
		"a list by id":   {tid, Uses{1: {1, 2, 3, 4}}, "tid2eid"},
		"another stack":  {odd, Uses{1: {1, 2, 3, 4}}, "blk.1.ffn_up_exps.weight"},
		"groups":         {routed(t, gguf.KV{Key: "x.expert_group_count", Value: gguf.Scalar(uint32(3))}), Uses{1: {1, 2, 3, 4}}, "3 groups"},
	} {
		if _, err := ByUse(c.m, c.uses); !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFromRefuses: a key out of a file is looked at before it is used.
func TestFromRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		value gguf.Value
		say   string
	}{
		"text":         {gguf.Scalar("x"), KeyFrom},
		"too short":    {gguf.List([]uint32{0, 1, 2, 3}), "4 entries"},
		"too large":    {gguf.List([]uint32{0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 2, 3}), "entry 7, of block 1, is 4"},
		"one twice":    {gguf.List([]uint32{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 1, 3}), "entry 10, of block 2, is 1"},
		"beyond int32": {gguf.List([]uint32{0, 1, 2, 3, 0, 1, 2, 1 << 31, 0, 1, 2, 3}), "entry 7"},
	} {
		m := routed(t, gguf.KV{Key: KeyFrom, Value: c.value})
		for what, err := range map[string]error{
			"From": func() error { _, _, err := From(m.Meta); return err }(), "Original": func() error { _, err := Original(m.Meta, m.Tensors); return err }(),
			"Restore": func() error { _, err := Restore(m); return err }(),
		} {
			if !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
	huge := gguf.NewMetadata(gguf.KV{Key: "general.architecture", Value: gguf.Scalar("x")}, gguf.KV{Key: "x.block_count", Value: gguf.Scalar(uint32(1 << 31))},
		gguf.KV{Key: "x.expert_count", Value: gguf.Scalar(uint32(1 << 31))}, gguf.KV{Key: KeyFrom, Value: gguf.List([]uint32{0})})
	if _, _, err := From(huge); !errors.Is(err, ErrOrder) {
		t.Errorf("a huge model: %v", err)
	}
}

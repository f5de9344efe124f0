package modeltest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/internal/testmodel"
	"quern/tensor"
	"quern/tensor/quant"
)

// Tiny is a small model of an architecture that the built-in recipes are for, as a
// GGUF file: real names and shapes of tensors and real keys, made-up weights in rows
// of 256.
type Tiny struct {
	t     *testing.T
	arch  string
	meta  *gguf.Metadata
	specs []gguf.TensorSpec
	data  []*tensor.Tensor
	main  tensor.Type // of matrices
}

func newTiny(t *testing.T, arch string, main tensor.Type) *Tiny {
	g := &Tiny{t: t, arch: arch, meta: gguf.NewMetadata(), main: main}
	g.meta.Set("general.architecture", gguf.Scalar(arch))
	g.meta.Set("general.type", gguf.Scalar("model"))
	g.meta.Set("general.name", gguf.Scalar("Tiny "+arch))
	return g
}

// set sets keys of the architecture: name, value, name, value.
func (g *Tiny) set(pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		key := g.arch + "." + pairs[i].(string)
		switch v := pairs[i+1].(type) {
		case int:
			g.meta.Set(key, gguf.Scalar(uint32(v)))
		case float64:
			g.meta.Set(key, gguf.Scalar(float32(v)))
		case bool:
			g.meta.Set(key, gguf.Scalar(v))
		case []int32:
			g.meta.Set(key, gguf.List(v))
		case []bool:
			g.meta.Set(key, gguf.List(v))
		default:
			g.t.Fatalf("%s: %T", key, v)
		}
	}
}

// add makes a tensor; what llama.cpp keeps in float32 is F32.
func (g *Tiny) add(name string, shape ...int64) {
	g.t.Helper()
	typ := g.main
	small := []string{"norm", "ffn_gate_inp", "conv1d", ".bias"}
	if len(shape) == 1 || strings.HasSuffix(name, ".ssm_a") || slices.ContainsFunc(small, func(s string) bool { return strings.Contains(name, s) }) {
		typ = tensor.F32
	}
	s := tensor.Shape(shape)
	n, err := s.Values()
	if err != nil {
		g.t.Fatal(err)
	}
	if s.RowLen()%typ.BlockValues() != 0 {
		typ = tensor.F16
	}
	values := testmodel.Values(name, int(n))
	if strings.Contains(name, "norm") {
		for i := range values {
			values[i]++
		}
	}
	codec, err := quant.For(typ)
	if err != nil {
		g.t.Fatal(err)
	}
	size, err := tensor.Bytes(typ, s)
	if err != nil {
		g.t.Fatal(err)
	}
	b := make([]byte, size)
	row, rowBytes := s.RowLen(), size/s.Rows()
	for r := range s.Rows() {
		codec.EncodeRow(b[r*rowBytes:(r+1)*rowBytes], values[r*row:(r+1)*row], nil)
	}
	g.specs = append(g.specs, gguf.TensorSpec{Name: name, Type: typ, Shape: s})
	g.data = append(g.data, &tensor.Tensor{Name: name, Type: typ, Shape: s, Src: &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: rowBytes}})
}

// layer adds tensors of layer i, as "name" and its shape.
func (g *Tiny) layer(i int, list ...any) {
	for j := 0; j < len(list); j += 2 {
		name := list[j].(string)
		if !strings.HasSuffix(name, ".bias") && name != "ssm_a" {
			name += ".weight"
		}
		g.add(fmt.Sprintf("blk.%d.%s", i, name), list[j+1].([]int64)...)
	}
}

func dims(n ...int64) []int64 { return n }

// Bytes gives the file.
func (g *Tiny) Bytes() []byte {
	g.t.Helper()
	l, err := gguf.NewLayout(g.meta, g.specs, gguf.LayoutOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	var b bytes.Buffer
	if err := l.WriteTo(g.t.Context(), &b, g.data); err != nil {
		g.t.Fatal(err)
	}
	return b.Bytes()
}

// byteLevel writes bytes as byte-level vocabularies do.
func byteLevel(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		b.WriteRune(byteRunes()[c])
	}
	return b.String()
}

func byteRunes() [256]rune {
	var out [256]rune
	next := rune(256)
	for c := range out {
		if c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae {
			out[c] = rune(c)
			continue
		}
		out[c] = next
		next++
	}
	return out
}

// TinyVocab is how many tokens the tiny models have.
const TinyVocab = 512

// Vocabulary sets a byte-level vocabulary of TinyVocab tokens: all bytes, merges
// of the most frequent neighbours of a text, two control tokens.
func (g *Tiny) Vocabulary(pre string, text string) {
	var tokens, merges []string
	for _, r := range byteRunes() {
		tokens = append(tokens, string(r))
	}
	var words [][]string
	for _, w := range strings.SplitAfter(text, " ") {
		var parts []string
		for _, r := range byteLevel(w) {
			parts = append(parts, string(r))
		}
		words = append(words, parts)
	}
	for len(tokens) < TinyVocab-2 {
		count := map[[2]string]int{}
		for _, w := range words {
			for i := 1; i < len(w); i++ {
				count[[2]string{w[i-1], w[i]}]++
			}
		}
		var best [2]string
		for p, n := range count {
			if !slices.Contains(tokens, p[0]+p[1]) && (n > count[best] || n == count[best] && (best[0] == "" || slices.Compare(p[:], best[:]) < 0)) {
				best = p
			}
		}
		if best[0] == "" {
			g.t.Fatal("the text has too few pairs")
		}
		merges = append(merges, best[0]+" "+best[1])
		tokens = append(tokens, best[0]+best[1])
		for i, w := range words {
			var out []string
			for j := 0; j < len(w); j++ {
				if j+1 < len(w) && w[j] == best[0] && w[j+1] == best[1] {
					out = append(out, best[0]+best[1])
					j++
					continue
				}
				out = append(out, w[j])
			}
			words[i] = out
		}
	}
	tokens = append(tokens, "<|endoftext|>", "<|im_end|>")
	kinds := make([]int32, len(tokens))
	for i := range kinds {
		kinds[i] = 1
		if i >= TinyVocab-2 {
			kinds[i] = 3
		}
	}
	g.meta.Set("general.quantization_version", gguf.Scalar(uint32(2)))
	g.meta.Set("tokenizer.ggml.model", gguf.Scalar("gpt2"))
	g.meta.Set("tokenizer.ggml.pre", gguf.Scalar(pre))
	g.meta.Set("tokenizer.ggml.tokens", gguf.List(tokens))
	g.meta.Set("tokenizer.ggml.token_type", gguf.List(kinds))
	g.meta.Set("tokenizer.ggml.merges", gguf.List(merges))
	g.meta.Set("tokenizer.ggml.eos_token_id", gguf.Scalar(uint32(TinyVocab-1)))
	g.meta.Set("tokenizer.ggml.padding_token_id", gguf.Scalar(uint32(TinyVocab-2)))
	g.meta.Set("tokenizer.ggml.add_bos_token", gguf.Scalar(false))
}

// ends adds the embedding, the last norm, and a head unless it is tied.
func (g *Tiny) ends(hidden int64, tied bool) {
	g.add("token_embd.weight", TinyVocab, hidden)
	g.add("output_norm.weight", hidden)
	if !tied {
		g.add("output.weight", TinyVocab, hidden)
	}
}

const (
	tinyHidden = 256
	tinyFFN    = 512
)

// TinyQwen35 has three layers of linear attention and one of the usual kind.
func TinyQwen35(t *testing.T, main tensor.Type, tied bool) *Tiny {
	g := newTiny(t, "qwen35", main)
	const h, f, layers, heads, kv, hd, kh, vh, d = tinyHidden, tinyFFN, 4, 4, 2, 64, 2, 4, 64
	g.set("block_count", layers, "context_length", 512, "embedding_length", h, "feed_forward_length", f, "attention.head_count", heads,
		"attention.head_count_kv", kv, "rope.dimension_sections", []int32{3, 3, 2, 0}, "rope.freq_base", 1e7,
		"attention.layer_norm_rms_epsilon", 1e-6, "attention.key_length", hd, "attention.value_length", hd, "ssm.conv_kernel", 4,
		"ssm.state_size", d, "ssm.group_count", kh, "ssm.time_step_rank", vh, "ssm.inner_size", vh*d, "full_attention_interval", 4,
		"rope.dimension_count", hd/4)
	g.ends(h, tied)
	for i := range layers {
		g.layer(i, "attn_norm", dims(h))
		if i%4 == 3 {
			g.layer(i, "attn_q", dims(2*heads*hd, h), "attn_k", dims(kv*hd, h), "attn_v", dims(kv*hd, h), "attn_output", dims(h, heads*hd),
				"attn_q_norm", dims(hd), "attn_k_norm", dims(hd))
		} else {
			joint := int64(2*kh*d + vh*d)
			g.layer(i, "attn_qkv", dims(joint, h), "attn_gate", dims(vh*d, h), "ssm_alpha", dims(vh, h), "ssm_beta", dims(vh, h),
				"ssm_conv1d", dims(joint, 4), "ssm_a", dims(vh), "ssm_dt.bias", dims(vh), "ssm_norm", dims(d), "ssm_out", dims(h, vh*d))
		}
		g.layer(i, "post_attention_norm", dims(h), "ffn_gate", dims(f, h), "ffn_up", dims(f, h), "ffn_down", dims(h, f))
	}
	return g
}

// TinyBailing2 has a dense layer and two with experts.
func TinyBailing2(t *testing.T, main tensor.Type) *Tiny {
	g := newTiny(t, "bailingmoe2", main)
	const h, f, layers, heads, kv, hd, experts, ef = tinyHidden, tinyFFN, 3, 4, 2, 64, 8, 256
	g.set("block_count", layers, "context_length", 512, "embedding_length", h, "feed_forward_length", f, "attention.head_count", heads,
		"attention.head_count_kv", kv, "rope.freq_base", 6e5, "attention.layer_norm_rms_epsilon", 1e-6, "expert_count", experts,
		"expert_used_count", 2, "expert_group_count", 4, "expert_group_used_count", 2, "expert_gating_func", 2, "attention.key_length", hd,
		"attention.value_length", hd, "rope.dimension_count", hd/2, "leading_dense_block_count", 1, "vocab_size", TinyVocab,
		"expert_feed_forward_length", ef, "expert_shared_feed_forward_length", ef, "expert_weights_scale", 2.5, "expert_shared_count", 1,
		"expert_weights_norm", true)
	g.ends(h, false)
	for i := range layers {
		g.layer(i, "attn_norm", dims(h), "attn_qkv", dims((heads+2*kv)*hd, h), "attn_output", dims(h, heads*hd), "attn_q_norm", dims(hd),
			"attn_k_norm", dims(hd), "ffn_norm", dims(h))
		if i == 0 {
			g.layer(i, "ffn_gate", dims(f, h), "ffn_up", dims(f, h), "ffn_down", dims(h, f))
		} else {
			g.experts(i, h, experts, ef)
		}
	}
	return g
}

func (g *Tiny) experts(i int, h, n, ef int64) {
	g.layer(i, "ffn_gate_inp", dims(n, h), "exp_probs_b.bias", dims(n), "ffn_gate_exps", dims(n, ef, h), "ffn_up_exps", dims(n, ef, h),
		"ffn_down_exps", dims(n, h, ef), "ffn_gate_shexp", dims(ef, h), "ffn_up_shexp", dims(ef, h), "ffn_down_shexp", dims(h, ef))
}

// TinyBailing3 has a dense layer and one with experts of linear attention (KDA),
// and one of latent attention, whose rows of 64 no superblock takes.
func TinyBailing3(t *testing.T, main tensor.Type) *Tiny {
	g := newTiny(t, "bailingmoe3", main)
	const h, f, layers, heads, hd, rank, nope, rope, experts, ef = tinyHidden, tinyFFN, 3, 4, 64, 256, 64, 32, 8, 256
	g.set("block_count", layers, "context_length", 512, "embedding_length", h, "feed_forward_length", f, "attention.head_count", heads,
		"attention.head_count_kv", []int32{0, 0, 1}, "rope.freq_base", 6e6, "attention.layer_norm_rms_epsilon", 1e-6, "expert_count", experts,
		"expert_used_count", 2, "expert_group_count", 1, "expert_group_used_count", 1, "expert_gating_func", 2, "vocab_size", TinyVocab,
		"ssm.conv_kernel", 4, "kda.head_dim", hd, "kda.safe_gate", true, "kda.gate_lower_bound", -5.0, "attention.kv_lora_rank", rank, "rope.dimension_count", rope,
		"attention.key_length", rank+rope, "attention.key_length_mla", nope+rope, "attention.value_length_mla", hd,
		"expert_feed_forward_length", ef, "expert_shared_feed_forward_length", ef, "expert_shared_count", 1, "leading_dense_block_count", 1,
		"expert_weights_scale", 2.5, "expert_weights_norm", true)
	g.ends(h, false)
	for i := range layers {
		g.layer(i, "attn_norm", dims(h))
		if i < 2 {
			inner := int64(heads * hd)
			for _, x := range []string{"q", "k", "v"} {
				g.layer(i, "ssm_conv1d_"+x, dims(1, inner, 1, 4), "attn_"+x, dims(inner, h))
			}
			g.layer(i, "ssm_f_a", dims(inner, h), "ssm_beta", dims(heads, h), "ssm_a", dims(heads, 1), "ssm_dt.bias", dims(inner),
				"ssm_g_a", dims(inner, h), "ssm_norm", dims(hd), "attn_output", dims(h, inner))
		} else {
			g.layer(i, "attn_q", dims(heads*(nope+rope), h), "attn_kv_a_mqa", dims(rank+rope, h), "attn_kv_a_norm", dims(rank),
				"attn_k_b", dims(heads, rank, nope), "attn_v_b", dims(heads, hd, rank), "attn_gate", dims(heads, h), "attn_output", dims(h, heads*hd))
		}
		g.layer(i, "ffn_norm", dims(h))
		if i == 0 {
			g.layer(i, "ffn_gate", dims(f, h), "ffn_up", dims(f, h), "ffn_down", dims(h, f))
		} else {
			g.experts(i, h, experts, ef)
		}
	}
	return g
}

// TinyQwen3 is what the Bonsai models are.
func TinyQwen3(t *testing.T, main tensor.Type) *Tiny {
	g := newTiny(t, "qwen3", main)
	const h, f, layers, heads, kv, hd = tinyHidden, tinyFFN, 2, 4, 2, 64
	g.set("block_count", layers, "context_length", 512, "embedding_length", h, "feed_forward_length", f, "attention.head_count", heads,
		"attention.head_count_kv", kv, "rope.freq_base", 1e6, "attention.layer_norm_rms_epsilon", 1e-6, "attention.key_length", hd,
		"attention.value_length", hd)
	g.ends(h, true)
	for i := range layers {
		g.layer(i, "attn_norm", dims(h), "attn_q", dims(heads*hd, h), "attn_k", dims(kv*hd, h), "attn_v", dims(kv*hd, h),
			"attn_output", dims(h, heads*hd), "attn_q_norm", dims(hd), "attn_k_norm", dims(hd), "ffn_norm", dims(h),
			"ffn_gate", dims(f, h), "ffn_up", dims(f, h), "ffn_down", dims(h, f))
	}
	return g
}

// Imatrix makes an importance matrix for every matrix of the file, in the newer
// format of GGUF.
func (g *Tiny) Imatrix() []byte { return ImatrixFor(g.t, g.specs) }

// ImatrixFor makes an importance matrix for the matrices of a file.
func ImatrixFor(t *testing.T, specs []gguf.TensorSpec) []byte {
	im := &Tiny{t: t, meta: gguf.NewMetadata(), main: tensor.F32}
	im.meta.Set("general.type", gguf.Scalar("imatrix"))
	im.meta.Set("imatrix.datasets", gguf.List([]string{"calibration.txt"}))
	im.meta.Set("imatrix.chunk_count", gguf.Scalar(uint32(4)))
	im.meta.Set("imatrix.chunk_size", gguf.Scalar(uint32(512)))
	for _, s := range specs {
		if s.Type == tensor.F32 || s.Name == "token_embd.weight" {
			continue
		}
		n := int64(1)
		for _, k := range s.Shape[:len(s.Shape)-2] {
			n *= k
		}
		im.addValues(s.Name+".in_sum2", tensor.Shape{n, s.Shape.RowLen()}, func(v float32) float32 { return 1 + float32(float32(v*v)*64) })
		im.addValues(s.Name+".counts", tensor.Shape{n, 1}, func(float32) float32 { return 4 })
	}
	return im.Bytes()
}

func (g *Tiny) addValues(name string, s tensor.Shape, f func(float32) float32) {
	n, _ := s.Values()
	x := testmodel.Values(name, int(n))
	for i, v := range x {
		x[i] = f(v)
	}
	codec, err := quant.For(tensor.F32)
	if err != nil {
		g.t.Fatal(err)
	}
	b := make([]byte, 4*n)
	codec.EncodeRow(b, x, nil)
	g.specs = append(g.specs, gguf.TensorSpec{Name: name, Type: tensor.F32, Shape: s})
	g.data = append(g.data, &tensor.Tensor{Name: name, Type: tensor.F32, Shape: s, Src: &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: 4 * s.RowLen()}})
}

// Meta gives the metadata, for changes.
func (g *Tiny) Meta() *gguf.Metadata { return g.meta }

package transformer_test

import (
	"errors"
	"strings"
	"testing"

	infer "quern/runtime"
	"quern/runtime/transformer"
	"quern/tensor"
)

// TestModelsThatDoNotFit: what a file says of itself is held against its tensors
// before anything is computed.
func TestModelsThatDoNotFit(t *testing.T) {
	base := converted(t, "stories260k")
	drop := func(name string) func(x *tensor.Tensor) *tensor.Tensor {
		return func(x *tensor.Tensor) *tensor.Tensor {
			if x.Name == name {
				return nil
			}
			return x
		}
	}
	// Shapes alone: the rows are never read.
	shaped := func(name string, s ...int64) func(x *tensor.Tensor) *tensor.Tensor {
		return func(x *tensor.Tensor) *tensor.Tensor {
			if x.Name == name {
				return made(name, x.Type, s, nil)
			}
			return x
		}
	}
	same := func(x *tensor.Tensor) *tensor.Tensor { return x }
	for _, c := range []struct {
		name string
		keys map[string]any
		f    func(x *tensor.Tensor) *tensor.Tensor
		is   error
		word string
	}{
		{"architecture", map[string]any{"general.architecture": "mamba"}, same, infer.ErrUnsupported, "mamba"},
		{"no architecture", map[string]any{"general.architecture": nil}, same, infer.ErrModel, "architecture"},
		{"no norm", nil, drop("blk.2.ffn_norm.weight"), infer.ErrModel, "blk.2.ffn_norm.weight"},
		{"no embedding", nil, drop("token_embd.weight"), infer.ErrModel, "token_embd.weight"},
		{"no matrix", nil, drop("blk.0.attn_v.weight"), infer.ErrModel, "blk.0.attn_v.weight"},
		{"a short matrix", nil, shaped("blk.1.ffn_up.weight", 171, 64), infer.ErrModel, "171"},
		{"a long norm", nil, shaped("output_norm.weight", 65), infer.ErrModel, "output_norm.weight"},
		{"more layers than tensors", map[string]any{"llama.block_count": 1 << 30}, same, infer.ErrModel, "layers"},
		{"one layer too many", map[string]any{"llama.block_count": 6}, same, infer.ErrModel, "blk.5."},
		{"heads that do not divide", map[string]any{"llama.attention.head_count_kv": 3}, same, infer.ErrModel, "divide"},
		{"head size", map[string]any{"llama.attention.key_length": 16, "llama.attention.value_length": 16}, same, infer.ErrModel, "attn_q"},
		{"value size", map[string]any{"llama.attention.value_length": 4}, same, infer.ErrUnsupported, "4"},
		{"scaling", map[string]any{"llama.rope.scaling.type": "dynamic"}, same, infer.ErrUnsupported, "dynamic"},
		{"longrope without factors", map[string]any{"llama.rope.scaling.type": "longrope"}, same, infer.ErrModel, "rope_factors_long"},
		{"rotated values", map[string]any{"llama.rope.dimension_count": 10}, same, infer.ErrModel, "10"},
		{"experts", map[string]any{"llama.expert_count": 8, "llama.expert_used_count": 9}, same, infer.ErrModel, "9 of 8"},
	} {
		_, err := transformer.FromGGUF(t.Context(), with(changed(base, c.f), c.keys))
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %v and %q", c.name, err, c.is, c.word)
		}
	}
}

// TestKNormIsAHeadWide is case 56 of docs/pitfalls.md.
func TestKNormIsAHeadWide(t *testing.T) {
	base := converted(t, "tiny-qwen3")
	opened(t, base)
	_, err := transformer.FromGGUF(t.Context(), changed(base, func(x *tensor.Tensor) *tensor.Tensor {
		if x.Name == "blk.0.attn_k_norm.weight" {
			return made(x.Name, tensor.F32, tensor.Shape{32}, nil)
		}
		return x
	}))
	if !errors.Is(err, infer.ErrModel) || !strings.Contains(err.Error(), "attn_k_norm") {
		t.Errorf("a norm over the hidden size: %v", err)
	}
}

package verify_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"quern/tensor"
	"quern/verify"
)

func f32Tensor(name string, v ...float32) *tensor.Tensor {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	t := &tensor.Tensor{Name: name, Type: tensor.F32, Shape: tensor.Shape{int64(len(v))}}
	t.Src = &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: t.RowBytes()}
	return t
}

func TestNormNotes(t *testing.T) {
	shifted := []*tensor.Tensor{f32Tensor("blk.0.attn_norm.weight", 2.1, 1.9, 2.4), f32Tensor("output_norm.weight", 1.8, 2, 2)}
	with := func(more ...*tensor.Tensor) []*tensor.Tensor { return append(more, shifted...) }
	for _, c := range []struct {
		name, arch string
		tensors    []*tensor.Tensor
		warns      bool
	}{
		{"twice", "gemma3", shifted, true},
		{"twice, of Qwen 3.5", "qwen35", shifted, true},
		{"a family that adds nothing", "llama", shifted, false},
		{"once", "gemma3", []*tensor.Tensor{f32Tensor("output_norm.weight", 0.9, 1, 1.1)}, false},
		{"a trained model: large ones, and some below 1", "gemma3", with(f32Tensor("blk.0.post_ffw_norm.weight", 0.4, 12)), false},
		{"all ones", "gemma3", []*tensor.Tensor{f32Tensor("output_norm.weight", 1, 1, 1)}, false},
		{"other tensors do not count", "gemma3", with(f32Tensor("blk.0.attn_q.bias", -1, -2), f32Tensor("blk.0.ssm_norm.weight", 0, 0)), true},
		{"longer than any norm", "gemma3", with(f32Tensor("blk.0.attn_norm.weight", make([]float32, 1<<20+1)...)), true},
		{"no norms", "gemma3", nil, false},
		{"NaN", "gemma3", []*tensor.Tensor{f32Tensor("output_norm.weight", float32(math.NaN()), 2)}, false},
	} {
		say, err := verify.NormNotes(t.Context(), c.arch, c.tensors)
		if err != nil || (len(say) > 0) != c.warns || c.warns && !strings.Contains(say[0], "added twice") {
			t.Errorf("%s: %q, %v", c.name, say, err)
		}
	}
}

package transformer

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"quern/formats/gguf"
	"quern/internal/pyjson"
	"quern/model"
	infer "quern/runtime"
	"quern/runtime/num"
	"quern/tensor"
)

// withLongrope gives a converted checkpoint the factors of longrope scaling, which
// the conversion of its architecture leaves out: as tensors, with the original
// context and the factor of sines and cosines as keys. Other models stay as they
// are.
func withLongrope(g *model.Model, c *model.Config) (*model.Model, error) {
	r, err := c.Rope()
	if err != nil || r.Type != "longrope" && r.Type != "su" {
		return g, err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: longrope scaling: "+format, append([]any{c.File(), infer.ErrModel}, args...)...)
	}
	out := slices.Clone(g.Tensors)
	for _, k := range []string{"long", "short"} {
		v, _ := r.Params.Get(k + "_factor")
		list, ok := v.([]any)
		if !ok {
			return nil, bad("%s_factor is %s, want a list of numbers", k, pyjson.Show(v))
		}
		var b []byte
		for _, e := range list {
			n, ok := e.(pyjson.Number)
			if !ok || !(n.Float64() > 0) {
				return nil, bad("%s_factor holds %s, want numbers above 0", k, pyjson.Show(e))
			}
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(n.Float64())))
		}
		name := "rope_factors_" + k + ".weight"
		t := &tensor.Tensor{Name: name, Type: tensor.F32, Shape: tensor.Shape{int64(len(list))}}
		t.Src = &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: t.RowBytes()}
		out = append(out, t)
	}
	longest, err := c.Size("max_position_embeddings")
	if err != nil {
		return nil, err
	}
	original, ok, err := c.OptInt("original_max_position_embeddings")
	if err != nil {
		return nil, err
	}
	factor, hasFactor, err := r.Float("factor")
	if err != nil {
		return nil, err
	}
	if ok && original > 1 {
		factor, hasFactor = float64(longest)/float64(original), true
	} else {
		original = longest
	}
	attn, given, err := r.Float("attention_factor")
	if err != nil {
		return nil, err
	}
	if !given {
		if !hasFactor || original < 2 {
			return nil, bad("neither factor, nor original_max_position_embeddings, nor attention_factor is given")
		}
		attn = 1
		if factor > 1 {
			attn = math.Sqrt(1 + num.Log64(factor)/num.Log64(float64(original)))
		}
	}
	arch, err := g.Meta.Text("general.architecture")
	if err != nil {
		return nil, err
	}
	meta := g.Meta.Clone()
	meta.Set(arch+".rope.scaling.original_context_length", gguf.Scalar(uint32(original)))
	meta.Set(arch+".rope.scaling.attn_factor", gguf.Scalar(attn))
	return g.WithTensors(out).WithMeta(meta), nil
}

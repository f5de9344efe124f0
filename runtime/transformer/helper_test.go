package transformer_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/convert"
	"quern/model/modeltest"
	infer "quern/runtime"
	"quern/runtime/transformer"
	"quern/tensor"
	"quern/tensor/quant"
)

// text is a text of the stories models.
var text = []int32{1, 403, 407, 261, 378, 432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426, 338, 401, 396, 267}

// converted is a model of the test data in GGUF form, float32.
func converted(t *testing.T, name string) *model.Model {
	t.Helper()
	files, err := modeltest.Build(name)
	if err != nil {
		t.Fatal(err)
	}
	h, err := model.LoadHF(t.Context(), files, model.HFOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := convert.ToGGUF(t.Context(), h, convert.Options{OutType: "f32"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// values decodes a tensor.
func values(t *testing.T, x *tensor.Tensor) []float32 {
	t.Helper()
	dec, err := quant.DecoderFor(x.Type)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(context.Background(), b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	n, err := x.Shape.Values()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, n)
	dec.Decode(out, b)
	return out
}

// made is a tensor of bytes in memory.
func made(name string, typ tensor.Type, shape tensor.Shape, b []byte) *tensor.Tensor {
	x := &tensor.Tensor{Name: name, Type: typ, Shape: shape}
	x.Src = &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: x.RowBytes()}
	return x
}

// encoded is a tensor in another type.
func encoded(t *testing.T, x *tensor.Tensor, typ tensor.Type) *tensor.Tensor {
	t.Helper()
	c, err := quant.For(typ)
	if err != nil {
		t.Fatal(err)
	}
	out := made(x.Name, typ, x.Shape, nil)
	b := make([]byte, out.Bytes())
	v := values(t, x)
	row, size := int(x.Shape.RowLen()), int(out.RowBytes())
	ones := slices.Repeat([]float32{1}, row)
	for r := range int(x.Rows()) {
		c.EncodeRow(b[r*size:][:size], v[r*row:][:row], ones)
	}
	return made(x.Name, typ, x.Shape, b)
}

// changed replaces tensors of a model by what f makes of them; nil drops one.
func changed(m *model.Model, f func(x *tensor.Tensor) *tensor.Tensor) *model.Model {
	var out []*tensor.Tensor
	for _, x := range m.Tensors {
		if y := f(x); y != nil {
			out = append(out, y)
		}
	}
	return m.WithTensors(out)
}

// with sets keys of a model's metadata; a nil value deletes one.
func with(m *model.Model, kv map[string]any) *model.Model {
	meta := m.Meta.Clone()
	for k, v := range kv {
		switch v := v.(type) {
		case nil:
			meta.Delete(k)
		case int:
			meta.Set(k, gguf.Scalar(uint32(v)))
		case float64:
			meta.Set(k, gguf.Scalar(float32(v)))
		case string:
			meta.Set(k, gguf.Scalar(v))
		case bool:
			meta.Set(k, gguf.Scalar(v))
		}
	}
	return m.WithMeta(meta)
}

func opened(t *testing.T, m *model.Model) *transformer.Model {
	t.Helper()
	out, err := transformer.FromGGUF(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// logits are those after every token.
func logits(t *testing.T, m infer.Model, opt infer.SessionOptions, tokens []int32) [][]float32 {
	t.Helper()
	s, err := m.NewSession(opt)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]int, len(tokens))
	for i := range want {
		want[i] = i
	}
	var out [][]float32
	err = s.Eval(t.Context(), tokens, want, func(_ int, l []float32) error {
		out = append(out, slices.Clone(l))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apart is the greatest difference, over the greatest magnitude.
func apart(a, b [][]float32) float64 {
	worst, largest := 0.0, 0.0
	for i := range a {
		for j := range a[i] {
			d := math.Abs(float64(a[i][j]) - float64(b[i][j]))
			if d != d {
				return math.Inf(1)
			}
			worst, largest = math.Max(worst, d), math.Max(largest, math.Abs(float64(a[i][j])))
		}
	}
	return worst / largest
}

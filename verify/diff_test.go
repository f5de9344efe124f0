package verify

import (
	"slices"
	"testing"

	"quern/formats/gguf"
	"quern/tensor"
)

func TestDiffKeys(t *testing.T) {
	a, b := gguf.NewMetadata(), gguf.NewMetadata()
	a.Set("same", gguf.List([]string{"x", "y"}))
	b.Set("same", gguf.List([]string{"x", "y"}))
	a.Set("gone", gguf.Scalar("v"))
	b.Set("new", gguf.Scalar(float32(1.5)))
	a.Set("list", gguf.List([]string{"x", "y", "z"}))
	b.Set("list", gguf.List([]string{"x", "q", "z"}))
	a.Set("longer", gguf.List([]int32{1, 2}))
	b.Set("longer", gguf.List([]int32{1, 2, 3}))
	a.Set("type", gguf.Scalar(uint32(7)))
	b.Set("type", gguf.Scalar(int32(7)))
	var d Difference
	d.Keys(a, b)
	want := []KeyChange{
		{"gone", `"v"`, ""},
		{"list", `str[3], [1] = "y"`, `str[3], [1] = "q"`},
		{"longer", "i32[2]", "i32[3], [2] = 3"},
		{"type", "7 (u32)", "7 (i32)"},
		{"new", "", "1.5"},
	}
	if !slices.Equal(d.Metadata, want) {
		t.Errorf("got  %q\nwant %q", d.Metadata, want)
	}
}

// Zeros of both signs are equal values and other bytes.
func TestDiffTensors(t *testing.T) {
	make1 := func(name string, typ tensor.Type, shape tensor.Shape, data ...byte) *tensor.Tensor {
		x := &tensor.Tensor{Name: name, Type: typ, Shape: shape}
		x.Src = &tensor.Section{Blob: tensor.BytesBlob(name, data), RowBytes: x.RowBytes()}
		return x
	}
	a := []*tensor.Tensor{make1("x", tensor.F16, tensor.Shape{2}, 0, 0, 0, 0x3c), make1("y", tensor.F16, tensor.Shape{1}, 0, 0), make1("z", tensor.F16, tensor.Shape{1}, 0, 0)}
	b := []*tensor.Tensor{make1("x", tensor.F16, tensor.Shape{2}, 0, 0x80, 0, 0x3c), make1("z", tensor.F16, tensor.Shape{1, 1}, 0, 0)}
	var d Difference
	if err := d.Tensors(t.Context(), a, b, true, Options{}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.OnlyA, []string{"y"}) || d.OnlyB != nil || d.Order || d.Same != 0 || len(d.Changed) != 2 {
		t.Fatalf("%+v", d)
	}
	if x := d.Changed[0].Values; !x.Equal || x.Identical {
		t.Errorf("zeros of two signs: %+v", x)
	}
	if z := d.Changed[1]; !z.Values.Identical || z.ShapeA.Equal(z.ShapeB) {
		t.Errorf("another shape of the same values: %+v", z)
	}
}

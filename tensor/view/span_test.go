package view

import (
	"errors"
	"testing"

	"quern/tensor"
)

func TestSpan(t *testing.T) {
	m := f32("m", tensor.Shape{2, 3, 2}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	v := f32("v", tensor.Shape{5}, 0, 1, 2, 3, 4)
	for _, c := range []struct {
		name  string
		in    *tensor.Tensor
		off   int64
		shape tensor.Shape
		want  []float32
	}{
		{"a layer", m, 6, tensor.Shape{3, 2}, []float32{6, 7, 8, 9, 10, 11}},
		{"other rows", m, 0, tensor.Shape{3, 4}, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		{"across rows", m, 3, tensor.Shape{2, 3}, []float32{3, 4, 5, 6, 7, 8}},
		{"one value", v, 3, tensor.Shape{1}, []float32{3}},
		{"a column", v, 1, tensor.Shape{3, 1}, []float32{1, 2, 3}},
		{"a scalar", v, 4, tensor.Shape{}, []float32{4}},
		{"itself", m, 0, tensor.Shape{2, 3, 2}, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	} {
		s, err := Span(c.in, c.off, c.shape)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []int64{1, 2, 100} {
			if got := values(t, s, step); !equal(got, c.want) {
				t.Errorf("%s, steps of %d: %v, want %v", c.name, step, got, c.want)
			}
		}
		if same := s.Key == c.in.Key; same != (c.name == "itself") {
			t.Errorf("%s: the key is that of the input: %v", c.name, same)
		}
	}
	for _, c := range []struct {
		off   int64
		shape tensor.Shape
	}{{-1, tensor.Shape{2}}, {4, tensor.Shape{2}}, {0, tensor.Shape{6}}, {0, tensor.Shape{1 << 40, 1 << 40}}} {
		if _, err := Span(v, c.off, c.shape); !errors.Is(err, tensor.ErrShape) {
			t.Errorf("%v from %d: %v", c.shape, c.off, err)
		}
	}
}

// TestSpanOrigin: a layer of a stack in a file needs its own bytes only.
func TestSpanOrigin(t *testing.T) {
	m := f32("m", tensor.Shape{2, 3, 2}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	m.Origin = []tensor.Extent{{Source: "s", File: "f", Offset: 100, Bytes: 48}}
	s, err := Span(m, 6, tensor.Shape{3, 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Origin) != 1 || s.Origin[0] != (tensor.Extent{Source: "s", File: "f", Offset: 124, Bytes: 24}) {
		t.Errorf("%v", s.Origin)
	}
	if s, err = Span(m, 3, tensor.Shape{2}); err != nil || s.Origin[0] != (tensor.Extent{Source: "s", File: "f", Offset: 108, Bytes: 16}) {
		t.Errorf("%v, %v", s.Origin, err)
	}
}

func TestTranspose(t *testing.T) {
	// Larger than a tile, in no multiple of one.
	const in, out = 37, 21
	data := make([]float32, 2*in*out)
	for i := range data {
		data[i] = float32(i)
	}
	x := f32("x", tensor.Shape{2, in, out}, data...)
	half, err := Cast(x, tensor.F16, CastOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, len(data))
	for l := range 2 {
		for i := range in {
			for o := range out {
				want[l*in*out+o*in+i] = data[l*in*out+i*out+o]
			}
		}
	}
	for _, src := range []*tensor.Tensor{x, half} {
		tr, err := Transpose(src)
		if err != nil {
			t.Fatal(err)
		}
		if !tr.Shape.Equal(tensor.Shape{2, out, in}) || tr.Key == src.Key {
			t.Errorf("shape %v", tr.Shape)
		}
		if tr, err = Cast(tr, tensor.F32, CastOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, step := range []int64{1, 20, 100} {
			if got := values(t, tr, step); !equal(got, want) {
				t.Errorf("%s, steps of %d: differs", src.Type, step)
			}
		}
	}
	if _, err := Transpose(f32("v", tensor.Shape{2}, 1, 2)); !errors.Is(err, tensor.ErrShape) {
		t.Errorf("a vector: %v", err)
	}
}

func TestGather(t *testing.T) {
	m := f32("m", tensor.Shape{2, 3, 2}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	for _, c := range []struct {
		name  string
		axis  int
		index []int64
		shape tensor.Shape
		want  []float32
	}{
		{"outer", 0, []int64{1}, tensor.Shape{1, 3, 2}, []float32{6, 7, 8, 9, 10, 11}},
		{"outer swapped", 0, []int64{1, 0}, tensor.Shape{2, 3, 2}, []float32{6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5}},
		{"middle", 1, []int64{0, 2}, tensor.Shape{2, 2, 2}, []float32{0, 1, 4, 5, 6, 7, 10, 11}},
		{"middle run", 1, []int64{1, 2}, tensor.Shape{2, 2, 2}, []float32{2, 3, 4, 5, 8, 9, 10, 11}},
		{"last", 2, []int64{1}, tensor.Shape{2, 3, 1}, []float32{1, 3, 5, 7, 9, 11}},
		{"last twice", 2, []int64{1, 1, 0}, tensor.Shape{2, 3, 3}, []float32{1, 1, 0, 3, 3, 2, 5, 5, 4, 7, 7, 6, 9, 9, 8, 11, 11, 10}},
	} {
		g, err := Gather(m, c.axis, c.index)
		if err != nil {
			t.Fatal(err)
		}
		if !g.Shape.Equal(c.shape) {
			t.Errorf("%s: shape %v, want %v", c.name, g.Shape, c.shape)
		}
		for _, step := range []int64{1, 2, 3, 100} {
			if got := values(t, g, step); !equal(got, c.want) {
				t.Errorf("%s, steps of %d: %v, want %v", c.name, step, got, c.want)
			}
		}
	}
	for _, c := range []struct {
		axis  int
		index []int64
		is    error
	}{{3, nil, tensor.ErrShape}, {-1, nil, tensor.ErrShape}, {0, []int64{2}, tensor.ErrRange}, {1, []int64{-1}, tensor.ErrRange}} {
		if _, err := Gather(m, c.axis, c.index); !errors.Is(err, c.is) {
			t.Errorf("axis %d, %v: %v", c.axis, c.index, err)
		}
	}
}

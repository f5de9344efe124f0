package view

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"quern/tensor"
)

func TestPick(t *testing.T) {
	m := f32("m", tensor.Shape{4, 2}, 0, 1, 2, 3, 4, 5, 6, 7)
	v := f32("v", tensor.Shape{5}, 0, 1, 2, 3, 4)
	for _, c := range []struct {
		in   *tensor.Tensor
		ids  []int32
		want []float32
	}{
		{m, []int32{0, 1, 3}, []float32{0, 1, 2, 3, 6, 7}},
		{m, []int32{3, 0, 1}, []float32{6, 7, 0, 1, 2, 3}},
		{m, []int32{2, 2}, []float32{4, 5, 4, 5}},
		{m, []int32{0, 1, 2, 3}, []float32{0, 1, 2, 3, 4, 5, 6, 7}},
		{v, []int32{4, 0}, []float32{4, 0}},
	} {
		p, err := Pick(c.in, c.ids)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []int64{1, 2, 100} {
			if got := values(t, p, step); !equal(got, c.want) {
				t.Errorf("%v of %v, steps of %d: %v, want %v", c.ids, c.in.Shape, step, got, c.want)
			}
		}
	}
	a, _ := Pick(m, []int32{0, 1})
	b, _ := Pick(m, []int32{1, 0})
	c, _ := Pick(m, []int32{0, 1})
	if a.Key == b.Key || a.Key != c.Key || a.Key == m.Key {
		t.Errorf("keys %v, %v, %v", a.Key, b.Key, c.Key)
	}
	for _, c := range []struct {
		in   *tensor.Tensor
		ids  []int32
		want error
	}{
		{m, nil, tensor.ErrShape}, {m, []int32{4}, tensor.ErrRange}, {m, []int32{-1}, tensor.ErrRange},
		{f32("s", tensor.Shape{}, 1), []int32{0}, tensor.ErrShape}, {f32("x", tensor.Shape{1, 2, 1}, 1, 2), []int32{0}, tensor.ErrShape},
	} {
		if _, err := Pick(c.in, c.ids); !errors.Is(err, c.want) {
			t.Errorf("%v of %v: %v", c.ids, c.in.Shape, err)
		}
	}
}

// TestPickBlocks: blocks are copied as they are, and of a tensor in a file the rows
// are fetched that are picked, near ones together.
func TestPickBlocks(t *testing.T) {
	const rows, cols = 5000, 64
	size := int64(2 * 34)
	data := make([]byte, rows*size)
	for i := range data {
		data[i] = byte(i * 7 / 3)
	}
	q := &tensor.Tensor{Name: "q", Type: tensor.Q8_0, Shape: tensor.Shape{rows, cols}, Key: tensor.Derive("q", ""),
		Src:    &tensor.Section{Blob: tensor.BytesBlob("q", data), RowBytes: size},
		Origin: []tensor.Extent{{Source: "s", File: "f", Offset: 0, Bytes: rows * size}}}
	ids := []int32{4999, 3, 4, 10, 4998}
	p, err := Pick(q, ids)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, p.Bytes())
	if err := p.ReadRows(t.Context(), got, 0, p.Rows()); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		if !bytes.Equal(got[int64(i)*size:][:size], data[int64(id)*size:][:size]) {
			t.Errorf("row %d is not row %d", i, id)
		}
	}
	want := []tensor.Extent{{Source: "s", File: "f", Offset: 3 * size, Bytes: 8 * size}, {Source: "s", File: "f", Offset: 4998 * size, Bytes: 2 * size}}
	if fmt.Sprint(p.Origin) != fmt.Sprint(want) {
		t.Errorf("origin %v, want %v", p.Origin, want)
	}
}

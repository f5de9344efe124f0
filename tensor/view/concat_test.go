package view

import (
	"context"
	"errors"
	"slices"
	"testing"

	"quern/tensor"
)

// TestConcat: rows come in order however many are asked for at once, and tensors
// that do not fit each other are refused.
func TestConcat(t *testing.T) {
	part := func(name string, rows, first byte) *tensor.Tensor {
		b := make([]byte, int(rows)*2)
		for i := range b {
			b[i] = first + byte(i)
		}
		x := &tensor.Tensor{Name: name, Type: tensor.F16, Shape: tensor.Shape{int64(rows), 1}, Key: tensor.Derive("part", name)}
		x.Src = &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: 2}
		return x
	}
	a, b, c := part("a", 3, 0), part("b", 1, 6), part("c", 4, 8)
	x, err := Concat(a, b, c)
	if err != nil || x.Name != "a" || !x.Shape.Equal(tensor.Shape{8, 1}) {
		t.Fatal(x, err)
	}
	want := make([]byte, 16)
	for i := range want {
		want[i] = byte(i)
	}
	for step := int64(1); step <= 8; step++ {
		got := make([]byte, 16)
		for at := int64(0); at < 8; at += step {
			n := min(step, 8-at)
			if err := x.ReadRows(context.Background(), got[2*at:2*(at+n)], at, n); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in steps of %d: %v", step, got)
		}
	}
	if y, err := Concat(a, c, b); err != nil || y.Key == x.Key {
		t.Errorf("another order has the same key, %v", err)
	}
	wide := a.With(func(n *tensor.Tensor) { n.Shape = tensor.Shape{1, 3} })
	other := a.With(func(n *tensor.Tensor) { n.Type = tensor.BF16 })
	for _, list := range [][]*tensor.Tensor{nil, {a, wide}, {a, other}} {
		if _, err := Concat(list...); !errors.Is(err, tensor.ErrShape) {
			t.Errorf("%v: %v", list, err)
		}
	}
}

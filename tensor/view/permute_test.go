package view

import (
	"testing"

	"quern/tensor"
)

// TestPermuteInPieces reads a permuted stack in runs that begin and end inside slices.
func TestPermuteInPieces(t *testing.T) {
	x := &tensor.Tensor{Name: "x", Type: tensor.F32, Shape: tensor.Shape{4, 3, 2}}
	data := make([]byte, x.Bytes())
	for i := range data {
		data[i] = byte(i / 8)
	}
	x.Src = &tensor.Section{Blob: tensor.BytesBlob("x", data), RowBytes: 8}
	p, err := Permute(x, []uint32{2, 0, 3, 1})
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{6, 7, 8, 0, 1, 2, 9, 10, 11, 3, 4, 5}
	for first := range int64(12) {
		for n := range 13 - first {
			b := make([]byte, 8*n)
			if err := p.ReadRows(t.Context(), b, first, n); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if b[8*i] != want[first+i] {
					t.Fatalf("row %d of %d from %d on is row %d", i, n, first, b[8*i])
				}
			}
		}
	}
	for _, from := range [][]uint32{{0, 1, 2}, {0, 1, 1, 3}, {0, 1, 2, 4}} {
		if _, err := Permute(x, from); err == nil {
			t.Errorf("%v permutes", from)
		}
	}
	if _, err := Permute(&tensor.Tensor{Name: "q", Type: tensor.Q4_0, Shape: tensor.Shape{32}}, make([]uint32, 32)); err == nil {
		t.Error("values of a block permute")
	}
}

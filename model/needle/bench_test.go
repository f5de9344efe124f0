package needle

import (
	"context"
	"testing"

	"quern/tensor"
	"quern/tensor/cq"
	"quern/tensor/view"
)

// BenchmarkEncode quantizes a matrix out of a kernel, as an archive is written: the
// columns are read, turned and packed, and the norms taken.
func BenchmarkEncode(b *testing.B) {
	const in, out = 768, 768
	t := numbersOf("kernel", tensor.Shape{1, in, out})
	c, err := cq.New(cq.W4, 128, nil)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0)
	b.SetBytes(in * out * 2)
	for b.Loop() {
		m, err := view.Transpose(flatten(b, t))
		if err != nil {
			b.Fatal(err)
		}
		index, norms, err := Encode(m, c)
		if err != nil {
			b.Fatal(err)
		}
		for _, x := range []*tensor.Tensor{index, norms} {
			if int64(cap(dst)) < x.Bytes() {
				dst = make([]byte, x.Bytes())
			}
			if err := x.ReadRows(context.Background(), dst[:x.Bytes()], 0, x.Rows()); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// flatten drops the axis of a single layer.
func flatten(b *testing.B, t *tensor.Tensor) *tensor.Tensor {
	b.Helper()
	m, err := view.Span(t, 0, t.Shape[1:])
	if err != nil {
		b.Fatal(err)
	}
	return m
}

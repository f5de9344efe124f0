package view

import (
	"context"
	"fmt"

	"quern/tensor"
)

// Flat gives the values of a tensor of a scalar type as one run, cut into rows
// of width values; the last row ends in zeros.
func Flat(t *tensor.Tensor, width int64) (*tensor.Tensor, error) {
	if t.Type.IsBlock() || width <= 0 {
		return nil, fmt.Errorf("tensor %s: %w: %s cannot be cut into rows of %d", t.Name, tensor.ErrShape, t.Type, width)
	}
	n, err := t.Shape.Values()
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	f := &flat{t: t, values: n, width: width}
	return t.With(func(c *tensor.Tensor) {
		c.Shape = tensor.Shape{(n + width - 1) / width, width}
		c.Src = f
		c.Key = tensor.Derive("flat.v1", fmt.Sprint(width), t.Key)
	}), nil
}

type flat struct {
	t      *tensor.Tensor
	values int64
	width  int64
}

func (f *flat) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	size := f.t.Type.BlockBytes()
	from, to := first*f.width, (first+n)*f.width
	if to > f.values {
		clear(dst[(f.values-from)*size:])
		to = f.values
	}
	row := f.t.Shape.RowLen()
	// Whole rows below that hold what is asked for; at most one row on each
	// side is read in vain.
	low, high := from/row, (to+row-1)/row
	buf := make([]byte, (high-low)*f.t.RowBytes())
	if err := f.t.ReadRows(ctx, buf, low, high-low); err != nil {
		return err
	}
	copy(dst, buf[(from-low*row)*size:(to-low*row)*size])
	return nil
}

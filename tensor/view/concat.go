package view

import (
	"context"
	"fmt"

	"quern/tensor"
)

// Concat gives the rows of tensors of one type and row length, one after the other,
// as a matrix under the first one's name.
func Concat(parts ...*tensor.Tensor) (*tensor.Tensor, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("%w: nothing to put together", tensor.ErrShape)
	}
	a := parts[0]
	c := &concat{}
	var keys []tensor.Key
	var origin []tensor.Extent
	for _, t := range parts {
		if t.Type != a.Type || len(t.Shape) == 0 || t.Shape.RowLen() != a.Shape.RowLen() {
			return nil, fmt.Errorf("tensor %s: %w: %s %v does not follow %s %v", t.Name, tensor.ErrShape, t.Type, t.Shape, a.Type, a.Shape)
		}
		c.parts = append(c.parts, t)
		c.rows += t.Rows()
		keys = append(keys, t.Key)
		origin = append(origin, t.Origin...)
	}
	shape := tensor.Shape{c.rows, a.Shape.RowLen()}
	if _, err := tensor.Bytes(a.Type, shape); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", a.Name, err)
	}
	return a.With(func(n *tensor.Tensor) {
		n.Shape, n.Src, n.Origin = shape, c, origin
		n.Key = tensor.Derive("concat.v1", "", keys...)
	}), nil
}

type concat struct {
	parts []*tensor.Tensor
	rows  int64
}

// ReadRows reads from each part what is asked of it.
func (c *concat) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	for _, t := range c.parts {
		rows := t.Rows()
		if first >= rows {
			first -= rows
			continue
		}
		run := min(n, rows-first)
		if run == 0 {
			return nil
		}
		b := run * t.RowBytes()
		if err := t.ReadRows(ctx, dst[:b], first, run); err != nil {
			return err
		}
		dst, first, n = dst[b:], 0, n-run
	}
	return nil
}

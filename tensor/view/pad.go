package view

import (
	"context"
	"fmt"

	"quern/tensor"
)

// Pad gives a tensor of a larger shape with t in its low corner of the last two
// axes and zeros elsewhere. Outer axes stay as they are. Rows must grow by
// whole values of a scalar type.
func Pad(t *tensor.Tensor, rows, cols int64) (*tensor.Tensor, error) {
	k := len(t.Shape)
	if k < 2 && rows != 1 || k < 1 {
		return nil, fmt.Errorf("tensor %s: %w: %v has no rows to pad", t.Name, tensor.ErrShape, t.Shape)
	}
	shape := append(tensor.Shape(nil), t.Shape...)
	have := int64(1)
	if k >= 2 {
		have = t.Shape[k-2]
		shape[k-2] = rows
	}
	shape[k-1] = cols
	if rows < have || cols < t.Shape[k-1] {
		return nil, fmt.Errorf("tensor %s: %w: %v does not fit into %v", t.Name, tensor.ErrShape, t.Shape, shape)
	}
	if t.Type.IsBlock() {
		return nil, fmt.Errorf("tensor %s: %w: %s cannot be padded, its blocks hold no zeros of their own; pad before quantizing", t.Name, tensor.ErrShape, t.Type)
	}
	if shape.Equal(t.Shape) {
		return t, nil
	}
	if _, err := tensor.Bytes(t.Type, shape); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	p := &pad{t: t, have: have, rows: rows, in: t.RowBytes(), out: cols * t.Type.BlockBytes()}
	return t.With(func(n *tensor.Tensor) {
		n.Shape, n.Src = shape, p
		n.Key = tensor.Derive("pad.v1", fmt.Sprintf("%v to %v", t.Shape, shape), t.Key)
	}), nil
}

// pad reads slices of have rows of in bytes as slices of rows rows of out bytes.
type pad struct {
	t          *tensor.Tensor
	have, rows int64
	in, out    int64
}

func (p *pad) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	for n > 0 {
		slice, at := first/p.rows, first%p.rows
		run := p.rows - at
		if run > n {
			run = n
		}
		part := dst[:run*p.out]
		real := p.have - at
		if real > run {
			real = run
		}
		if real < 0 {
			real = 0
		}
		if real > 0 {
			// The rows are read packed into the front and then moved apart,
			// last first, so that no second buffer is needed.
			if err := p.t.ReadRows(ctx, part[:real*p.in], slice*p.have+at, real); err != nil {
				return err
			}
			if p.in != p.out {
				for i := real - 1; i >= 0; i-- {
					copy(part[i*p.out:i*p.out+p.in], part[i*p.in:(i+1)*p.in])
					clear(part[i*p.out+p.in : (i+1)*p.out])
				}
			}
		}
		clear(part[real*p.out:])
		dst, first, n = dst[run*p.out:], first+run, n-run
	}
	return nil
}

package view

import (
	"context"
	"fmt"

	"quern/tensor"
)

// Permute gives the tensor whose slice i along the first axis is slice from[i] of t:
// matrices of a stack, rows of a matrix, values of a vector. from holds every
// index once.
func Permute(t *tensor.Tensor, from []uint32) (*tensor.Tensor, error) {
	if len(t.Shape) == 0 || t.Shape[0] != int64(len(from)) {
		return nil, fmt.Errorf("tensor %s: %w: %v has no %d slices to permute", t.Name, tensor.ErrShape, t.Shape, len(from))
	}
	seen, same := make([]bool, len(from)), true
	for i, f := range from {
		if int64(f) >= int64(len(from)) || seen[f] {
			return nil, fmt.Errorf("tensor %s: %w: entry %d of a permutation of %d is %d", t.Name, tensor.ErrRange, i, len(from), f)
		}
		seen[f] = true
		same = same && int(f) == i
	}
	if same {
		return t, nil
	}
	p := &permuted{t: t, from: append([]uint32(nil), from...)}
	if len(t.Shape) == 1 {
		if t.Type.IsBlock() {
			return nil, fmt.Errorf("tensor %s: %w: the values of a vector of %s share blocks", t.Name, tensor.ErrShape, t.Type)
		}
		p.value = t.Type.BlockBytes()
	} else {
		p.rows = t.Rows() / int64(len(from))
	}
	return t.With(func(n *tensor.Tensor) {
		n.Src = p
		n.Key = tensor.Derive("permute.v1", fmt.Sprint(from), t.Key)
	}), nil
}

type permuted struct {
	t     *tensor.Tensor
	from  []uint32
	rows  int64 // of a slice
	value int64 // bytes of a value of a vector, 0 for others
}

func (p *permuted) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	if p.value > 0 {
		if n == 0 {
			return nil
		}
		in := make([]byte, len(dst))
		if err := p.t.ReadRows(ctx, in, first, n); err != nil {
			return err
		}
		for i, f := range p.from {
			copy(dst[int64(i)*p.value:][:p.value], in[int64(f)*p.value:])
		}
		return nil
	}
	size := p.t.RowBytes()
	for n > 0 {
		slice, at := first/p.rows, first%p.rows
		run := min(p.rows-at, n)
		if err := p.t.ReadRows(ctx, dst[:run*size], int64(p.from[slice])*p.rows+at, run); err != nil {
			return err
		}
		dst, first, n = dst[run*size:], first+run, n-run
	}
	return nil
}

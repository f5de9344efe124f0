package view

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"quern/tensor"
)

// Span gives the values of a tensor of a scalar type from the off-th on, in
// row-major order, in another shape: a layer out of a stack, or other axes for
// the same values.
func Span(t *tensor.Tensor, off int64, shape tensor.Shape) (*tensor.Tensor, error) {
	have, err := t.Shape.Values()
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	n, err := shape.Values()
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	if t.Type.IsBlock() || off < 0 || n > have || off > have-n {
		return nil, fmt.Errorf("tensor %s: %w: %v from value %d on of %v in %s", t.Name, tensor.ErrShape, shape, off, t.Shape, t.Type)
	}
	if off == 0 && shape.Equal(t.Shape) {
		return t, nil
	}
	s := &span{t: t, off: off, row: shape.RowLen()}
	return t.With(func(c *tensor.Tensor) {
		c.Shape, c.Src = slices.Clone(shape), s
		c.Origin = s.origin(n)
		c.Key = tensor.Derive("span.v1", fmt.Sprintf("%v from %d", shape, off), t.Key)
	}), nil
}

type span struct {
	t    *tensor.Tensor
	off  int64
	row  int64
	pool sync.Pool
}

// origin narrows the ranges of a tensor that is one range of a file.
func (s *span) origin(n int64) []tensor.Extent {
	size := s.t.Type.BlockBytes()
	if _, ok := s.t.Src.(*tensor.Section); !ok || len(s.t.Origin) != 1 || s.t.Origin[0].Bytes != s.t.Bytes() || n == 0 {
		return s.t.Origin
	}
	row := s.t.Shape.RowLen()
	low, high := s.off/row*row, (s.off+n+row-1)/row*row
	e := s.t.Origin[0]
	e.Offset, e.Bytes = e.Offset+low*size, (high-low)*size
	return []tensor.Extent{e}
}

// ReadRows reads whole rows below that hold what is asked for.
func (s *span) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	size, row := s.t.Type.BlockBytes(), s.t.Shape.RowLen()
	from, to := s.off+first*s.row, s.off+(first+n)*s.row
	low, high := from/row, (to+row-1)/row
	if from == low*row && to == high*row {
		return s.t.ReadRows(ctx, dst, low, high-low)
	}
	buf := borrow(&s.pool, (high-low)*s.t.RowBytes())
	defer s.pool.Put(buf)
	if err := s.t.ReadRows(ctx, *buf, low, high-low); err != nil {
		return err
	}
	copy(dst, (*buf)[(from-low*row)*size:(to-low*row)*size])
	return nil
}

// borrow takes a buffer of n bytes out of a pool.
func borrow(p *sync.Pool, n int64) *[]byte {
	b, _ := p.Get().(*[]byte)
	if b == nil {
		b = new([]byte)
	}
	if int64(cap(*b)) < n {
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	return b
}

// Transpose swaps the last two axes of a tensor of a scalar type.
func Transpose(t *tensor.Tensor) (*tensor.Tensor, error) {
	k := len(t.Shape)
	if k < 2 || t.Type.IsBlock() {
		return nil, fmt.Errorf("tensor %s: %w: %v of %s cannot be transposed", t.Name, tensor.ErrShape, t.Shape, t.Type)
	}
	shape := slices.Clone(t.Shape)
	shape[k-2], shape[k-1] = shape[k-1], shape[k-2]
	tr := &transpose{t: t, in: t.Shape[k-2], out: t.Shape[k-1]}
	return t.With(func(c *tensor.Tensor) {
		c.Shape, c.Src = shape, tr
		c.Key = tensor.Derive("transpose.v1", "", t.Key)
	}), nil
}

// transpose reads the columns of slices of in rows of out values.
type transpose struct {
	t       *tensor.Tensor
	in, out int64
	pool    sync.Pool
}

// bandBytes is about how much of the tensor below is held at a time.
const bandBytes = 256 << 10

func (tr *transpose) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	size := tr.t.Type.BlockBytes()
	for n > 0 {
		slice, col := first/tr.out, first%tr.out
		run := min(tr.out-col, n)
		if err := tr.columns(ctx, dst[:run*tr.in*size], slice, col, run); err != nil {
			return err
		}
		dst, first, n = dst[run*tr.in*size:], first+run, n-run
	}
	return nil
}

// columns reads run columns of one slice, a band of rows after the other.
func (tr *transpose) columns(ctx context.Context, dst []byte, slice, col, run int64) error {
	per, size := tr.t.RowBytes(), tr.t.Type.BlockBytes()
	band := max(1, min(tr.in, bandBytes/max(per, 1)))
	buf := borrow(&tr.pool, band*per)
	defer tr.pool.Put(buf)
	for r := int64(0); r < tr.in; r += band {
		rows := min(band, tr.in-r)
		src := (*buf)[:rows*per]
		if err := tr.t.ReadRows(ctx, src, slice*tr.in+r, rows); err != nil {
			return err
		}
		swap(dst[r*size:], src[col*size:], int(rows), int(run), int(per), int(tr.in*size), int(size))
	}
	return nil
}

// swap writes rows by cols values of size bytes, whose rows lie from bytes apart,
// so that columns become rows that lie to bytes apart. It goes by tiles, which stay
// in the nearest cache.
func swap(dst, src []byte, rows, cols, from, to, size int) {
	const tile = 16
	for r0 := 0; r0 < rows; r0 += tile {
		r1 := min(r0+tile, rows)
		for c0 := 0; c0 < cols; c0 += tile {
			c1 := min(c0+tile, cols)
			switch size {
			case 2:
				for c := c0; c < c1; c++ {
					d := dst[c*to+r0*2 : c*to+r1*2]
					s := src[r0*from+2*c:]
					for i := 0; i+1 < len(d); i += 2 {
						d[i], d[i+1] = s[0], s[1]
						if i+3 < len(d) {
							s = s[from:]
						}
					}
				}
			default:
				for c := c0; c < c1; c++ {
					for r := r0; r < r1; r++ {
						copy(dst[c*to+r*size:c*to+(r+1)*size], src[r*from+c*size:])
					}
				}
			}
		}
	}
}

// Gather picks places of one axis of a tensor of a scalar type, in the order of
// index.
func Gather(t *tensor.Tensor, axis int, index []int64) (*tensor.Tensor, error) {
	if axis < 0 || axis >= len(t.Shape) || t.Type.IsBlock() && axis == len(t.Shape)-1 {
		return nil, fmt.Errorf("tensor %s: %w: axis %d of %v in %s", t.Name, tensor.ErrShape, axis, t.Shape, t.Type)
	}
	for _, i := range index {
		if i < 0 || i >= t.Shape[axis] {
			return nil, fmt.Errorf("tensor %s: %w: place %d on axis %d of %v", t.Name, tensor.ErrRange, i, axis, t.Shape)
		}
	}
	shape := slices.Clone(t.Shape)
	shape[axis] = int64(len(index))
	if _, err := tensor.Bytes(t.Type, shape); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	g := &gather{t: t, index: slices.Clone(index), below: 1, size: t.Type.BlockBytes()}
	g.last = axis == len(t.Shape)-1
	for _, n := range t.Shape[axis+1:] {
		g.below *= n
	}
	if !g.last {
		g.below /= max(t.Shape.RowLen(), 1) // rows of a place
	}
	g.have = t.Shape[axis]
	return t.With(func(c *tensor.Tensor) {
		c.Shape, c.Src = shape, g
		c.Key = tensor.Derive("gather.v1", fmt.Sprintf("axis %d of %v: %v", axis, t.Shape, index), t.Key)
	}), nil
}

type gather struct {
	t     *tensor.Tensor
	index []int64
	have  int64 // places on the axis below
	below int64 // rows of a place
	size  int64
	last  bool // the axis is that of the values of a row
	pool  sync.Pool
}

func (g *gather) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	if g.last {
		return g.columns(ctx, dst, first, n)
	}
	per := g.t.RowBytes()
	for n > 0 {
		place, at := first/g.below, first%g.below
		outer, k := place/int64(len(g.index)), place%int64(len(g.index))
		// Places that follow each other below are read at once.
		run := g.below - at
		for j := k; run < n && j+1 < int64(len(g.index)) && g.index[j+1] == g.index[j]+1; j++ {
			run += g.below
		}
		run = min(run, n)
		if err := g.t.ReadRows(ctx, dst[:run*per], (outer*g.have+g.index[k])*g.below+at, run); err != nil {
			return err
		}
		dst, first, n = dst[run*per:], first+run, n-run
	}
	return nil
}

func (g *gather) columns(ctx context.Context, dst []byte, first, n int64) error {
	per := g.t.RowBytes()
	step := max(1, min(n, bandBytes/max(per, 1)))
	buf := borrow(&g.pool, step*per)
	defer g.pool.Put(buf)
	for n > 0 {
		rows := min(step, n)
		src := (*buf)[:rows*per]
		if err := g.t.ReadRows(ctx, src, first, rows); err != nil {
			return err
		}
		for ; len(src) > 0; src = src[per:] {
			for _, k := range g.index {
				copy(dst[:g.size], src[k*g.size:])
				dst = dst[g.size:]
			}
		}
		first, n = first+rows, n-rows
	}
	return nil
}

// Range lists the numbers from low to high-1.
func Range(low, high int64) []int64 {
	if high < low || high-low > math.MaxInt32 {
		return nil
	}
	out := make([]int64, high-low)
	for i := range out {
		out[i] = low + int64(i)
	}
	return out
}

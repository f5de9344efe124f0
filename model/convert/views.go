package convert

import (
	"context"
	"fmt"
	"sync"

	"quern/tensor"
)

// The views below are row sources over other row sources. A request for a range
// of rows becomes as few requests below as the order of rows allows, for below
// may be a disk or a network.

// buffers lends scratch space, shared by the views of one conversion.
type buffers struct{ pool sync.Pool }

func (b *buffers) get(n int64) *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		if int64(cap(*p)) >= n {
			*p = (*p)[:n]
			return p
		}
	}
	s := make([]byte, n)
	return &s
}

func (b *buffers) put(p *[]byte) { b.pool.Put(p) }

// permuted gives the rows of a query or key matrix in the order that llama.cpp
// wants: a head's two halves interleaved.
//
//	row h*hd + 2j + s of the result is row h*hd + s*(hd/2) + j below,
//	with 0 <= j < hd/2 and s either 0 or 1
//
// hd is the number of rows of a head.
type permuted struct {
	src      *tensor.Tensor
	hd       int64
	rowBytes int64
	scratch  *buffers
}

// ReadRows reads whole heads in one run, and of a head that is cut the two
// stretches that are asked for, so no row is read twice or in vain.
func (p *permuted) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	for n > 0 {
		head, at := first/p.hd, first%p.hd
		take := min(p.hd-at, n)
		if at == 0 && n >= p.hd {
			take = n / p.hd * p.hd
		}
		if err := p.heads(ctx, dst[:take*p.rowBytes], head, at, take); err != nil {
			return err
		}
		dst = dst[take*p.rowBytes:]
		first, n = first+take, n-take
	}
	return nil
}

// heads fills rows at to at+n-1 of a head, or n/hd whole heads.
func (p *permuted) heads(ctx context.Context, dst []byte, head, at, n int64) error {
	half := p.hd / 2
	buf := p.scratch.get(n * p.rowBytes)
	defer p.scratch.put(buf)
	if n >= p.hd {
		if err := p.src.ReadRows(ctx, *buf, head*p.hd, n); err != nil {
			return err
		}
		for r := range n {
			h, in := r/p.hd, r%p.hd
			below := h*p.hd + in%2*half + in/2
			copy(dst[r*p.rowBytes:(r+1)*p.rowBytes], (*buf)[below*p.rowBytes:])
		}
		return nil
	}
	// Rows of even place come from the first half, those of odd place from
	// the second.
	var from, count [2]int64
	from[0], from[1] = (at+1)/2, at/2
	count[0] = (at+n+1)/2 - from[0]
	count[1] = (at+n)/2 - from[1]
	part := *buf
	for s := range int64(2) {
		rows := part[:count[s]*p.rowBytes]
		if err := p.src.ReadRows(ctx, rows, head*p.hd+s*half+from[s], count[s]); err != nil {
			return err
		}
		for i := range count[s] {
			r := 2*(from[s]+i) + s - at
			copy(dst[r*p.rowBytes:(r+1)*p.rowBytes], rows[i*p.rowBytes:])
		}
		part = part[len(rows):]
	}
	return nil
}

// permutedVector is the same for a bias, a single row whose values are permuted.
type permutedVector struct {
	src       *tensor.Tensor
	hd        int64
	valueSize int64
	scratch   *buffers
}

// ReadRows reads the row.
func (p *permutedVector) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	buf := p.scratch.get(int64(len(dst)))
	defer p.scratch.put(buf)
	if err := p.src.ReadRows(ctx, *buf, first, n); err != nil {
		return err
	}
	half := p.hd / 2
	for i := range int64(len(dst)) / p.valueSize {
		h, in := i/p.hd, i%p.hd
		below := h*p.hd + in%2*half + in/2
		copy(dst[i*p.valueSize:(i+1)*p.valueSize], (*buf)[below*p.valueSize:])
	}
	return nil
}

// permute makes the permuted view of a query or key tensor with n heads.
func permute(t *tensor.Tensor, n int64, scratch *buffers) (*tensor.Tensor, error) {
	rows := t.Shape[0]
	if rows%(2*n) != 0 {
		return nil, fmt.Errorf("%s: %d rows do not divide into %d heads of two halves", t.Name, rows, n)
	}
	return t.With(func(c *tensor.Tensor) {
		if len(t.Shape) == 1 {
			c.Src = &permutedVector{t, rows / n, t.Type.BlockBytes(), scratch}
		} else {
			c.Src = &permuted{t, rows / n, t.RowBytes(), scratch}
		}
		c.Key = tensor.Derive("convert/permute.v1", fmt.Sprintf("heads %d", n), t.Key)
	}), nil
}

// stacked lays matrices of one shape one behind the other.
type stacked struct {
	parts    []*tensor.Tensor
	rows     int64 // of each part
	rowBytes int64
}

// ReadRows reads each matrix that the range touches once.
func (s *stacked) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	for n > 0 {
		part, at := first/s.rows, first%s.rows
		take := min(s.rows-at, n)
		if err := s.parts[part].ReadRows(ctx, dst[:take*s.rowBytes], at, take); err != nil {
			return fmt.Errorf("%s: %w", s.parts[part].Name, err)
		}
		dst = dst[take*s.rowBytes:]
		first, n = first+take, n-take
	}
	return nil
}

// stack joins matrices of one type and shape into [n, rows, cols].
func stack(parts []*tensor.Tensor) *tensor.Tensor {
	t := &tensor.Tensor{
		Type:  parts[0].Type,
		Shape: append(tensor.Shape{int64(len(parts))}, parts[0].Shape...),
		Src:   &stacked{parts, parts[0].Rows(), parts[0].RowBytes()},
	}
	keys := make([]tensor.Key, len(parts))
	for i, p := range parts {
		keys[i] = p.Key
		t.Origin = append(t.Origin, p.Origin...)
	}
	t.Key = tensor.Derive("convert/stack.v1", "", keys...)
	return t
}

// strided picks a stretch of rows out of every group: the gate or the up half of
// fused experts, or the leading rows of a matrix (one group).
type strided struct {
	src      *tensor.Tensor
	group    int64 // rows of a group below
	skip     int64 // rows of a group before the stretch
	take     int64 // rows of the stretch
	rowBytes int64
}

// ReadRows reads each stretch that the range touches once.
func (s *strided) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	for n > 0 {
		g, at := first/s.take, first%s.take
		take := min(s.take-at, n)
		if err := s.src.ReadRows(ctx, dst[:take*s.rowBytes], g*s.group+s.skip+at, take); err != nil {
			return err
		}
		dst = dst[take*s.rowBytes:]
		first, n = first+take, n-take
	}
	return nil
}

// half gives the gate (0) or the up (1) half of [n, 2*rows, cols].
func half(t *tensor.Tensor, which int64) *tensor.Tensor {
	rows := t.Shape[1] / 2
	return t.With(func(c *tensor.Tensor) {
		c.Shape = tensor.Shape{t.Shape[0], rows, t.Shape[2]}
		c.Src = &strided{t, 2 * rows, which * rows, rows, t.RowBytes()}
		c.Key = tensor.Derive("convert/half.v1", fmt.Sprint(which), t.Key)
		c.Origin = halfOrigin(t, which)
	})
}

// halfOrigin narrows the extents when the tensor is one piece of a file.
func halfOrigin(t *tensor.Tensor, which int64) []tensor.Extent {
	if len(t.Origin) != 1 || t.Origin[0].Bytes != t.Bytes() {
		return t.Origin
	}
	size := t.Bytes() / t.Shape[0] / 2
	out := make([]tensor.Extent, t.Shape[0])
	for i := range out {
		e := t.Origin[0]
		e.Offset += (2*int64(i) + which) * size
		e.Bytes = size
		out[i] = e
	}
	return out
}

// leading gives the first n rows of a matrix.
func leading(t *tensor.Tensor, n int64) *tensor.Tensor {
	return t.With(func(c *tensor.Tensor) {
		c.Shape = append(tensor.Shape{n}, t.Shape[1:]...)
		c.Src = &strided{t, t.Rows(), 0, n, t.RowBytes()}
		c.Key = tensor.Derive("convert/leading.v1", fmt.Sprint(n), t.Key)
		if len(t.Origin) == 1 && t.Origin[0].Bytes == t.Bytes() {
			e := t.Origin[0]
			e.Bytes = c.Bytes()
			c.Origin = []tensor.Extent{e}
		}
	})
}

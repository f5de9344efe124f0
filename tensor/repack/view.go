package repack

import (
	"context"
	"fmt"
	"sync"

	"quern/tensor"
)

// Version is part of the derivation key of every repacked tensor. It changes
// when the bytes of any layout change.
const Version = "repack.v1"

// Interleave gives t in a layout, as bytes: a row of the result is one group, the
// packed bytes of GroupRows rows of t. The type is U8, so that nothing takes the rows
// for plain blocks.
func Interleave(t *tensor.Tensor, l *Layout) (*tensor.Tensor, error) {
	if err := l.Check(t.Type, t.Shape); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	group, err := l.GroupBytes(t.Shape.RowLen())
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return t.With(func(n *tensor.Tensor) {
		n.Type, n.Shape = tensor.U8, tensor.Shape{t.Rows() / l.GroupRows(), group}
		n.Src = &packed{t: t, l: l, group: group}
		n.Key = tensor.Derive(Version, l.name, t.Key)
	}), nil
}

type packed struct {
	t     *tensor.Tensor
	l     *Layout
	group int64 // bytes
	pool  sync.Pool
}

// borrow lends a buffer of n bytes; put takes it back.
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

func (p *packed) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	rows := p.l.GroupRows()
	buf := borrow(&p.pool, n*rows*p.t.RowBytes())
	defer p.pool.Put(buf)
	if err := p.t.ReadRows(ctx, *buf, first*rows, n*rows); err != nil {
		return err
	}
	if err := p.l.Pack(dst, *buf, p.t.Shape.RowLen()); err != nil {
		return fmt.Errorf("tensor %s: rows from %d on: %w", p.t.Name, first*rows, err)
	}
	return nil
}

// Deinterleave gives the plain tensor of a shape out of t, which has its bytes in
// a layout, as Interleave makes them.
func Deinterleave(t *tensor.Tensor, l *Layout, shape tensor.Shape) (*tensor.Tensor, error) {
	if err := l.Check(l.typ, shape); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	size, err := l.Bytes(shape)
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	rb, err := tensor.RowBytes(l.typ, shape.RowLen())
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	group, err := l.GroupBytes(shape.RowLen())
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	if t.Bytes() != size || t.RowBytes() != group {
		return nil, fmt.Errorf("tensor %s: %w: %v bytes are not groups of %d rows of %v %s", t.Name, tensor.ErrShape, t.Shape, l.rows, shape, l.typ)
	}
	return t.With(func(n *tensor.Tensor) {
		n.Type, n.Shape = l.typ, append(tensor.Shape(nil), shape...)
		n.Src = &plain{t: t, l: l, row: rb, group: group, rowLen: shape.RowLen()}
		n.Key = tensor.Derive(Version, l.name+" inverse "+shape.String(), t.Key)
	}), nil
}

type plain struct {
	t      *tensor.Tensor
	l      *Layout
	row    int64 // bytes
	group  int64 // bytes, packed
	rowLen int64
	pool   sync.Pool
}

// Packed gives the tensor of groups that the rows are made of, for who computes on
// them as they are, and their layout.
func (p *plain) Packed() (*tensor.Tensor, *Layout) { return p.t, p.l }

// ReadRows reads the groups that hold the rows; at most one group on each side
// is read in vain.
func (p *plain) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	rows := p.l.GroupRows()
	low, high := first/rows, (first+n+rows-1)/rows
	size := (high - low) * p.group
	buf := borrow(&p.pool, size+(high-low)*rows*p.row)
	defer p.pool.Put(buf)
	in, out := (*buf)[:size], (*buf)[size:]
	if err := p.t.ReadRows(ctx, in, low, high-low); err != nil {
		return err
	}
	if err := p.l.Unpack(out, in, p.rowLen); err != nil {
		return err
	}
	copy(dst, out[(first-low*rows)*p.row:])
	return nil
}

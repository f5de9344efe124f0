// Package view makes tensors out of tensors without reading them: the row of a
// view reads the rows that it needs below and computes.
package view

import (
	"context"
	"fmt"
	"sync"

	"quern/tensor"
	"quern/tensor/quant"
)

// CastVersion is part of the derivation key of every cast. It changes when the
// bytes of any cast change.
const CastVersion = "cast.v1"

// CastOptions change a cast. The zero value is right for most.
type CastOptions struct {
	// Weights are the importance of the columns, len(Weights) = row length, or
	// one set of them for each slice of the outermost axis of a 3-D tensor.
	// WeightsKey identifies them in the derivation key.
	Weights    []float32
	WeightsKey tensor.Key
	// Name is the name of the result, in errors too; empty keeps that of t.
	Name string
	// Check looks for values that are not finite also where the type stays the
	// same and bytes are only copied.
	Check bool
	// Allow lets values through that are not finite, or that the type cannot
	// hold.
	Allow bool
}

// Cast gives a tensor of the same values in another type, rounded, or encoded
// in blocks, by the codecs of tensor/quant. A cast to the type that t has keeps
// its bytes and its key. Values that cannot be stored are a ValueError when
// their rows are read.
func Cast(t *tensor.Tensor, to tensor.Type, opt CastOptions) (*tensor.Tensor, error) {
	name := opt.Name
	if name == "" {
		name = t.Name
	}
	if t.Type == to && !opt.Check {
		return t.With(func(n *tensor.Tensor) { n.Name = name }), nil
	}
	if _, err := tensor.Bytes(to, t.Shape); err != nil {
		return nil, fmt.Errorf("tensor %s to %s: %w", t.Name, to, err)
	}
	if _, err := quant.NewConverter(to, t.Type); err != nil {
		return nil, fmt.Errorf("tensor %s to %s: %w", t.Name, to, err)
	}
	rows, row := t.Rows(), t.Shape.RowLen()
	c := &cast{t: t, to: to, name: name, opt: opt, perSet: rows}
	if w := int64(len(opt.Weights)); w > 0 {
		if row == 0 || w%row != 0 || rows%(w/row) != 0 {
			return nil, fmt.Errorf("tensor %s: %w: %d importance weights for rows of %d", t.Name, tensor.ErrShape, w, row)
		}
		c.perSet = rows / (w / row)
	}
	key := t.Key
	switch {
	case t.Type == to:
		// The bytes are those of t.
	case c.opt.Weights == nil:
		key = tensor.Derive(CastVersion, fmt.Sprintf("%s to %s", t.Type, to), t.Key)
	default:
		key = tensor.Derive(CastVersion, fmt.Sprintf("%s to %s, weighted", t.Type, to), t.Key, opt.WeightsKey)
	}
	return t.With(func(n *tensor.Tensor) {
		n.Name, n.Type, n.Src, n.Key = name, to, c, key
	}), nil
}

type cast struct {
	t      *tensor.Tensor
	to     tensor.Type
	name   string
	opt    CastOptions
	perSet int64 // rows that share one set of weights
	pool   sync.Pool

	mu   sync.Mutex
	loss quant.Loss
}

// scratch is what one call needs; calls borrow it, so memory is bounded by the
// number of workers.
type scratch struct {
	conv *quant.Converter
	buf  []byte
}

func (c *cast) borrow(n int64) (*scratch, error) {
	s, _ := c.pool.Get().(*scratch)
	if s == nil {
		conv, err := quant.NewConverter(c.to, c.t.Type)
		if err != nil {
			return nil, err
		}
		s = &scratch{conv: conv}
	}
	if int64(cap(s.buf)) < n {
		s.buf = make([]byte, n)
	}
	s.buf = s.buf[:n]
	return s, nil
}

// ReadRows reads the source's rows and converts them.
func (c *cast) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	rowLen := c.t.Shape.RowLen()
	size := n * c.t.RowBytes()
	if c.t.Type == c.to {
		size = 0 // read in place
	}
	s, err := c.borrow(size)
	if err != nil {
		return err
	}
	defer c.pool.Put(s)
	src := s.buf
	if c.t.Type == c.to {
		src = dst
	}
	if err := c.t.ReadRows(ctx, src, first, n); err != nil {
		return err
	}
	s.conv.Reset(first * rowLen)
	in, out := c.t.RowBytes(), int64(len(dst))/n
	for done := int64(0); done < n; {
		run := n - done
		var w []float32
		if len(c.opt.Weights) > 0 {
			set := (first + done) / c.perSet
			if left := (set+1)*c.perSet - (first + done); run > left {
				run = left
			}
			w = c.opt.Weights[set*rowLen : (set+1)*rowLen]
		}
		if err := s.conv.Rows(dst[done*out:(done+run)*out], src[done*in:(done+run)*in], rowLen, w); err != nil {
			return fmt.Errorf("tensor %s: %w", c.name, err)
		}
		done += run
	}
	loss := s.conv.Loss()
	if !loss.Finite() && !c.opt.Allow {
		return c.refuse(ctx, loss)
	}
	c.mu.Lock()
	c.loss.Merge(loss)
	c.mu.Unlock()
	return nil
}

// Loss gives what the rows read so far have lost, here and in a cast right
// below. It is complete when every row was read once.
func (c *cast) Loss() quant.Loss {
	c.mu.Lock()
	total := c.loss
	c.mu.Unlock()
	if below, ok := c.t.Src.(Lossy); ok {
		total.Merge(below.Loss())
	}
	return total
}

// Count reads a whole tensor and counts what type to cannot hold.
func Count(ctx context.Context, t *tensor.Tensor, to tensor.Type) (quant.Loss, error) {
	var total quant.Loss
	conv, err := quant.NewConverter(to, t.Type)
	if err != nil {
		return total, err
	}
	rowLen := t.Shape.RowLen()
	outRow, err := tensor.RowBytes(to, rowLen)
	if err != nil {
		return total, err
	}
	step := int64(1)
	if rb := t.RowBytes(); rb > 0 && rb < 1<<20 {
		step = 1 << 20 / rb
	}
	in, out := make([]byte, step*t.RowBytes()), make([]byte, step*outRow)
	for first := int64(0); first < t.Rows(); first += step {
		n := step
		if n > t.Rows()-first {
			n = t.Rows() - first
		}
		if err := t.ReadRows(ctx, in[:n*t.RowBytes()], first, n); err != nil {
			return total, err
		}
		conv.Reset(first * rowLen)
		if err := conv.Rows(out[:n*outRow], in[:n*t.RowBytes()], rowLen, nil); err != nil {
			return total, err
		}
		total.Merge(conv.Loss())
	}
	return total, nil
}

// Lossy is implemented by sources that count what they lose.
type Lossy interface {
	Loss() quant.Loss
}

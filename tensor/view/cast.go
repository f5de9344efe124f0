// Package view makes tensors out of tensors without reading them: the row of a
// view reads the rows that it needs below and computes.
package view

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"quern/tensor"
	"quern/tensor/quant"
)

// CastVersion is part of the derivation key of every cast. It changes when the
// bytes of any cast change.
const CastVersion = "cast.v1"

// ErrValue marks a source value that the target type cannot hold, or that is
// not a number at all.
var ErrValue = errors.New("value cannot be stored")

// CastOptions change a cast. The zero value is right for most.
type CastOptions struct {
	// Weights are the importance of the columns, len(Weights) = row length, or
	// one set of them for each slice of the outermost axis of a 3-D tensor.
	// WeightsKey identifies them in the derivation key.
	Weights    []float32
	WeightsKey tensor.Key
	// KeepNonFinite copies NaN and Inf into float types as they are instead of
	// failing.
	KeepNonFinite bool
}

// Cast gives a tensor of the same values in another type, rounded, or encoded
// in blocks, by the codecs of tensor/quant. A cast to the type that t has is t
// itself.
func Cast(t *tensor.Tensor, to tensor.Type, opt CastOptions) (*tensor.Tensor, error) {
	if t.Type == to {
		return t, nil
	}
	if _, err := tensor.Bytes(to, t.Shape); err != nil {
		return nil, fmt.Errorf("tensor %s to %s: %w", t.Name, to, err)
	}
	if _, err := quant.NewConverter(to, t.Type); err != nil {
		return nil, fmt.Errorf("tensor %s to %s: %w", t.Name, to, err)
	}
	rows, row := t.Rows(), t.Shape.RowLen()
	c := &cast{t: t, to: to, opt: opt, perSet: rows}
	if w := int64(len(opt.Weights)); w > 0 {
		if row == 0 || w%row != 0 || rows%(w/row) != 0 {
			return nil, fmt.Errorf("tensor %s: %w: %d importance weights for rows of %d", t.Name, tensor.ErrShape, w, row)
		}
		c.perSet = rows / (w / row)
	}
	key := tensor.Derive(CastVersion, to.String(), t.Key)
	if c.opt.Weights != nil {
		key = tensor.Derive(CastVersion, to.String()+" weighted", t.Key, opt.WeightsKey)
	}
	return t.With(func(n *tensor.Tensor) {
		n.Type, n.Src, n.Key = to, c, key
	}), nil
}

type cast struct {
	t      *tensor.Tensor
	to     tensor.Type
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
	s, err := c.borrow(n * c.t.RowBytes())
	if err != nil {
		return err
	}
	defer c.pool.Put(s)
	if err := c.t.ReadRows(ctx, s.buf, first, n); err != nil {
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
		if err := s.conv.Rows(dst[done*out:(done+run)*out], s.buf[done*in:(done+run)*in], rowLen, w); err != nil {
			return fmt.Errorf("tensor %s: %w", c.t.Name, err)
		}
		done += run
	}
	loss := s.conv.Loss()
	if !loss.Finite() && !c.allowed(loss) {
		return c.refuse(ctx, loss)
	}
	c.mu.Lock()
	c.loss.Merge(loss)
	c.mu.Unlock()
	return nil
}

func (c *cast) allowed(l quant.Loss) bool {
	return c.opt.KeepNonFinite && c.to.IsFloat() && l.Overflow.N == 0
}

// refuse builds the error for values that do not fit. The whole tensor is
// counted, so that the message says how much is wrong and not only where the
// first piece met it.
func (c *cast) refuse(ctx context.Context, found quant.Loss) error {
	if all, err := Count(ctx, c.t, c.to); err == nil {
		found = all
	}
	rowLen := c.t.Shape.RowLen()
	at := func(x quant.Count) string {
		return fmt.Sprintf("the first at row %d, column %d", x.First/rowLen, x.First%rowLen)
	}
	switch {
	case found.NaN.N > 0 && found.Inf.N > 0:
		return fmt.Errorf("tensor %s: %w: %d NaN (%s) and %d infinite values (%s) in the source", c.t.Name, ErrValue,
			found.NaN.N, at(found.NaN), found.Inf.N, at(found.Inf))
	case found.NaN.N > 0:
		return fmt.Errorf("tensor %s: %w: %d NaN in the source, %s", c.t.Name, ErrValue, found.NaN.N, at(found.NaN))
	case found.Inf.N > 0:
		return fmt.Errorf("tensor %s: %w: %d infinite values in the source, %s", c.t.Name, ErrValue, found.Inf.N, at(found.Inf))
	case found.Overflow.N > 0:
		return fmt.Errorf("tensor %s: %w: %d values overflow %s, %s: %g; keep BF16 or F32 for this tensor", c.t.Name, ErrValue,
			found.Overflow.N, c.to, at(found.Overflow), found.Overflow.Value)
	}
	return fmt.Errorf("tensor %s: %w: %d blocks of %s need a scale beyond fp16, %s, where a value is %g", c.t.Name, ErrValue,
		found.BadBlock.N, c.to, at(found.BadBlock), found.BadBlock.Value)
}

// Loss gives what the rows read so far have lost. It is complete when every row
// was read once.
func (c *cast) Loss() quant.Loss {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loss
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

package convert

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"quern/tensor"
	"quern/tensor/quant"
)

// cast gives rows in the output's type, by way of float32. It refuses values
// that are not finite, and those that the type cannot hold, when the rows are
// read.
type cast struct {
	src      *tensor.Tensor
	name     string // of the result, for errors
	to       tensor.Type
	rowLen   int64
	srcBytes int64 // of a row below
	allow    bool
	scratch  *buffers
	conv     sync.Pool // of *quant.Converter
}

// ReadRows reads the rows in their source type and encodes them.
func (c *cast) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	src := dst
	if c.src.Type != c.to {
		buf := c.scratch.get(n * c.srcBytes)
		defer c.scratch.put(buf)
		src = *buf
	}
	if err := c.src.ReadRows(ctx, src, first, n); err != nil {
		return err
	}
	conv, ok := c.conv.Get().(*quant.Converter)
	if !ok {
		var err error
		if conv, err = quant.NewConverter(c.to, c.src.Type); err != nil {
			return fmt.Errorf("tensor %s: %w", c.name, err)
		}
	}
	defer c.conv.Put(conv)
	conv.Reset(first * c.rowLen)
	if err := conv.Rows(dst, src, c.rowLen, nil); err != nil {
		return fmt.Errorf("tensor %s: %w", c.name, err)
	}
	if loss := conv.Loss(); !c.allow && !loss.Finite() {
		return c.refuse(loss)
	}
	return nil
}

func (c *cast) refuse(l quant.Loss) error {
	e := &ValueError{Tensor: c.name, From: c.src.Name, Type: c.to}
	set := func(n quant.Count, why string) {
		if n.N == 0 || e.Count > 0 && n.First > e.Row*c.rowLen+e.Column {
			return
		}
		e.Row, e.Column = n.First/c.rowLen, n.First%c.rowLen
		e.Value, e.Count, e.Why = n.Value, n.N, why
	}
	set(l.NaN, "is not a number")
	set(l.Inf, "is not finite")
	set(l.Overflow, fmt.Sprintf("is beyond the range of %s; a type with more range is bf16 or f32", c.to))
	set(l.BadBlock, fmt.Sprintf("is beyond what the scale of a %s block can hold; a type with more range is bf16 or f32", c.to))
	return e
}

// newCast makes t a tensor of another name and type. Rows of the same type pass
// unchanged but checked, and keep their key.
func newCast(t *tensor.Tensor, name string, to tensor.Type, allow bool, scratch *buffers) (*tensor.Tensor, error) {
	if _, err := quant.NewConverter(to, t.Type); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return t.With(func(c *tensor.Tensor) {
		c.Name, c.Type = name, to
		c.Src = &cast{src: t, name: name, to: to, rowLen: t.Shape.RowLen(), srcBytes: t.RowBytes(), allow: allow, scratch: scratch}
		if to != t.Type {
			c.Key = tensor.Derive("convert/cast.v1", fmt.Sprintf("%s to %s", t.Type, to), t.Key)
		}
	}), nil
}

// plusOne adds 1 to every value. The sum has the source's precision for F16 and
// float32's for all others: that is what PyTorch does before the converter
// widens.
type plusOne struct {
	src     *tensor.Tensor
	scratch *buffers
}

// ReadRows gives float32 rows.
func (p *plusOne) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	buf := p.scratch.get(n * p.src.RowBytes())
	defer p.scratch.put(buf)
	if err := p.src.ReadRows(ctx, *buf, first, n); err != nil {
		return err
	}
	dec, err := quant.DecoderFor(p.src.Type)
	if err != nil {
		return err
	}
	x := make([]float32, len(dst)/4)
	dec.Decode(x, *buf)
	for i := range x {
		x[i]++
	}
	if p.src.Type == tensor.F16 {
		half, err := quant.For(tensor.F16)
		if err != nil {
			return err
		}
		b := make([]byte, 2*len(x))
		half.EncodeRow(b, x, nil)
		half.Decode(x, b)
	}
	for i, v := range x {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
	return nil
}

func addOne(t *tensor.Tensor, scratch *buffers) *tensor.Tensor {
	return t.With(func(c *tensor.Tensor) {
		c.Type = tensor.F32
		c.Src = &plusOne{t, scratch}
		c.Key = tensor.Derive("convert/plus-one.v1", t.Type.String(), t.Key)
	})
}

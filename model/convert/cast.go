package convert

import (
	"context"
	"encoding/binary"
	"math"

	"quern/tensor"
	"quern/tensor/quant"
	"quern/tensor/view"
)

// newCast makes t a tensor of another name and type. Rows of the same type pass
// unchanged but checked, and keep their key.
func newCast(t *tensor.Tensor, name string, to tensor.Type, allow bool) (*tensor.Tensor, error) {
	return view.Cast(t, to, view.CastOptions{Name: name, Check: true, Allow: allow})
}

// perValue gives f of every value as float32. The result has the source's precision
// for F16 and float32's for all others: that is what PyTorch does before the
// converter widens. With wide it is float32 for F16 too, as a model is run.
type perValue struct {
	src     *tensor.Tensor
	scratch *buffers
	wide    bool
	f       func(float32) float32
}

// ReadRows gives float32 rows.
func (p *perValue) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
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
	for i, v := range x {
		x[i] = p.f(v)
	}
	if p.src.Type == tensor.F16 && !p.wide {
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

// mapValues is t with f of every value. name says in the key what f is.
func (w *walker) mapValues(t *tensor.Tensor, name string, f func(float32) float32) *tensor.Tensor {
	if w.runtime {
		name += ".wide"
	}
	return t.With(func(c *tensor.Tensor) {
		c.Type = tensor.F32
		c.Src = &perValue{t, w.scratch, w.runtime, f}
		c.Key = tensor.Derive(name, t.Type.String(), t.Key)
	})
}

func (w *walker) addOne(t *tensor.Tensor) *tensor.Tensor {
	return w.mapValues(t, "convert/plus-one.v1", func(v float32) float32 { return v + 1 })
}

package convert

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"quern/internal/pyjson"
	"quern/model"
	"quern/tensor"
	"quern/tensor/quant"
)

// dequantize gives the tensors of a checkpoint without its quantization: those
// of an ordinary one unchanged, 8-bit floats multiplied by their scales.
//
// quant_method fp8 keeps the factors of WEIGHT in WEIGHT_scale_inv, one for the
// tensor or one for each block of weight_block_size.
func dequantize(m *model.Model, scratch *buffers) ([]*tensor.Tensor, error) {
	qc, err := m.Config.Object("quantization_config")
	if err != nil {
		return nil, err
	}
	if qc == nil {
		return m.Tensors, nil
	}
	v, _ := qc.Get("quant_method")
	method, _ := v.(string)
	if method != "fp8" {
		return nil, fmt.Errorf("%s: %w: quant_method %s; fp8 is read, other checkpoints must be given unquantized", m.Config.File(), ErrQuantized, pyjson.Show(v))
	}
	block, err := blockSize(qc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Config.File(), err)
	}
	at := map[string]*tensor.Tensor{}
	for _, t := range m.Tensors {
		at[t.Name] = t
	}
	var out []*tensor.Tensor
	for _, t := range m.Tensors {
		switch {
		case strings.HasSuffix(t.Name, "_scale_inv"):
			if at[strings.TrimSuffix(t.Name, "_scale_inv")] == nil {
				return nil, fmt.Errorf("%w: %s scales a tensor that is not there", model.ErrTensors, t.Name)
			}
		case at[t.Name+"_scale_inv"] != nil:
			s, err := scaled(t, at[t.Name+"_scale_inv"], block, scratch)
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		default:
			out = append(out, t)
		}
	}
	return out, nil
}

// blockSize reads weight_block_size: rows and columns of a block, zeros for one
// factor for the whole tensor.
func blockSize(qc *pyjson.Object) ([2]int64, error) {
	v, _ := qc.Get("weight_block_size")
	if v == nil {
		return [2]int64{}, nil
	}
	list, _ := v.([]any)
	var out [2]int64
	for i, e := range list {
		n, ok := wholeNumber(e)
		if i > 1 || !ok || n <= 0 {
			return out, fmt.Errorf("%w: weight_block_size is %s, want two sizes above 0", model.ErrConfig, pyjson.Show(v))
		}
		out[i] = n
	}
	if out[1] == 0 {
		return out, fmt.Errorf("%w: weight_block_size is %s, want two sizes above 0", model.ErrConfig, pyjson.Show(v))
	}
	return out, nil
}

// blockScaled is a matrix of 8-bit floats times a grid of factors; blocks at the
// edges may be cut.
type blockScaled struct {
	w, s       *tensor.Tensor
	rows, cols int64 // of a block
	scratch    *buffers
}

// scaled makes the view, in float32.
func scaled(w, s *tensor.Tensor, block [2]int64, scratch *buffers) (*tensor.Tensor, error) {
	if !s.Type.IsFloat() {
		return nil, fmt.Errorf("%w: %s has type %s, want a float type", ErrQuantized, s.Name, s.Type)
	}
	if _, err := quant.DecoderFor(w.Type); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrQuantized, w.Name, err)
	}
	rows, cols := w.Shape.Rows(), w.Shape.RowLen()
	b := blockScaled{w, s, max(rows, 1), max(cols, 1), scratch}
	want := tensor.Shape{}
	if block[0] > 0 {
		if len(w.Shape) != 2 {
			return nil, fmt.Errorf("%w: %s has shape %v, block scales want a matrix", ErrQuantized, w.Name, w.Shape)
		}
		b.rows, b.cols = block[0], block[1]
		want = tensor.Shape{(rows + b.rows - 1) / b.rows, (cols + b.cols - 1) / b.cols}
	}
	if n, _ := s.Shape.Values(); !s.Shape.Equal(want) && (block[0] > 0 || n != 1) {
		return nil, fmt.Errorf("%w: %s has shape %v, %s of %v wants %v", ErrQuantized, s.Name, s.Shape, w.Name, w.Shape, want)
	}
	return w.With(func(c *tensor.Tensor) {
		c.Type = tensor.F32
		c.Src = &b
		c.Key = tensor.Derive("convert/fp8.v1", fmt.Sprintf("blocks %d x %d", b.rows, b.cols), w.Key, s.Key)
		c.Origin = append(append([]tensor.Extent(nil), w.Origin...), s.Origin...)
	}), nil
}

// ReadRows multiplies in float32, one rounding a value.
func (b *blockScaled) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	buf := b.scratch.get(n * b.w.RowBytes())
	defer b.scratch.put(buf)
	if err := b.w.ReadRows(ctx, *buf, first, n); err != nil {
		return err
	}
	cols := b.w.Shape.RowLen()
	factors, err := b.factors(ctx, first/b.rows, (first+n-1)/b.rows)
	if err != nil {
		return err
	}
	wide := (cols + b.cols - 1) / b.cols
	dec, err := quant.DecoderFor(b.w.Type)
	if err != nil {
		return err
	}
	x := make([]float32, cols)
	for r := range n {
		dec.Decode(x, (*buf)[r*b.w.RowBytes():(r+1)*b.w.RowBytes()])
		line := factors[((first+r)/b.rows-first/b.rows)*wide:]
		for i, v := range x {
			p := float32(v * line[int64(i)/b.cols])
			binary.LittleEndian.PutUint32(dst[4*(r*cols+int64(i)):], math.Float32bits(p))
		}
	}
	return nil
}

// factors reads lines of the grid.
func (b *blockScaled) factors(ctx context.Context, from, to int64) ([]float32, error) {
	dec, err := quant.DecoderFor(b.s.Type)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, (to-from+1)*b.s.RowBytes())
	if err := b.s.ReadRows(ctx, raw, from, to-from+1); err != nil {
		return nil, fmt.Errorf("%s: %w", b.s.Name, err)
	}
	out := make([]float32, int64(len(raw))/b.s.Type.BlockBytes())
	dec.Decode(out, raw)
	return out, nil
}

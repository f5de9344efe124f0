package needle

import (
	"context"
	"fmt"

	infer "quern/runtime"
	"quern/runtime/num"
	"quern/tensor"
	"quern/tensor/cq"
	"quern/tensor/quant"
)

// matrix is a weight of [rows, cols]: CQ as stored, or float32.
type matrix struct {
	name       string
	rows, cols int
	// Of a CQ matrix, whose rows take padded values.
	codec        *cq.Codec
	padded       int
	index, norms []byte
	// Of any other.
	values []float32
}

// slicer is a blob whose bytes can be used in place.
type slicer interface {
	Slice(off, n int64) []byte
}

// stored gives the bytes of a tensor, in place where its blob can.
func stored(ctx context.Context, t *tensor.Tensor) ([]byte, error) {
	if s, ok := t.Src.(*tensor.Section); ok {
		if b, ok := s.Blob.(slicer); ok {
			if data := b.Slice(s.Offset, t.Bytes()); data != nil {
				return data, nil
			}
		}
	}
	b := make([]byte, t.Bytes())
	if err := t.ReadRows(ctx, b, 0, t.Rows()); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return b, nil
}

// floats decodes a tensor wholly.
func floats(ctx context.Context, t *tensor.Tensor) ([]float32, error) {
	dec, err := quant.DecoderFor(t.Type)
	if err != nil {
		return nil, fmt.Errorf("%w: tensor %s: %w", infer.ErrUnsupported, t.Name, err)
	}
	b, err := stored(ctx, t)
	if err != nil {
		return nil, err
	}
	n, err := t.Shape.Values()
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	out := make([]float32, n)
	dec.Decode(out, b)
	return out, nil
}

// newMatrix takes a float tensor, or with norms and codec a CQ one.
func newMatrix(ctx context.Context, t, norms *tensor.Tensor, codec *cq.Codec, rows, cols int) (*matrix, error) {
	m := &matrix{name: t.Name, rows: rows, cols: cols, codec: codec}
	if codec == nil {
		x, err := floats(ctx, t)
		if err != nil {
			return nil, err
		}
		if len(x) != rows*cols {
			return nil, fmt.Errorf("%w: tensor %s is %v, want [%d, %d]", infer.ErrModel, t.Name, t.Shape, rows, cols)
		}
		m.values = x
		return m, nil
	}
	m.padded = codec.Padded(cols)
	var err error
	if m.index, err = stored(ctx, t); err != nil {
		return nil, err
	}
	if m.norms, err = stored(ctx, norms); err != nil {
		return nil, err
	}
	if len(m.index) != rows*codec.IndexBytes(cols) || len(m.norms) != rows*codec.NormBytes(cols) {
		return nil, fmt.Errorf("%w: tensor %s has %d bytes of indices and %d of norms, which are not %d rows of %d", infer.ErrModel, t.Name, len(m.index), len(m.norms), rows, cols)
	}
	return m, nil
}

// packedRow gives the indices and norms of a row of a CQ matrix.
func (m *matrix) packedRow(i int) (index, norms []byte) {
	ib, nb := m.codec.IndexBytes(m.cols), m.codec.NormBytes(m.cols)
	return m.index[i*ib:][:ib], m.norms[i*nb:][:nb]
}

// row writes row i to dst, as floats.
func (m *matrix) row(dst []float32, i int) error {
	if m.codec == nil {
		copy(dst, m.values[i*m.cols:][:m.cols])
		return nil
	}
	index, norms := m.packedRow(i)
	if err := m.codec.DecodeRow(dst[:m.cols], index, norms); err != nil {
		return fmt.Errorf("%w: tensor %s, row %d: %w", infer.ErrModel, m.name, i, err)
	}
	return nil
}

// entering are rows of activations on their way into matrices.
type entering struct {
	rows int
	x    num.Matrix // as they are
	// turned are the groups of the rows put through the transform, with the last
	// one filled up, for CQ matrices.
	turned num.Matrix
}

// product is dst[c*ld+r] = row first+r of m times row c of in, for n rows of m.
type product struct {
	dst      []float32
	ld       int
	m        *matrix
	first, n int
	in       *entering
}

// whole is the product with all rows, rows of results one after another.
func whole(dst []float32, m *matrix, in *entering) product {
	return product{dst: dst, ld: m.rows, m: m, n: m.rows, in: in}
}

// compute makes results r to r+n-1 of each row.
func (p *product) compute(r, n int, scratch *[]float32) error {
	m, dst := p.m, p.dst[r:]
	if m.codec == nil {
		num.Dots(dst, p.ld, num.Matrix{Data: m.values[(p.first+r)*m.cols:], Rows: n, Stride: m.cols}, p.in.x, m.cols)
		return nil
	}
	w := grow(scratch, n*m.padded)
	for i := range n {
		index, norms := m.packedRow(p.first + r + i)
		if err := m.codec.PointsRow(w[i*m.padded:][:m.padded], index, norms); err != nil {
			return fmt.Errorf("%w: tensor %s, row %d: %w", infer.ErrModel, m.name, p.first+r+i, err)
		}
	}
	num.Dots(dst, p.ld, num.Matrix{Data: w, Rows: n, Stride: m.padded}, p.in.turned, m.padded)
	return nil
}

// pieceValues is how many weights are unpacked at once.
const pieceValues = 16 << 10

// piece is the number of rows that are multiplied at once, a multiple of 4.
func (m *matrix) piece() int { return max(pieceValues/max(m.cols, 1)&^3, 4) }

// grow gives n elements of a buffer that is kept, with any content.
func grow[T any](buf *[]T, n int) []T {
	if cap(*buf) < n {
		*buf = make([]T, n)
	}
	*buf = (*buf)[:cap(*buf)]
	return (*buf)[:n]
}

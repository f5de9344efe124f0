package cact

import (
	"context"
	"fmt"
	"math"
	"sync"

	"quern/tensor"
	"quern/tensor/cq"
)

// Decoded gives a CQ tensor's weights as float32 in its logical shape, read and
// turned back row by row. Tensors of other kinds come as they are stored, a RAW
// one not at all.
func (f *File) Decoded(e *Entry) (*tensor.Tensor, error) {
	switch e.Kind {
	case F16, F32:
		return e.Tensor, nil
	case Raw:
		return nil, fmt.Errorf("tensor %s: %w: it is RAW", e.Name, ErrModel)
	}
	c, err := f.Codec(e)
	if err != nil {
		return nil, err
	}
	return Decode(e.Tensor, e.Norms, e.Shape, c)
}

// Decode makes weights of shape [out, in] of packed indices and norms.
func Decode(index, norms *tensor.Tensor, shape tensor.Shape, c *cq.Codec) (*tensor.Tensor, error) {
	d := &decoded{index: index, norms: norms, cols: shape.RowLen(), codec: c}
	if len(shape) != 2 || index.RowBytes() != int64(c.IndexBytes(int(d.cols))) || norms.RowBytes() != int64(c.NormBytes(int(d.cols))) ||
		index.Rows() != shape[0] || norms.Rows() != shape[0] {
		return nil, fmt.Errorf("tensor %s: %w: indices %v and norms %v for %v", index.Name, tensor.ErrShape, index.Shape, norms.Shape, shape)
	}
	params := fmt.Sprintf("%s group %d book %x", c.Width(), c.Group(), c.Book())
	return &tensor.Tensor{
		Name: index.Name, Type: tensor.F32, Shape: shape, Src: d,
		Key:    tensor.Derive("cact.decode.v1", params, index.Key, norms.Key),
		Origin: append(append([]tensor.Extent(nil), index.Origin...), norms.Origin...),
	}, nil
}

type decoded struct {
	index, norms *tensor.Tensor
	cols         int64
	codec        *cq.Codec
	pool         sync.Pool
}

// StoredType is the type of the indices, for reports.
func (d *decoded) StoredType() tensor.Type { return d.index.Type }

// StoredBytes is the size of indices and norms, for reports.
func (d *decoded) StoredBytes() int64 { return d.index.Bytes() + d.norms.Bytes() }

// ReadRows decodes rows one after the other.
func (d *decoded) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	ib, nb := d.index.RowBytes(), d.norms.RowBytes()
	buf, _ := d.pool.Get().([]byte)
	if int64(cap(buf)) < n*(ib+nb) {
		buf = make([]byte, n*(ib+nb))
	}
	defer func() { d.pool.Put(buf) }()
	index, norms := buf[:n*ib], buf[n*ib:n*(ib+nb)]
	if err := d.index.ReadRows(ctx, index, first, n); err != nil {
		return err
	}
	if err := d.norms.ReadRows(ctx, norms, first, n); err != nil {
		return err
	}
	row := make([]float32, d.cols)
	for i := range n {
		if err := d.codec.DecodeRow(row, index[i*ib:(i+1)*ib], norms[i*nb:(i+1)*nb]); err != nil {
			return fmt.Errorf("tensor %s: row %d: %w", d.index.Name, first+i, err)
		}
		out := dst[i*d.cols*4:]
		for j, v := range row {
			le.PutUint32(out[4*j:], math.Float32bits(v))
		}
	}
	return nil
}

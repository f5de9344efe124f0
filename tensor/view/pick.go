package view

import (
	"context"
	"fmt"
	"slices"

	"quern/internal/digest"
	"quern/tensor"
)

// Pick gives the rows of a matrix, or the values of a vector, that ids name, in
// their order. Rows are copied as they are, so any type will do for a matrix; the
// values of a vector must be of a scalar type.
func Pick(t *tensor.Tensor, ids []int32) (*tensor.Tensor, error) {
	n, vector := t.Rows(), len(t.Shape) == 1
	if vector {
		n = t.Shape[0]
	}
	switch {
	case len(t.Shape) < 1 || len(t.Shape) > 2 || vector && t.Type.IsBlock():
		return nil, fmt.Errorf("tensor %s: %w: rows of %v in %s cannot be picked", t.Name, tensor.ErrShape, t.Shape, t.Type)
	case len(ids) == 0:
		return nil, fmt.Errorf("tensor %s: %w: no rows are picked", t.Name, tensor.ErrShape)
	}
	for _, id := range ids {
		if id < 0 || int64(id) >= n {
			return nil, fmt.Errorf("tensor %s: %w: row %d is picked of %d", t.Name, tensor.ErrRange, id, n)
		}
	}
	ids = slices.Clone(ids)
	shape := slices.Clone(t.Shape)
	shape[0] = int64(len(ids))
	p := &pick{t: t, ids: ids}
	return t.With(func(c *tensor.Tensor) {
		c.Shape, c.Src = shape, p
		if vector {
			c.Src = &pickValues{t, ids}
		} else {
			c.Origin = p.origin()
		}
		c.Key = tensor.Derive("pick.v1", "rows "+idsDigest(ids).String(), t.Key)
	}), nil
}

func idsDigest(ids []int32) digest.Digest {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = append(b, byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
	}
	return digest.Of(b)
}

type pick struct {
	t   *tensor.Tensor
	ids []int32
}

// ReadRows reads runs of neighbours together.
func (p *pick) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	size := p.t.RowBytes()
	for i := int64(0); i < n; {
		k := run(p.ids[first+i : first+n])
		if err := p.t.ReadRows(ctx, dst[i*size:(i+k)*size], int64(p.ids[first+i]), k); err != nil {
			return err
		}
		i += k
	}
	return nil
}

// run counts the ids at the start that follow each other.
func run(ids []int32) int64 {
	k := 1
	for k < len(ids) && ids[k] == ids[k-1]+1 {
		k++
	}
	return int64(k)
}

// pickGap is up to how many bytes between two rows are fetched with them: a
// request costs more.
const pickGap = 64 << 10

// origin narrows the range of a tensor that is one range of a file to the rows
// that are read, neighbours and near ones together.
func (p *pick) origin() []tensor.Extent {
	t, size := p.t, p.t.RowBytes()
	if _, ok := t.Src.(*tensor.Section); !ok || len(t.Origin) != 1 || t.Origin[0].Bytes != t.Bytes() {
		return t.Origin
	}
	sorted := slices.Clone(p.ids)
	slices.Sort(sorted)
	var out []tensor.Extent
	for _, id := range sorted {
		at := t.Origin[0].Offset + int64(id)*size
		if k := len(out) - 1; k >= 0 && at-(out[k].Offset+out[k].Bytes) <= pickGap {
			out[k].Bytes = at + size - out[k].Offset
			continue
		}
		e := t.Origin[0]
		e.Offset, e.Bytes = at, size
		out = append(out, e)
	}
	return out
}

// pickValues picks single values of one row.
type pickValues struct {
	t   *tensor.Tensor
	ids []int32
}

func (p *pickValues) ReadRows(ctx context.Context, dst []byte, _, _ int64) error {
	buf := make([]byte, p.t.RowBytes())
	if err := p.t.ReadRows(ctx, buf, 0, 1); err != nil {
		return err
	}
	size := p.t.Type.BlockBytes()
	for i, id := range p.ids {
		copy(dst[int64(i)*size:][:size], buf[int64(id)*size:])
	}
	return nil
}

package needle

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"quern/formats/cact"
	"quern/tensor"
	"quern/tensor/cq"
	"quern/tensor/quant"
	"quern/tensor/view"
)

// encodeVersion is part of the key of every quantized matrix.
const encodeVersion = "cq.v1"

// Encode quantizes a matrix [out, in] of floats: it gives the packed indices and
// the norms of its rows as tensors of an archive, under the matrix's name.
func Encode(t *tensor.Tensor, c *cq.Codec) (index, norms *tensor.Tensor, err error) {
	if len(t.Shape) != 2 {
		return nil, nil, fmt.Errorf("tensor %s: %w: %v is no matrix", t.Name, tensor.ErrShape, t.Shape)
	}
	if !t.Type.IsFloat() {
		return nil, nil, fmt.Errorf("tensor %s: %w: it is %s; CQ is made from F32, F16 or BF16", t.Name, tensor.ErrUnknownType, t.Type)
	}
	dec, err := quant.DecoderFor(t.Type)
	if err != nil {
		return nil, nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	cols := int(t.Shape[1])
	e := &encoding{t: t, codec: c, dec: dec, index: int64(c.IndexBytes(cols)), norm: int64(c.NormBytes(cols))}
	padded := int64(c.Padded(cols))
	part := func(name, what string, typ tensor.Type, row int64, src tensor.Source) *tensor.Tensor {
		return t.With(func(n *tensor.Tensor) {
			n.Name, n.Type, n.Shape, n.Src = name, typ, tensor.Shape{t.Shape[0], row}, src
			n.Key = tensor.Derive(encodeVersion, fmt.Sprintf("%s %s group %d book %x", what, c.Width(), c.Group(), c.Book()), t.Key)
		})
	}
	index = part(t.Name, "indices", c.Width().Type(), padded, tensor.SourceFunc(e.indices))
	norms = part(cact.NormsName(t.Name), "norms", tensor.F16, padded/int64(c.Group()), tensor.SourceFunc(e.norms))
	return index, norms, nil
}

// encoding makes rows of indices, and keeps their norms for when those are asked
// for: in a file they stand behind all indices. Norms that are not at hand are
// computed by themselves and come out the same.
type encoding struct {
	t           *tensor.Tensor
	codec       *cq.Codec
	dec         quant.Decoder
	index, norm int64 // bytes of a row
	pool        sync.Pool

	mu   sync.Mutex
	kept map[int64][]byte // norms by the first row of a piece
	size int64            // bytes in it
}

// maxKept bounds the norms that wait; they are a sixty-fourth of the weights.
const maxKept = 16 << 20

type encodeScratch struct {
	raw []byte
	row []float32
}

func (e *encoding) indices(ctx context.Context, dst []byte, first, n int64) error {
	norms := make([]byte, n*e.norm)
	if err := e.rows(ctx, dst, norms, first, n); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.kept[first]; !ok && e.size+int64(len(norms)) <= maxKept {
		if e.kept == nil {
			e.kept = map[int64][]byte{}
		}
		e.kept[first] = norms
		e.size += int64(len(norms))
	}
	return nil
}

func (e *encoding) norms(ctx context.Context, dst []byte, first, n int64) error {
	for n > 0 {
		if b, at := e.take(first); b != nil {
			run := min(int64(len(b))/e.norm-(first-at), n)
			copy(dst, b[(first-at)*e.norm:(first-at+run)*e.norm])
			if first-at+run == int64(len(b))/e.norm {
				e.drop(at)
			}
			dst, first, n = dst[run*e.norm:], first+run, n-run
			continue
		}
		run := min(n, 64)
		if err := e.rows(ctx, nil, dst[:run*e.norm], first, run); err != nil {
			return err
		}
		dst, first, n = dst[run*e.norm:], first+run, n-run
	}
	return nil
}

// take finds the kept norms that hold a row, and the first row of them.
func (e *encoding) take(row int64) ([]byte, int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for at, b := range e.kept {
		if row >= at && row < at+int64(len(b))/e.norm {
			return b, at
		}
	}
	return nil, 0
}

// drop forgets norms whose last row has been taken.
func (e *encoding) drop(at int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.size -= int64(len(e.kept[at]))
	delete(e.kept, at)
}

// rows quantizes; dst may be nil.
func (e *encoding) rows(ctx context.Context, dst, norms []byte, first, n int64) error {
	s, _ := e.pool.Get().(*encodeScratch)
	if s == nil {
		s = &encodeScratch{row: make([]float32, e.t.Shape[1])}
	}
	defer e.pool.Put(s)
	per := e.t.RowBytes()
	if int64(cap(s.raw)) < n*per {
		s.raw = make([]byte, n*per)
	}
	raw := s.raw[:n*per]
	if err := e.t.ReadRows(ctx, raw, first, n); err != nil {
		return err
	}
	for i := range n {
		e.dec.Decode(s.row, raw[i*per:(i+1)*per])
		var index []byte
		if dst != nil {
			index = dst[i*e.index : (i+1)*e.index]
		}
		if err := e.codec.EncodeRow(index, norms[i*e.norm:(i+1)*e.norm], s.row); err != nil {
			return e.refuse(ctx, first+i, err)
		}
	}
	return nil
}

// refuse says of a row that cannot be stored how many weights of the whole matrix
// are not finite, and where the first is. When all are finite, or the matrix cannot be
// read to the end, it is err that counts.
func (e *encoding) refuse(ctx context.Context, row int64, err error) error {
	err = fmt.Errorf("tensor %s: row %d: %w", e.t.Name, row, err)
	if !errors.Is(err, cq.ErrValue) {
		return err
	}
	all, cerr := view.Count(ctx, e.t, tensor.F32)
	n := all.NaN.N + all.Inf.N
	if cerr != nil || n == 0 {
		return err
	}
	at := all.NaN
	if at.N == 0 || all.Inf.N > 0 && all.Inf.First < at.First {
		at = all.Inf
	}
	cols := e.t.Shape[1]
	return &view.ValueError{
		Tensor: e.t.Name, Type: e.codec.Width().Type(), Row: at.First / cols, Column: at.First % cols,
		Value: at.Value, Count: n, Why: "is not finite",
	}
}

// half casts to F16 what archives keep so.
func half(t *tensor.Tensor, name string) (*tensor.Tensor, error) {
	return view.Cast(t, tensor.F16, view.CastOptions{Name: name, Check: true})
}

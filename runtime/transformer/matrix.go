package transformer

import (
	"context"
	"errors"
	"fmt"

	infer "quern/runtime"
	"quern/runtime/ggmlnum"
	"quern/runtime/num"
	"quern/tensor"
	"quern/tensor/dot"
	"quern/tensor/ggmldot"
	"quern/tensor/quant"
	"quern/tensor/repack"
)

// matrix is a weight that stays as it is stored: its rows are decoded a few at a
// time, as they are multiplied. A stack of experts is one matrix of several
// parts.
type matrix struct {
	name  string
	t     *tensor.Tensor
	parts int
	rows  int // of a part
	cols  int // values of a row that count
	// stride is the distance of rows in values: cols and padding. In the flat
	// form of KMCU rows start anywhere in a block.
	stride int
	// data holds the whole tensor where the file is mapped, else nil.
	data []byte
	// q8 multiplies with activations of 8 bits; nil for types that have no such
	// kernel. Where rows are padded its width is theirs, and activations are padded
	// too.
	q8 *dot.Kernel
	// ggml multiplies as llama.cpp does; nil where it has no such form.
	ggml *ggmldot.Kernel
	// rounded says that rows start anywhere in a block, so that no kernel can
	// take them: with activations of 8 bits these are rounded in blocks from the row's
	// beginning, and multiplied in float32.
	rounded bool
	// groups are the rows in a repacked layout, nil for plain ones; data is theirs.
	groups *tensor.Tensor
	layout *repack.Layout
}

// repackedSource is a source of plain rows that come from repacked ones.
type repackedSource interface {
	Packed() (*tensor.Tensor, *repack.Layout)
}

// slicer is a blob whose bytes can be used in place.
type slicer interface {
	Slice(off, n int64) []byte
}

// newMatrix checks that a tensor is what the model's settings ask for. stride is
// 0 for rows as the shape has them.
func newMatrix(t *tensor.Tensor, parts, rows, cols, stride int) (*matrix, error) {
	if _, err := quant.DecoderFor(t.Type); err != nil {
		return nil, fmt.Errorf("%w: tensor %s: %w", infer.ErrUnsupported, t.Name, err)
	}
	m := &matrix{name: t.Name, t: t, parts: parts, rows: rows, cols: cols, stride: stride}
	if stride == 0 {
		m.stride = cols
		want := tensor.Shape{int64(rows), int64(cols)}
		if parts > 1 || len(t.Shape) == 3 {
			want = tensor.Shape{int64(parts), int64(rows), int64(cols)}
		}
		if !t.Shape.Equal(want) {
			return nil, fmt.Errorf("%w: tensor %s is %v, its settings ask for %v", infer.ErrModel, t.Name, t.Shape, want)
		}
	}
	stored := t
	if p, ok := t.Src.(repackedSource); ok && stride == 0 {
		m.groups, m.layout = p.Packed()
		stored = m.groups
	}
	switch f := dot.FormatOf(t.Type); {
	case f == dot.F32:
	case stride != 0 && stride%int(t.Type.BlockValues()) != 0:
		m.rounded = true
	case stride != 0:
		var err error
		if m.q8, err = dot.New(t.Type, stride, f); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
	default:
		var err error
		if m.layout != nil {
			m.q8, err = dot.NewPacked(m.layout, cols, f)
		} else {
			m.q8, err = dot.New(t.Type, cols, f)
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
	}
	if stride == 0 {
		k, err := ggmldot.New(t.Type, cols, rows, ggmldot.Repacks(t.Type, rows))
		switch {
		case err == nil:
			m.ggml = k
		case !errors.Is(err, ggmldot.ErrNoKernel):
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
	}
	if s, ok := stored.Src.(*tensor.Section); ok {
		if b, ok := s.Blob.(slicer); ok {
			m.data = b.Slice(s.Offset, stored.Bytes())
			if s.Guard != nil && m.data != nil {
				if err := s.Guard(m.data); err != nil {
					return nil, err
				}
			}
		}
	}
	return m, nil
}

// scratch is one worker's room for packed and decoded rows.
type scratch struct {
	packed []byte
	plain  []byte // rows of a layout, put in order
	values []float32
	dot    dot.Scratch
	ggml   ggmldot.Scratch
	attend ggmlnum.Attention
	single ggmlnum.Single
	join   ggmlnum.Join
}

// stored gives rows first to first+n-1 of a part as the kernel takes them. Of a
// repacked matrix they are whole groups.
func (m *matrix) stored(ctx context.Context, part, first, n int, s *scratch) ([]byte, error) {
	if m.layout == nil {
		b, _, err := m.packed(ctx, part, first, n, s)
		return b, err
	}
	b, skip, err := m.grouped(ctx, part, first, n, s)
	if err == nil && (skip != 0 || n%m.q8.Rows() != 0) {
		err = fmt.Errorf("tensor %s: rows %d to %d are no groups of %d", m.name, first, first+n-1, m.q8.Rows())
	}
	return b, err
}

// grouped gives the groups that hold rows first to first+n-1 of a part, and how
// many rows of the first come before these.
func (m *matrix) grouped(ctx context.Context, part, first, n int, s *scratch) (b []byte, skip int, err error) {
	rows, size := int(m.layout.GroupRows()), int(m.groups.RowBytes())
	start := part*m.rows + first
	low, high := start/rows, (start+n+rows-1)/rows
	if m.data != nil {
		return m.data[low*size : high*size], start - low*rows, nil
	}
	b = grow(&s.packed, (high-low)*size)
	if err := m.groups.ReadRows(ctx, b, int64(low), int64(high-low)); err != nil {
		return nil, 0, fmt.Errorf("tensor %s: %w", m.name, err)
	}
	return b, start - low*rows, nil
}

// packed gives the bytes of whole blocks that hold rows first to first+n-1 of a
// part, in their plain order, and how many of their values come before these rows.
func (m *matrix) packed(ctx context.Context, part, first, n int, s *scratch) (b []byte, skip int, err error) {
	if m.layout != nil {
		groups, skip, err := m.grouped(ctx, part, first, n, s)
		if err != nil {
			return nil, 0, err
		}
		row := int(m.t.RowBytes())
		b := grow(&s.plain, len(groups)/int(m.groups.RowBytes())*int(m.layout.GroupRows())*row)
		if err := m.layout.Unpack(b, groups, int64(m.cols)); err != nil {
			return nil, 0, fmt.Errorf("tensor %s: %w", m.name, err)
		}
		return b[skip*row:][:n*row], 0, nil
	}
	block := int(m.t.Type.BlockValues())
	start := (part*m.rows + first) * m.stride
	from, to := start/block, (start+n*m.stride+block-1)/block
	size := int(m.t.Type.BlockBytes())
	skip = start - from*block
	if m.data != nil {
		return m.data[from*size : to*size], skip, nil
	}
	b = grow(&s.packed, (to-from)*size)
	row := int(m.t.RowBytes())
	if err := m.t.ReadRows(ctx, b, int64(from*size/row), int64(len(b)/row)); err != nil {
		return nil, 0, fmt.Errorf("tensor %s: %w", m.name, err)
	}
	return b, skip, nil
}

// decode gives rows as float32, in the scratch.
func (m *matrix) decode(ctx context.Context, part, first, n int, s *scratch) (num.Matrix, error) {
	b, skip, err := m.packed(ctx, part, first, n, s)
	if err != nil {
		return num.Matrix{}, err
	}
	values := len(b) / int(m.t.Type.BlockBytes()) * int(m.t.Type.BlockValues())
	x := grow(&s.values, values)
	if err := dot.Decode(m.t.Type, x, b, &s.dot); err != nil {
		return num.Matrix{}, fmt.Errorf("tensor %s: %w", m.name, err)
	}
	return num.Matrix{Data: x[skip:], Rows: n, Stride: m.stride}, nil
}

// grow gives n elements of a buffer that is kept, with any content. One that grows
// again and again, as with the text, grows by a half at least.
func grow[T any](buf *[]T, n int) []T {
	if c := cap(*buf); c < n {
		*buf = make([]T, max(n, c+c/2))
	}
	*buf = (*buf)[:cap(*buf)]
	return (*buf)[:n]
}

// readVector decodes a small tensor of n values wholly.
func readVector(ctx context.Context, t *tensor.Tensor, n int) ([]float32, error) {
	if v, err := t.Shape.Values(); err != nil || v != int64(n) || t.Shape.RowLen() != int64(n) {
		return nil, fmt.Errorf("%w: tensor %s is %v, its settings ask for %d values", infer.ErrModel, t.Name, t.Shape, n)
	}
	dec, err := quant.DecoderFor(t.Type)
	if err != nil {
		return nil, fmt.Errorf("%w: tensor %s: %w", infer.ErrUnsupported, t.Name, err)
	}
	b := make([]byte, t.Bytes())
	if err := t.ReadRows(ctx, b, 0, t.Rows()); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	out := make([]float32, n)
	dec.Decode(out, b)
	return out, nil
}

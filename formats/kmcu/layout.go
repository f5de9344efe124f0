package kmcu

import (
	"context"
	"fmt"
	"io"
	"math"

	"quern/formats/internal/placed"
	"quern/tensor"
)

// LayoutOptions change how a file is laid out. The zero value is right for
// most.
type LayoutOptions struct {
	// Align cuts q4 matrices into blocks; AlignRow is what readers expect.
	Align Align
	// DataAlignment is what the data start and all tensor offsets are multiples
	// of, itself a multiple of 64: 64 KiB for flash that is mapped in pages of
	// that size. 0 means Alignment.
	DataAlignment int64
	// Partition is the size in bytes of the flash partition that the file is
	// for; 0 means no limit.
	Partition int64
	// AnyTensors accepts tensors other than those of the header's model.
	AnyTensors bool
}

// Placed is a tensor with its place in the file.
type Placed struct {
	TensorSpec
	// Shape is that of the stored values, see TensorSpec.Shape.
	Shape  tensor.Shape
	Offset int64 // from the start of the file
	Bytes  int64
}

// Layout is a file planned to the last byte, without its data.
type Layout struct {
	// Header is everything before the data: header, directory, padding. It
	// must not be changed.
	Header      []byte
	Tensors     []Placed
	TotalParams int64
	// Size is the size of the file. Bytes that neither Header nor a tensor
	// covers are zero.
	Size int64
}

// NewLayout plans a file. It fails with ErrWrite for what the format cannot
// hold, ErrModel for tensors that are not those of the header, and ErrPartition
// with the excess for a file that is too large for its partition.
func NewLayout(h Header, tensors []TensorSpec, opt LayoutOptions) (*Layout, error) {
	if _, name, err := h.check(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrWrite, name, err)
	}
	align := opt.DataAlignment
	if align == 0 {
		align = Alignment
	}
	if align < 0 || align%Alignment != 0 || align > math.MaxUint32 {
		return nil, fmt.Errorf("%w: a data alignment of %d, it must be a multiple of %d", ErrWrite, align, Alignment)
	}
	if len(tensors) == 0 || len(tensors) > maxTensors {
		return nil, fmt.Errorf("%w: %d tensors, 1 to %d are allowed", ErrWrite, len(tensors), maxTensors)
	}
	if !opt.AnyTensors {
		if err := h.checkModel(tensors); err != nil {
			return nil, err
		}
	}
	start := padTo(headerBytes+int64(len(tensors))*recordBytes, align)
	if start > math.MaxInt/4 || start > math.MaxUint32 {
		return nil, fmt.Errorf("%w: a data alignment of %d", ErrWrite, align)
	}
	l := &Layout{Size: start}
	if err := l.place(tensors, opt.Align, align); err != nil {
		return nil, err
	}
	if opt.Partition > 0 && l.Size > opt.Partition {
		return nil, fmt.Errorf("%w: the file has %d bytes, the partition %d: %d bytes (%s) too many", ErrPartition, l.Size, opt.Partition, l.Size-opt.Partition, kib(l.Size-opt.Partition))
	}
	l.encode(&h, start)
	return l, nil
}

// kib gives a size in KiB, rounded up.
func kib(n int64) string { return fmt.Sprintf("%d KiB", (n+1023)/1024) }

// place gives the tensors their offsets.
func (l *Layout) place(tensors []TensorSpec, a Align, align int64) error {
	seen := make(map[string]struct{}, len(tensors))
	for _, t := range tensors {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%w: tensor %q: %w", ErrWrite, t.Name, fmt.Errorf(format, args...))
		}
		if t.Name == "" || len(t.Name) > MaxNameBytes {
			return fail("the name has %d bytes, 1 to %d are allowed", len(t.Name), MaxNameBytes)
		}
		if err := checkName(t.Name); err != nil {
			return fail("name: %w", err)
		}
		if _, dup := seen[t.Name]; dup {
			return fail("there are two of this name")
		}
		seen[t.Name] = struct{}{}
		n, err := t.sizeOf(a)
		if err != nil {
			return fail("%w", err)
		}
		off := padTo(l.Size, align)
		if off > math.MaxUint32 || n > math.MaxUint32 {
			return fail("offset %d, size %d: both must be under 4 GiB", off, n)
		}
		l.Tensors = append(l.Tensors, Placed{TensorSpec: t, Shape: t.Shape(a), Offset: off, Bytes: n})
		l.Size = off + n
		l.TotalParams += t.Rows * t.Cols
		if l.TotalParams > math.MaxUint32 {
			return fail("with it the file holds more than 2^32-1 values")
		}
	}
	return nil
}

func (l *Layout) encode(h *Header, size int64) {
	b := make([]byte, size)
	copy(b, magic)
	le.PutUint32(b[4:], version)
	for _, f := range h.fields() {
		le.PutUint32(b[f.off:], *f.at)
	}
	if h.Tied {
		le.PutUint32(b[offTied:], 1)
	}
	le.PutUint32(b[offCount:], uint32(len(l.Tensors)))
	le.PutUint32(b[offDir:], headerBytes)
	le.PutUint32(b[offData:], uint32(size))
	le.PutUint32(b[offTheta:], math.Float32bits(h.RopeTheta))
	le.PutUint32(b[offEps:], math.Float32bits(h.NormEps))
	le.PutUint32(b[offParams:], uint32(l.TotalParams))
	for i, t := range l.Tensors {
		r := b[headerBytes+i*recordBytes:]
		copy(r[:MaxNameBytes], t.Name)
		dtype := uint32(dtypeQ4)
		if t.Type == tensor.F32 {
			dtype = dtypeF32
		}
		le.PutUint32(r[24:], dtype)
		le.PutUint32(r[28:], uint32(t.Rows))
		le.PutUint32(r[32:], uint32(t.Cols))
		le.PutUint32(r[36:], uint32(t.Offset))
		le.PutUint32(r[40:], uint32(t.Bytes))
	}
	l.Header = b
}

// NewWriter writes the header to w and returns a Writer that takes the data of
// the tensors in order and puts the padding between them.
func (l *Layout) NewWriter(w io.Writer) (*placed.Writer, error) {
	ext := make([]placed.Extent, len(l.Tensors))
	for i, t := range l.Tensors {
		ext[i] = placed.Extent{Name: t.Name, Offset: t.Offset, Bytes: t.Bytes}
	}
	return placed.New(w, l.Header, ext, l.Size)
}

// WriteTo writes the whole file, reading the rows of tensors, which are those
// of the layout in order and of its shapes.
func (l *Layout) WriteTo(ctx context.Context, w io.Writer, tensors []*tensor.Tensor) error {
	if len(tensors) != len(l.Tensors) {
		return fmt.Errorf("%w: %d tensors for a layout of %d", ErrWrite, len(tensors), len(l.Tensors))
	}
	for i, t := range tensors {
		p := l.Tensors[i]
		if t.Name != p.Name || t.Type != p.Type || !t.Shape.Equal(p.Shape) {
			return fmt.Errorf("%w: tensor %d is %q %s %v, the layout has %q %s %v", ErrWrite, i, t.Name, t.Type, t.Shape, p.Name, p.Type, p.Shape)
		}
	}
	pw, err := l.NewWriter(w)
	if err != nil {
		return err
	}
	return pw.Copy(ctx, tensors)
}

package gguf

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"quern/formats/internal/placed"
	"quern/tensor"
)

// TensorSpec describes a tensor to be written. Shape is outermost first.
type TensorSpec struct {
	Name  string
	Type  tensor.Type
	Shape tensor.Shape
}

// DimsPolicy says how a shape becomes n_dims and ne.
type DimsPolicy int

const (
	// KeepDims writes every dimension, as gguf-py does.
	KeepDims DimsPolicy = iota
	// DropOnes leaves out outer dimensions of 1 but writes at least one
	// dimension, as ggml does.
	DropOnes
)

// LayoutOptions change how a file is laid out. The zero value is right for
// what convert_hf_to_gguf.py writes.
type LayoutOptions struct {
	// Alignment is what general.alignment must say, or, without that key, must
	// be DefaultAlignment; 0 takes what the metadata says. A layout that
	// differs from its own metadata could not be read.
	Alignment int64
	Dims      DimsPolicy
	// BareEnd leaves out the zeros at the end of the file: behind the last
	// tensor, or behind the header of a file without tensors. Both writers of
	// llama.cpp put them, but for gguf-py in files of a vocabulary alone.
	BareEnd bool
}

// Placed is a tensor with its place in the file.
type Placed struct {
	TensorSpec
	Offset int64 // of the data, from the start of the file
	Bytes  int64 // of the data, without padding
}

// Layout is a file planned to the last byte, without its data.
type Layout struct {
	// Header is everything before the data, padding included. It must not be
	// changed.
	Header    []byte
	Tensors   []Placed
	Alignment int64
	// Size is the size of the file. Bytes that neither Header nor a tensor
	// covers are zero.
	Size int64
}

// DataStart is the offset of the first tensor.
func (l *Layout) DataStart() int64 { return int64(len(l.Header)) }

// NewLayout plans a file of version 3 with these entries and tensors, in this
// order. It fails with ErrWrite, naming key or tensor, for what readers would
// refuse: names of more than MaxNameBytes, more than MaxDims dimensions,
// tensors without values, rows that do not divide into blocks, types that ggml
// does not have, duplicates.
func NewLayout(meta *Metadata, tensors []TensorSpec, opt LayoutOptions) (*Layout, error) {
	if meta == nil {
		meta = &Metadata{}
	}
	l := &Layout{Alignment: DefaultAlignment}
	if v, ok := meta.Get(KeyAlignment); ok {
		a, err := alignmentOf(v)
		if err != nil {
			return nil, fmt.Errorf("%w: key %s: %w", ErrWrite, KeyAlignment, err)
		}
		l.Alignment = a
	}
	if opt.Alignment != 0 && opt.Alignment != l.Alignment {
		return nil, fmt.Errorf("%w: an alignment of %d is asked for, the metadata says %d; change %s or drop it", ErrWrite, opt.Alignment, l.Alignment, KeyAlignment)
	}
	for key, v := range meta.All() {
		if err := checkPair(key, v); err != nil {
			return nil, err
		}
	}
	size := fixedHeader + metadataBytes(meta)
	seen := make(map[string]struct{}, len(tensors))
	for _, t := range tensors {
		if _, dup := seen[t.Name]; dup {
			return nil, fmt.Errorf("%w: tensor %s: %w", ErrWrite, clip(t.Name), ErrDuplicate)
		}
		seen[t.Name] = struct{}{}
		n, err := checkTensor(t, opt.Dims)
		if err != nil {
			return nil, fmt.Errorf("%w: tensor %s: %w", ErrWrite, clip(t.Name), err)
		}
		l.Tensors = append(l.Tensors, Placed{TensorSpec: t, Bytes: n})
		size += minInfoBytes + int64(len(t.Name)) + 8*int64(len(dimsOf(t.Shape, opt.Dims)))
	}
	// A tenth of what an int can hold leaves room for every later sum.
	if size > math.MaxInt/10 {
		return nil, fmt.Errorf("%w: a header of %d bytes", ErrWrite, size)
	}
	if !opt.BareEnd || len(tensors) > 0 {
		size = padTo(size, l.Alignment)
	}
	if err := l.place(size, opt.BareEnd); err != nil {
		return nil, err
	}
	l.encode(meta, size, opt.Dims)
	return l, nil
}

// checkTensor gives the size of the data.
func checkTensor(t TensorSpec, dims DimsPolicy) (int64, error) {
	if len(t.Name) > MaxNameBytes {
		return 0, fmt.Errorf("the name has %d bytes, at most %d are allowed", len(t.Name), MaxNameBytes)
	}
	if strings.ContainsRune(t.Name, 0) {
		return 0, fmt.Errorf("the name holds a NUL byte")
	}
	if _, ok := t.Type.GGML(); !ok {
		return 0, fmt.Errorf("%w: ggml has no type %s", ErrTensorType, t.Type)
	}
	if n := len(dimsOf(t.Shape, dims)); n > MaxDims {
		return 0, fmt.Errorf("shape %v has %d dimensions, at most %d are allowed", t.Shape, n, MaxDims)
	}
	n, err := tensor.Bytes(t.Type, t.Shape)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, fmt.Errorf("shape %v holds no values, and GGUF readers divide by the sizes: leave the tensor out", t.Shape)
	}
	return n, nil
}

// dimsOf gives ne, row length first.
func dimsOf(s tensor.Shape, policy DimsPolicy) []int64 {
	ne := []int64(shapeOf(s))
	if policy != DropOnes {
		return ne
	}
	for len(ne) > 1 && ne[len(ne)-1] == 1 {
		ne = ne[:len(ne)-1]
	}
	if len(ne) == 0 {
		return []int64{1}
	}
	return ne
}

// place gives the tensors their offsets.
func (l *Layout) place(start int64, bareEnd bool) error {
	at := start
	l.Size = start
	for i := range l.Tensors {
		t := &l.Tensors[i]
		if t.Bytes > math.MaxInt64-at-l.Alignment {
			return fmt.Errorf("%w: tensor %s: the file would be larger than 2^63-1 bytes", ErrWrite, clip(t.Name))
		}
		t.Offset = at
		l.Size = at + t.Bytes
		at = padTo(l.Size, l.Alignment)
	}
	if !bareEnd {
		l.Size = at
	}
	return nil
}

func (l *Layout) encode(meta *Metadata, size int64, dims DimsPolicy) {
	b := make([]byte, 0, size)
	b = append(b, magic...)
	b = le.AppendUint32(b, version)
	b = le.AppendUint64(b, uint64(len(l.Tensors)))
	b = le.AppendUint64(b, uint64(meta.Len()))
	for key, v := range meta.All() {
		b = appendPair(b, key, v)
	}
	for _, t := range l.Tensors {
		id, _ := t.Type.GGML()
		ne := dimsOf(t.Shape, dims)
		b = appendString(b, t.Name)
		b = le.AppendUint32(b, uint32(len(ne)))
		for _, d := range ne {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint32(b, uint32(id))
		b = le.AppendUint64(b, uint64(t.Offset-size))
	}
	l.Header = append(b, make([]byte, size-int64(len(b)))...)
}

// NewWriter writes the header to w and returns a Writer that takes the data of
// the tensors in order and puts the padding between them.
func (l *Layout) NewWriter(w io.Writer) (*placed.Writer, error) {
	return placed.New(w, l.Header, l.extents(), l.Size)
}

func (l *Layout) extents() []placed.Extent {
	out := make([]placed.Extent, len(l.Tensors))
	for i, t := range l.Tensors {
		out[i] = placed.Extent{Name: t.Name, Offset: t.Offset, Bytes: t.Bytes}
	}
	return out
}

// WriteTo writes the whole file, reading the rows of tensors, which are those
// of the layout in order, through a buffer of about 1 MiB.
func (l *Layout) WriteTo(ctx context.Context, w io.Writer, tensors []*tensor.Tensor) error {
	if len(tensors) != len(l.Tensors) {
		return fmt.Errorf("%w: %d tensors for a layout of %d", ErrWrite, len(tensors), len(l.Tensors))
	}
	for i, t := range tensors {
		p := l.Tensors[i]
		if t.Name != p.Name || t.Type != p.Type || !t.Shape.Equal(p.Shape) {
			return fmt.Errorf("%w: tensor %d is %s %s %v, the layout has %s %s %v", ErrWrite, i, clip(t.Name), t.Type, t.Shape, clip(p.Name), p.Type, p.Shape)
		}
	}
	pw, err := l.NewWriter(w)
	if err != nil {
		return err
	}
	return pw.Copy(ctx, tensors)
}

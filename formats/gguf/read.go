package gguf

import (
	"context"
	"fmt"
	"math"

	"quern/tensor"
)

// Options change how files are opened. The zero value is right for most.
type Options struct {
	// MaxHeader is the longest header read, in bytes; 0 means
	// DefaultMaxHeader.
	MaxHeader int64
	// FirstRead is the length of the first read of the header; 0 means
	// DefaultFirstRead.
	FirstRead int64
	// Source is the recipe's name of the source, put into Tensor.Origin.
	Source string
	// Key identifies the file's content. Tensor keys derive from it; when it
	// is zero the tensors have no keys.
	Key tensor.Key
	// Partial opens files whose header can be shown but whose data cannot all
	// be used: tensors of unknown type, data cut off or missing. What is wrong
	// is listed in File.Problems, and Tensor and All refuse those tensors.
	Partial bool
}

// File is an opened GGUF file: its header, and tensors that read from the blob.
type File struct {
	Name    string
	Version uint32
	Meta    *Metadata
	// Tensors are in file order.
	Tensors   []Info
	Alignment int64
	// HeaderEnd is the end of the last tensor info; DataStart is that padded
	// to the alignment.
	HeaderEnd int64
	DataStart int64
	// Size is the file's length.
	Size int64
	// Problems lists why the file would not open without Options.Partial.
	Problems []error

	short error // the file ends inside this or an earlier tensor
}

// Open reads and checks the header; tensor data stays where it is. name is the
// file's name in messages and in Tensor.Origin. Errors are of type ReadError
// around the package's sentinels or around an error of the blob.
func Open(ctx context.Context, name string, blob tensor.Blob, opt Options) (*File, error) {
	p := &parser{window: newWindow(ctx, blob, opt), name: name}
	f := &File{Name: name, Size: blob.Size(), Alignment: DefaultAlignment}
	nTensors, nPairs, err := f.fixed(p)
	if err != nil {
		return nil, err
	}
	if f.Meta, err = p.pairs(nPairs); err != nil {
		return nil, err
	}
	if err := f.alignment(p); err != nil {
		return nil, err
	}
	list, offs, problems, err := p.infos(nTensors, opt.Partial)
	if err != nil {
		return nil, err
	}
	f.Tensors, f.Problems = list, problems
	f.HeaderEnd = p.pos
	f.DataStart = padTo(f.HeaderEnd, f.Alignment)
	if nTensors > 0 && f.DataStart > f.Size {
		return nil, p.fail(f.HeaderEnd, "padding before the data", fmt.Errorf("%w: the data starts at %d, the file has %d bytes", ErrTruncated, f.DataStart, f.Size))
	}
	if err := f.place(p, offs); err != nil {
		return nil, err
	}
	if f.short = f.checkData(p); f.short != nil {
		if !opt.Partial {
			return nil, f.short
		}
		f.Problems = append(f.Problems, f.short)
	}
	f.attach(blob, opt)
	return f, nil
}

// fixed reads the first 24 bytes.
func (f *File) fixed(p *parser) (nTensors, nPairs int64, err error) {
	if p.size == 0 {
		return 0, 0, p.fail(0, "magic", fmt.Errorf("%w: the file is empty", ErrTruncated))
	}
	head, err := p.at(0, min(p.size, 1024))
	if err != nil {
		return 0, 0, p.fail(0, "magic", err)
	}
	if n := min(len(head), len(magic)); string(head[:n]) != magic[:n] {
		return 0, 0, p.fail(0, "magic", sniff(head, p.size))
	}
	if _, err = p.take(int64(len(magic)), "magic"); err != nil {
		return 0, 0, err
	}
	if f.Version, err = p.u32("version"); err != nil {
		return 0, 0, err
	}
	switch v := f.Version; {
	case v == 2 || v == 3:
	case v != 0 && v&0xffff == 0:
		return 0, 0, p.fail(4, "version", fmt.Errorf("%w: the version reads %#08x; big-endian files are not supported, convert the model again for little-endian machines", ErrByteOrder, v))
	case v == 1:
		return 0, 0, p.fail(4, "version", fmt.Errorf("%w 1: it has been given up by llama.cpp too; convert the model again", ErrVersion))
	default:
		return 0, 0, p.fail(4, "version", fmt.Errorf("%w %d: versions 2 and 3 are read", ErrVersion, v))
	}
	if nTensors, err = p.count("number of tensors", minInfoBytes); err != nil {
		return 0, 0, err
	}
	nPairs, err = p.count("number of key-value pairs", minPairBytes)
	return nTensors, nPairs, err
}

// alignment takes general.alignment from the metadata.
func (f *File) alignment(p *parser) error {
	v, ok := f.Meta.Get(KeyAlignment)
	if !ok {
		return nil
	}
	a, err := alignmentOf(v)
	if err != nil {
		return p.fail(p.alignAt, "value of key "+KeyAlignment, fmt.Errorf("%w: %w", ErrFormat, err))
	}
	f.Alignment = a
	return nil
}

func alignmentOf(v Value) (int64, error) {
	a, ok := v.Any().(uint32)
	if !ok {
		return 0, fmt.Errorf("%w: it is %s, u32 is wanted", ErrValue, v.Kind())
	}
	if a == 0 || a&(a-1) != 0 || a > maxAlignment {
		return 0, fmt.Errorf("%w: %d is not a power of two of at most %d", ErrValue, a, maxAlignment)
	}
	return int64(a), nil
}

// padTo rounds n up to a multiple of a, a power of two. n + a must not overflow.
func padTo(n, a int64) int64 { return (n + a - 1) &^ (a - 1) }

// place checks that the tensors follow each other without gaps, as ggml wants,
// and makes their offsets absolute. offs holds where each offset stands in the
// header. After a tensor of unknown size the next one is taken where it says.
func (f *File) place(p *parser, offs []int64) error {
	p.part = "tensor"
	next, known := int64(0), true
	for i := range f.Tensors {
		t := &f.Tensors[i]
		p.index, p.id = int64(i), t.Name
		if known && t.Offset != next {
			return p.failf(offs[i], "offset", "%d, but the tensors before it end at %d", t.Offset, next)
		}
		if !known && (t.Offset < next || t.Offset%f.Alignment != 0) {
			return p.failf(offs[i], "offset", "%d lies before %d or is not a multiple of %d", t.Offset, next, f.Alignment)
		}
		if t.Offset > math.MaxInt64-f.DataStart-f.Alignment-max(t.Bytes, 0) {
			return p.failf(offs[i], "offset", "%d plus the size %d overflows", t.Offset, t.Bytes)
		}
		known = t.Bytes >= 0
		next = t.Offset
		if known {
			next = padTo(t.Offset+t.Bytes, f.Alignment)
		}
		t.Offset += f.DataStart
	}
	return nil
}

// checkData finds the first tensor whose data the file does not hold. It comes
// last, since sizes mean something only when all offsets agree with them.
func (f *File) checkData(p *parser) error {
	p.part = "tensor"
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if end := t.Offset + max(t.Bytes, 0); end > f.Size {
			p.index, p.id = int64(i), t.Name
			return p.fail(t.Offset, "data", fmt.Errorf("%w: it ends at %d, the file at %d: %d bytes are missing of this tensor, which is the first that is not whole",
				ErrTruncated, end, f.Size, end-max(f.Size, t.Offset)))
		}
	}
	return nil
}

// attach gives every tensor of a usable type its source.
func (f *File) attach(blob tensor.Blob, opt Options) {
	for i := range f.Tensors {
		t := &f.Tensors[i]
		typ, ok := tensor.FromGGML(t.TypeID)
		if !ok {
			continue
		}
		x := &tensor.Tensor{Name: t.Name, Type: typ, Shape: shapeOf(t.Dims)}
		x.Src = &tensor.Section{Blob: blob, Offset: t.Offset, RowBytes: x.RowBytes(), Guard: guard(f.Name, t.Name)}
		x.Origin = []tensor.Extent{{Source: opt.Source, File: f.Name, Offset: t.Offset, Bytes: t.Bytes}}
		if !opt.Key.IsZero() {
			x.Key = tensor.Derive("gguf", fmt.Sprintf("%s %v %d %d", typ, x.Shape, t.Offset, t.Bytes), opt.Key)
		}
		t.Tensor = x
	}
}

// Find gives the description of a tensor, or nil.
func (f *File) Find(name string) *Info {
	for i := range f.Tensors {
		if f.Tensors[i].Name == name {
			return &f.Tensors[i]
		}
	}
	return nil
}

// All gives the tensors in file order, or the reason why one of them cannot be
// used.
func (f *File) All() ([]*tensor.Tensor, error) {
	if f.short != nil {
		return nil, f.short
	}
	out := make([]*tensor.Tensor, len(f.Tensors))
	for i := range f.Tensors {
		if err := f.Tensors[i].Usable(); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		out[i] = f.Tensors[i].Tensor
	}
	return out, nil
}

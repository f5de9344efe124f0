package repacked

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"quern/formats/internal/alien"
	"quern/internal/digest"
	"quern/tensor"
	"quern/tensor/repack"
)

// Options change how files are opened. The zero value is right for most.
type Options struct {
	// Key identifies the file's content. Tensor keys derive from it; when it
	// is zero the tensors have no keys.
	Key tensor.Key
	// Source is the recipe's name of the source, put into Tensor.Origin.
	Source string
}

// Entry is one tensor of a file.
type Entry struct {
	Placed
	// Packed reads the stored groups, as bytes: package repack says how.
	Packed *tensor.Tensor
}

// File is an opened cache: its header, and tensors that read from the blob.
type File struct {
	Name   string
	Layout *repack.Layout
	// GGUF and GGUFSize identify the file that the cache belongs to.
	GGUF      digest.Digest
	GGUFSize  int64
	Alignment int64
	Entries   []Entry
	Size      int64
}

// IsRepacked reports whether a file that starts with head is a repack cache.
func IsRepacked(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }

// Open reads and checks header and directory; tensor data stays where it is.
// name is the file's name in messages and in Tensor.Origin. Errors are of type
// ReadError around the package's sentinels or around an error of the blob.
func Open(ctx context.Context, name string, blob tensor.Blob, opt Options) (*File, error) {
	f := &File{Name: name, Size: blob.Size()}
	head := make([]byte, fixedHeader)
	if f.Size < fixedHeader {
		head = head[:max(f.Size, 0)]
	}
	if err := blob.ReadAt(ctx, head, 0); err != nil {
		return nil, f.fail(0, "header", err)
	}
	count, dir, err := f.readHeader(head)
	if err != nil {
		return nil, err
	}
	// The directory fits into the file, or readHeader would have failed.
	start := padTo(fixedHeader+dir, f.Alignment)
	b := make([]byte, start-fixedHeader)
	if err := blob.ReadAt(ctx, b, fixedHeader); err != nil {
		return nil, f.fail(fixedHeader, "directory", err)
	}
	if err := f.readDirectory(b, count, dir); err != nil {
		return nil, err
	}
	if err := f.place(start); err != nil {
		return nil, err
	}
	f.attach(blob, opt)
	return f, nil
}

func (f *File) fail(off int64, field string, err error) error {
	return &ReadError{File: f.Name, Offset: off, Field: field, Err: err}
}

func (f *File) failf(off int64, field, format string, args ...any) error {
	return f.fail(off, field, fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...))
}

func (f *File) readHeader(b []byte) (count, dir int64, err error) {
	if !IsRepacked(b) {
		if err := alien.Sniff(b, f.Size, ErrNotRepacked); err != nil {
			return 0, 0, f.fail(0, "magic", err)
		}
		return 0, 0, f.fail(0, "magic", fmt.Errorf("%w: it starts with %q", ErrNotRepacked, b[:min(len(b), 8)]))
	}
	if len(b) < fixedHeader {
		return 0, 0, f.fail(0, "header", fmt.Errorf("%w: %d bytes, the header has %d", ErrTruncated, len(b), fixedHeader))
	}
	if v := le.Uint32(b[8:]); v != version {
		return 0, 0, f.fail(8, "version", fmt.Errorf("%w %d: version %d is read", ErrVersion, v, version))
	}
	f.Alignment = int64(le.Uint32(b[12:]))
	if f.Alignment < 64 || f.Alignment > 65536 || f.Alignment&(f.Alignment-1) != 0 {
		return 0, 0, f.failf(12, "alignment", "%d is not a power of two from 64 to 65536", f.Alignment)
	}
	id, rest, _ := bytes.Cut(b[16:16+layoutBytes], []byte{0})
	if f.Layout, err = repack.Parse(string(id)); err != nil {
		return 0, 0, f.failf(16, "layout", "%w", err)
	}
	if f.Layout.String() != string(id) || len(bytes.Trim(rest, "\x00")) > 0 {
		return 0, 0, f.failf(16, "layout", "%q is not the name %s with zeros behind it", b[16:16+layoutBytes], f.Layout)
	}
	copy(f.GGUF[:], b[DigestAt:])
	if f.GGUF.IsZero() {
		return 0, 0, f.failf(DigestAt, "digest", "it is zero: the cache belongs to no file")
	}
	source, size := le.Uint64(b[72:]), le.Uint64(b[80:])
	if source == 0 || source > math.MaxInt64 {
		return 0, 0, f.failf(72, "size of the GGUF file", "it is %d", source)
	}
	f.GGUFSize = int64(source)
	if size > math.MaxInt64 || int64(size) > f.Size {
		return 0, 0, f.fail(80, "size", fmt.Errorf("%w: the header says %d bytes, the file has %d", ErrTruncated, size, f.Size))
	}
	if int64(size) < f.Size {
		return 0, 0, f.failf(80, "size", "%d bytes, the file has %d", size, f.Size)
	}
	count, dir = int64(le.Uint32(b[88:])), int64(le.Uint32(b[92:]))
	switch {
	case count == 0 || count > maxTensors:
		return 0, 0, f.failf(88, "number of tensors", "%d, 1 to %d are allowed", count, maxTensors)
	case dir < count*minEntry || dir > count*maxEntry:
		return 0, 0, f.failf(92, "bytes of the directory", "%d, which %d tensors cannot have", dir, count)
	case padTo(fixedHeader+dir, f.Alignment) > f.Size:
		return 0, 0, f.fail(92, "bytes of the directory", fmt.Errorf("%w: the directory of %d bytes ends behind the file of %d", ErrTruncated, dir, f.Size))
	}
	return count, dir, nil
}

// readDirectory takes count entries out of the first dir bytes of b; what is
// behind them is zero.
func (f *File) readDirectory(b []byte, count, dir int64) error {
	at := int64(0)
	seen := make(map[string]struct{}, count)
	short := func() error {
		return f.failf(fixedHeader+at, "directory", "an entry reaches past the %d bytes of the directory", dir)
	}
	for range count {
		if dir-at < minEntry {
			return short()
		}
		n, dims := int64(le.Uint16(b[at:])), int64(le.Uint16(b[at+2:]))
		if dims != 2 && dims != 3 {
			return f.failf(fixedHeader+at+2, "number of dimensions", "it is %d, not 2 or 3", dims)
		}
		if n > MaxNameBytes || dir-at < 4+n+8*dims+16 {
			return short()
		}
		e := Entry{}
		e.Name = string(b[at+4 : at+4+n])
		field := fmt.Sprintf("tensor %q", e.Name)
		if err := checkName(e.Name); err != nil {
			return f.failf(fixedHeader+at, field, "name: %w", err)
		}
		if _, dup := seen[e.Name]; dup {
			return f.failf(fixedHeader+at, field, "there are two of this name")
		}
		seen[e.Name] = struct{}{}
		p := at + 4 + n
		e.Shape = make(tensor.Shape, dims)
		for i := range dims {
			v := le.Uint64(b[p+8*i:])
			if v == 0 || v > math.MaxInt64 {
				return f.failf(fixedHeader+p+8*i, field, "a dimension of %d", v)
			}
			e.Shape[dims-1-i] = int64(v)
		}
		p += 8 * dims
		offset, size := le.Uint64(b[p:]), le.Uint64(b[p+8:])
		if offset > math.MaxInt64 || size > math.MaxInt64 {
			return f.failf(fixedHeader+p, field, "offset %d, %d bytes", offset, size)
		}
		e.Offset, e.Bytes = int64(offset), int64(size)
		if err := f.Layout.Check(f.Layout.Type(), e.Shape); err != nil {
			return f.failf(fixedHeader+at, field, "%w", err)
		}
		f.Entries = append(f.Entries, e)
		at = p + 16
	}
	if at != dir {
		return f.failf(fixedHeader+at, "directory", "%d bytes behind the last entry", dir-at)
	}
	for i, c := range b[dir:] {
		if c != 0 {
			return f.failf(fixedHeader+dir+int64(i), "padding", "byte %#02x where zeros are wanted", c)
		}
	}
	return nil
}

// place checks that the tensors tile the file from start on.
func (f *File) place(start int64) error {
	at := start
	for _, e := range f.Entries {
		field := fmt.Sprintf("tensor %q", e.Name)
		want, err := f.Layout.Bytes(e.Shape)
		if err != nil {
			return f.failf(fixedHeader, field, "%w", err)
		}
		switch {
		case e.Offset != at:
			return f.failf(fixedHeader, field, "offset %d, where %d is wanted", e.Offset, at)
		case e.Bytes != want:
			return f.failf(fixedHeader, field, "%d bytes, %s %v in layout %s has %d", e.Bytes, f.Layout.Type(), e.Shape, f.Layout, want)
		case want > f.Size-at:
			return f.fail(fixedHeader, field, fmt.Errorf("%w: it ends behind the file of %d bytes", ErrTruncated, f.Size))
		}
		at = padTo(at+want, f.Alignment)
		if at > f.Size {
			return f.fail(fixedHeader, field, fmt.Errorf("%w: its padding ends behind the file of %d bytes", ErrTruncated, f.Size))
		}
	}
	if at != f.Size {
		return f.failf(80, "size", "%d bytes, the tensors end at %d", f.Size, at)
	}
	return nil
}

func (f *File) attach(blob tensor.Blob, opt Options) {
	for i := range f.Entries {
		e := &f.Entries[i]
		groups := e.Shape.Rows() / f.Layout.GroupRows()
		t := &tensor.Tensor{Name: e.Name, Type: tensor.U8, Shape: tensor.Shape{groups, e.Bytes / groups},
			Src:    &tensor.Section{Blob: blob, Offset: e.Offset, RowBytes: e.Bytes / groups},
			Origin: []tensor.Extent{{Source: opt.Source, File: f.Name, Offset: e.Offset, Bytes: e.Bytes}}}
		if !opt.Key.IsZero() {
			t.Key = tensor.Derive("repacked.v1", fmt.Sprintf("%q offset %d shape %v", e.Name, e.Offset, t.Shape), opt.Key)
		}
		e.Packed = t
	}
}

// Plain gives an entry's tensor as the GGUF file has it, rows in their own order.
func (f *File) Plain(e *Entry) (*tensor.Tensor, error) {
	return repack.Deinterleave(e.Packed, f.Layout, e.Shape)
}

// Of fails with ErrOther unless the cache was made of a GGUF file of this digest.
func (f *File) Of(gguf digest.Digest) error {
	if f.GGUF != gguf {
		return fmt.Errorf("%s: %w: it was made of the GGUF file with SHA-256 %s, not %s; build it again", f.Name, ErrOther, f.GGUF.Hex(), gguf.Hex())
	}
	return nil
}

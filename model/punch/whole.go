// Package punch gives the bytes of a GGUF file that repack caches hold too back to
// the file system, and brings them back.
//
// A device that computes on a cache does not read the file's own matrices, which
// then take their place twice. Punching leaves the header, all that no cache
// has, and at the place of each tensor that is gone a mark (package gguf has its
// form): the digest of the file as it was, and the layout of the cache. The file
// keeps its length.
//
//	| header | tensor A | mark, hole ........ | tensor C | mark, hole ... |
//
// Everything rests on one number, the SHA-256 of the whole file, which the
// caches have in their headers. Whole reads a file with the places that are gone
// filled from caches by their inverse; only where its digest is that number is
// anything taken away, or written back.
package punch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"quern/formats/gguf"
	"quern/formats/repacked"
	"quern/internal/digest"
	"quern/tensor"
)

var (
	// ErrCache marks caches that do not fit the file or each other.
	ErrCache = errors.New("the repack cache does not fit the file")
	// ErrLossy marks a cache that does not give the file's bytes back.
	ErrLossy = errors.New("the repack cache has other weights than the file")
)

// File is a GGUF file with the caches that belong to it.
type File struct {
	Name   string
	GGUF   *gguf.File
	Caches []*repacked.File

	blob tensor.Blob
	// marks of the file's tensors that are gone. One that was being written or
	// taken off when the machine stopped says nothing of value.
	marks []gguf.Mark
	gone  []bool
	// plain is each tensor out of the first cache that has it, nil where none does;
	// cache is that cache.
	plain []*tensor.Tensor
	cache []*repacked.File
}

// Open opens a GGUF file, whole or punched. Caches come later.
func Open(ctx context.Context, name string, blob tensor.Blob) (*File, error) {
	g, err := gguf.Open(ctx, name, blob, gguf.Options{})
	if err != nil {
		return nil, err
	}
	f := &File{Name: name, GGUF: g, blob: blob}
	if f.marks, f.gone, err = g.Marks(ctx, blob); err != nil {
		return nil, err
	}
	f.plain, f.cache = make([]*tensor.Tensor, len(g.Tensors)), make([]*repacked.File, len(g.Tensors))
	return f, nil
}

// Gone counts the tensors that were punched out, and their bytes.
func (f *File) Gone() (tensors int, bytes int64) {
	for i, gone := range f.gone {
		if gone {
			tensors++
			bytes += f.GGUF.Tensors[i].Bytes
		}
	}
	return tensors, bytes
}

// Add takes a cache to the file. Every tensor of it must be one of the file's. Its
// digest is compared by Verify.
func (f *File) Add(c *repacked.File) error {
	for _, o := range f.Caches {
		if o.GGUF != c.GGUF {
			return fmt.Errorf("%w: %s and %s are of two files", ErrCache, o.Name, c.Name)
		}
	}
	if c.GGUFSize != f.GGUF.Size {
		return fmt.Errorf("%w: %s was made of a file of %d bytes, %s has %d", ErrCache, c.Name, c.GGUFSize, f.Name, f.GGUF.Size)
	}
	byName := make(map[string]int, len(f.GGUF.Tensors))
	for i := range f.GGUF.Tensors {
		byName[f.GGUF.Tensors[i].Name] = i
	}
	for i := range c.Entries {
		e := &c.Entries[i]
		at, ok := byName[e.Name]
		if !ok {
			return fmt.Errorf("%w: %s has tensor %s, %s does not", ErrCache, c.Name, e.Name, f.Name)
		}
		t := &f.GGUF.Tensors[at]
		if err := t.Usable(); err != nil {
			return fmt.Errorf("%s: tensor %s: %w", f.Name, t.Name, err)
		}
		if t.Tensor.Type != c.Layout.Type() || !t.Tensor.Shape.Equal(e.Shape) {
			return fmt.Errorf("%w: tensor %s is %s %v in %s and %s %v in %s", ErrCache, e.Name, t.Tensor.Type, t.Tensor.Shape, f.Name, c.Layout.Type(), e.Shape, c.Name)
		}
		if f.plain[at] != nil {
			continue
		}
		p, err := c.Plain(e)
		if err != nil {
			return err
		}
		f.plain[at], f.cache[at] = p, c
	}
	f.Caches = append(f.Caches, c)
	return nil
}

// Verify makes sure that the file, with what is gone filled from the caches, is
// the very file that the caches were made of.
func (f *File) Verify(ctx context.Context) error {
	if len(f.Caches) == 0 {
		return fmt.Errorf("%w: no cache of %s is given", ErrCache, f.Name)
	}
	whole, err := f.Whole()
	if err != nil {
		return err
	}
	got, err := digestOf(ctx, whole)
	if err != nil {
		return err
	}
	for _, c := range f.Caches {
		if err := c.Of(got); err != nil {
			if n, _ := f.Gone(); n > 0 {
				return fmt.Errorf("%s with %d tensors filled from caches: %w", f.Name, n, err)
			}
			return err
		}
	}
	return nil
}

// digestOf is the SHA-256 of all bytes.
func digestOf(ctx context.Context, b tensor.Blob) (digest.Digest, error) {
	sum, n, err := digest.OfReader(io.NewSectionReader(tensor.ContextReaderAt(ctx, b), 0, b.Size()))
	if err == nil && n != b.Size() {
		err = io.ErrUnexpectedEOF
	}
	return sum, err
}

// Model gives the file's tensors in order, those that a cache has out of it. Their
// rows are plain; who computes on groups finds them behind the source.
func (f *File) Model() ([]*tensor.Tensor, error) {
	out := make([]*tensor.Tensor, len(f.GGUF.Tensors))
	for i := range f.GGUF.Tensors {
		t := &f.GGUF.Tensors[i]
		if err := t.Usable(); err != nil {
			return nil, fmt.Errorf("%s: tensor %s: %w", f.Name, t.Name, err)
		}
		if out[i] = t.Tensor; f.plain[i] != nil {
			out[i] = f.plain[i]
		}
	}
	return out, nil
}

// Whole reads the file as it was before anything was punched out of it.
func (f *File) Whole() (tensor.Blob, error) {
	w := &whole{f: f}
	for i, m := range f.marks {
		if !f.gone[i] {
			continue
		}
		t := &f.GGUF.Tensors[i]
		if f.plain[i] == nil {
			return nil, fmt.Errorf("%s: tensor %s: %w, and no cache given has it; it is in one in layout %q", f.Name, t.Name, gguf.ErrPunched, m.Layout)
		}
		w.gone = append(w.gone, i)
	}
	return w, nil
}

// whole fills places that are gone. They are in the order of the file.
type whole struct {
	f    *File
	gone []int
}

var _ tensor.Blob = (*whole)(nil)

func (w *whole) Size() int64 { return w.f.blob.Size() }

func (w *whole) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := w.f.blob.ReadAt(ctx, p, off); err != nil {
		return err
	}
	for _, i := range w.gone {
		t := &w.f.GGUF.Tensors[i]
		from, to := max(off, t.Offset), min(off+int64(len(p)), t.Offset+t.Bytes)
		if from >= to {
			continue
		}
		if err := readBytes(ctx, w.f.plain[i], p[from-off:to-off], from-t.Offset); err != nil {
			return err
		}
	}
	return nil
}

// readBytes reads bytes of a tensor that may begin and end inside rows.
func readBytes(ctx context.Context, t *tensor.Tensor, p []byte, off int64) error {
	row := t.RowBytes()
	first, end := off/row, (off+int64(len(p))+row-1)/row
	buf := make([]byte, (end-first)*row)
	if err := t.ReadRows(ctx, buf, first, end-first); err != nil {
		return fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	copy(p, buf[off-first*row:])
	return nil
}

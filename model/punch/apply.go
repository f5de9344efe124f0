package punch

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"quern/formats/gguf"
	"quern/internal/holes"
)

// Target is the file that is changed in place; package internal/holes has the real
// one.
type Target interface {
	WriteAt(p []byte, off int64) (int, error)
	// Punch gives n bytes at off back, which read as zeros then. Where that cannot
	// be done it fails with holes.ErrUnsupported, and nothing has changed.
	Punch(off, n int64) error
	Sync() error
}

// Block is the size of a file system's blocks, mostly. A tensor that covers none is
// left where it is.
const Block = 4096

// commitBytes is what a mark is known by: its first bytes. At a multiple of their
// number they lie in one sector of the disk, which is written whole or not at
// all.
const commitBytes = 16

// Piece is a tensor that is taken away or brought back.
type Piece struct {
	Tensor string
	Layout string
	Offset int64
	Bytes  int64
	// Gone says that it has been taken away before.
	Gone bool

	index int
}

// Plan lists what Apply would take away: the tensors that a cache has and that cover
// a block of the file system. Those that are gone are among them, since a call
// that was broken off may have left their bytes. A tensor that does not begin at a
// multiple of 16 bytes, as only files of an odd alignment have them, stays.
func (f *File) Plan() []Piece {
	var out []Piece
	for i := range f.GGUF.Tensors {
		t := &f.GGUF.Tensors[i]
		start := (t.Offset + gguf.MarkBytes + Block - 1) / Block * Block
		if f.plain[i] == nil || t.Offset%commitBytes != 0 || start+Block > t.Offset+t.Bytes {
			continue
		}
		out = append(out, Piece{t.Name, f.cache[i].Layout.String(), t.Offset, t.Bytes, f.gone[i], i})
	}
	return out
}

// Check makes sure that each piece comes out of its cache as it is in the file, to
// the byte. A layout that rounds is refused here. Verify must have passed.
func (f *File) Check(ctx context.Context, pieces []Piece) error {
	const most = 1 << 20
	buf := make([]byte, 2*most)
	for _, p := range pieces {
		if p.Gone {
			continue // Verify has read the cache in its place
		}
		for at := int64(0); at < p.Bytes; at += most {
			n := min(p.Bytes-at, most)
			a, b := buf[:n], buf[most:most+n]
			if err := f.blob.ReadAt(ctx, a, p.Offset+at); err != nil {
				return err
			}
			if err := readBytes(ctx, f.plain[p.index], b, at); err != nil {
				return err
			}
			if !bytes.Equal(a, b) {
				i := 0
				for a[i] == b[i] {
					i++
				}
				return fmt.Errorf("%w: %s: tensor %s differs at byte %d, layout %s; nothing was changed", ErrLossy, f.cache[p.index].Name, p.Tensor, at+int64(i), p.Layout)
			}
		}
	}
	return nil
}

// Apply takes the pieces away, after Verify and Check. The caches must be on the
// disk for good. The mark of a tensor is on the disk before its bytes go, so
// whatever happens between, a tensor is whole or marked, and what is marked
// is in a cache. zero writes zeros where there can be no holes: it frees nothing,
// but copies and compressors find nothing either.
func (f *File) Apply(ctx context.Context, to Target, pieces []Piece, zero bool) error {
	for _, p := range pieces {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		head := make([]byte, gguf.MarkBytes)
		if err := f.blob.ReadAt(ctx, head, p.Offset); err != nil {
			return err
		}
		mark := gguf.Mark{Source: f.Caches[0].GGUF, Layout: p.Layout}
		b := mark.Bytes()
		if err := write(to, p.Offset, b[:commitBytes], b[commitBytes:]); err != nil {
			return fmt.Errorf("%s: tensor %s: %w", f.Name, p.Tensor, err)
		}
		off, n := p.Offset+gguf.MarkBytes, p.Bytes-gguf.MarkBytes
		var err error
		if zero {
			err = zeros(ctx, to, off, n)
		} else {
			err = to.Punch(off, n)
		}
		if err != nil {
			err = fmt.Errorf("%s: tensor %s: %w", f.Name, p.Tensor, err)
			if errors.Is(err, holes.ErrUnsupported) && !p.Gone {
				// The tensor is as it was.
				err = errors.Join(err, unmark(to, p.Offset, head))
			}
			return err
		}
		f.marks[p.index], f.gone[p.index] = mark, true
	}
	return to.Sync()
}

// unmark writes over a mark, what it is known by last.
func unmark(to Target, off int64, head []byte) error {
	if err := write(to, off+commitBytes, head[commitBytes:]); err != nil {
		return err
	}
	return write(to, off, head[:commitBytes])
}

// write puts runs of bytes on the disk, each for good before the next.
func write(to Target, off int64, runs ...[]byte) error {
	for _, b := range runs {
		if _, err := to.WriteAt(b, off); err != nil {
			return err
		}
		if err := to.Sync(); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

func zeros(ctx context.Context, to Target, off, n int64) error {
	buf := make([]byte, min(n, 1<<20))
	for end := off + n; off < end; off += int64(len(buf)) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if _, err := to.WriteAt(buf[:min(end-off, int64(len(buf)))], off); err != nil {
			return err
		}
	}
	return nil
}

// Missing lists the tensors that are gone.
func (f *File) Missing() []Piece {
	var out []Piece
	for i, m := range f.marks {
		if t := &f.GGUF.Tensors[i]; f.gone[i] {
			out = append(out, Piece{t.Name, m.Layout, t.Offset, t.Bytes, true, i})
		}
	}
	return out
}

// Restore brings everything that is gone back, after Verify. A tensor's mark is
// the last of it to be written over, so one that was not finished is still marked.
func (f *File) Restore(ctx context.Context, to Target) error {
	const most = 1 << 20
	buf := make([]byte, most)
	for _, p := range f.Missing() {
		t := f.plain[p.index]
		for at := int64(gguf.MarkBytes); at < p.Bytes; at += most {
			b := buf[:min(p.Bytes-at, most)]
			if err := readBytes(ctx, t, b, at); err != nil {
				return err
			}
			if _, err := to.WriteAt(b, p.Offset+at); err != nil {
				return fmt.Errorf("%s: tensor %s: %w", f.Name, p.Tensor, err)
			}
		}
		if err := to.Sync(); err != nil {
			return err
		}
		head := make([]byte, gguf.MarkBytes)
		if err := readBytes(ctx, t, head, 0); err != nil {
			return err
		}
		if err := unmark(to, p.Offset, head); err != nil {
			return fmt.Errorf("%s: tensor %s: %w", f.Name, p.Tensor, err)
		}
		f.marks[p.index], f.gone[p.index] = gguf.Mark{}, false
	}
	return nil
}

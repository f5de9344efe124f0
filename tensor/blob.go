package tensor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Blob is random access to the bytes of one source file: a local file, a
// range-read remote file, a store blob. Reads are whole: ReadAt fills p or
// fails. It is safe for use by several goroutines.
type Blob interface {
	ReadAt(ctx context.Context, p []byte, off int64) error
	Size() int64
}

// FileBlob reads a local file.
type FileBlob struct {
	f    io.ReaderAt
	c    io.Closer
	name string
	size int64
}

// OpenFile opens a local file as a Blob. Close it when the model is done.
func OpenFile(path string) (*FileBlob, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if !st.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	return &FileBlob{f: f, c: f, name: path, size: st.Size()}, nil
}

// BytesBlob serves bytes held in memory.
func BytesBlob(name string, b []byte) *FileBlob {
	return &FileBlob{f: bytes.NewReader(b), name: name, size: int64(len(b))}
}

// ReaderAtBlob serves any io.ReaderAt of a known size.
func ReaderAtBlob(name string, r io.ReaderAt, size int64) *FileBlob {
	return &FileBlob{f: r, name: name, size: size}
}

// Size is the file's length when it was opened.
func (b *FileBlob) Size() int64 { return b.size }

// ReadAt fills p from off.
func (b *FileBlob) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if off < 0 || off > b.size || int64(len(p)) > b.size-off {
		return fmt.Errorf("%s: %w: %d bytes at offset %d of %d", b.name, io.ErrUnexpectedEOF, len(p), off, b.size)
	}
	n, err := b.f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w: got %d of %d bytes at offset %d", b.name, err, n, len(p), off)
}

// Close releases the file.
func (b *FileBlob) Close() error {
	if b.c == nil {
		return nil
	}
	return b.c.Close()
}

// Section is the Source of a tensor stored contiguously in a Blob, row after
// row without gaps.
type Section struct {
	Blob     Blob
	Offset   int64
	RowBytes int64
	// Guard, if there is one, sees the bytes of every read that begins with the
	// first row, and of rows used in place. Its error is the read's.
	Guard func(rows []byte) error
}

// ReadRows reads the rows in one call to the blob.
func (s *Section) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	if err := s.Blob.ReadAt(ctx, dst, s.Offset+first*s.RowBytes); err != nil {
		return err
	}
	if s.Guard != nil && first == 0 {
		return s.Guard(dst)
	}
	return nil
}

// SourceFunc lets a function be a Source.
type SourceFunc func(ctx context.Context, dst []byte, first, n int64) error

// ReadRows calls f.
func (f SourceFunc) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	return f(ctx, dst, first, n)
}

// ContextReaderAt adapts a Blob to io.ReaderAt for parsers that read headers.
func ContextReaderAt(ctx context.Context, b Blob) io.ReaderAt { return ctxReaderAt{ctx, b} }

type ctxReaderAt struct {
	ctx context.Context
	b   Blob
}

func (r ctxReaderAt) ReadAt(p []byte, off int64) (int, error) {
	size := r.b.Size()
	if off < 0 || off >= size {
		return 0, io.EOF
	}
	short := int64(len(p)) > size-off
	if short {
		p = p[:size-off]
	}
	if err := r.b.ReadAt(r.ctx, p, off); err != nil {
		return 0, err
	}
	if short {
		return len(p), io.EOF
	}
	return len(p), nil
}

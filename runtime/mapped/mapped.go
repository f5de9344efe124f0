// Package mapped opens weight files so that their bytes are used in place: the
// system reads pages as they are touched and may drop them again.
package mapped

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	mmap "github.com/edsrzf/mmap-go"

	"quern/tensor"
)

// File is a local file, mapped into memory where the system can. It is a
// tensor.Blob. The file must not be cut while it is open: touching a page that
// is gone ends the process.
type File struct {
	*tensor.FileBlob
	data mmap.MMap
}

var _ tensor.Blob = (*File)(nil)

// Open maps a file. One that cannot be mapped, as one too large for a 32-bit
// machine, is read instead: Slice gives nil.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	size := st.Size()
	if size > 0 && size <= math.MaxInt {
		if data, err := mmap.Map(f, mmap.RDONLY, 0); err == nil {
			// The mapping outlives the descriptor.
			return &File{tensor.ReaderAtBlob(path, bytesAt(data), size), data}, f.Close()
		}
	}
	b, err := tensor.OpenFile(path)
	return &File{b, nil}, errors.Join(err, f.Close())
}

// Slice gives n bytes at off without copying, or nil when the file is not
// mapped or does not reach so far. They must not be written to, nor used after
// Close.
func (f *File) Slice(off, n int64) []byte {
	if off < 0 || n < 0 || off > int64(len(f.data)) || n > int64(len(f.data))-off {
		return nil
	}
	return f.data[off : off+n : off+n]
}

// ReadAt fills p from off.
func (f *File) ReadAt(ctx context.Context, p []byte, off int64) error {
	return f.FileBlob.ReadAt(ctx, p, off)
}

// Close unmaps and closes the file.
func (f *File) Close() error {
	if f.data == nil {
		return f.FileBlob.Close()
	}
	err := f.data.Unmap()
	f.data = nil
	return err
}

type bytesAt []byte

func (b bytesAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Package holes changes files in place: it gives bytes inside a file back to the
// file system, and writes others over. The file keeps its length, and what was
// given back reads as zeros.
//
// All other writing goes through package atomicfile, which never touches a file
// that is there. This package is for files that are too large to be written
// again.
package holes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"quern/internal/atomicfile"
)

// ErrUnsupported marks a file system, or an operating system, without holes.
var ErrUnsupported = errors.New("no holes in files here")

// ErrLinked marks a file that has other names: changing it would change what is
// under these.
var ErrLinked = errors.New("the file has other names")

// File is a file open for changes in place.
type File struct{ f *os.File }

// Open opens a regular file that has no other name.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err == nil {
		if n := links(st); n > 1 {
			err = fmt.Errorf("%s: %w, %d in all, as files have that are linked out of a store; copy it first", path, ErrLinked, n)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{f}, nil
}

// WriteAt writes over what is there.
func (f *File) WriteAt(p []byte, off int64) (int, error) { return f.f.WriteAt(p, off) }

// Punch gives n bytes at off back. Blocks of the file system that lie wholly
// inside are free afterwards; all n bytes read as zeros. It fails with
// ErrUnsupported before anything changes where that cannot be done.
func (f *File) Punch(off, n int64) error {
	if err := punch(f.f, off, n); err != nil {
		return fmt.Errorf("%s: offset %d: %w", f.f.Name(), off, err)
	}
	return nil
}

// Sync waits until everything is on the disk.
func (f *File) Sync() error { return f.f.Sync() }

// Allocated is the number of bytes that the file takes on the disk, or its length
// where the system does not say.
func (f *File) Allocated() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return allocated(st), nil
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// SyncPath waits until a file and its name are on the disk.
func SyncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), atomicfile.SyncDir(filepath.Dir(path)))
}

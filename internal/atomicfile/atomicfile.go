// Package atomicfile is the one place that puts bytes under a final file name.
//
// A file is written to a temporary name in the same folder, checked for
// length, synced, closed, renamed and its folder synced. Until Commit returns
// nil the old file, if any, is untouched; after a failure or a crash at most a
// temporary file is left, which the next Create in that folder with the same
// name does not mistake for anything.
package atomicfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// TempMark is part of every temporary name, so that cleaners and readers can
// tell unfinished files: ".NAME.XXXXXXXX.quern-tmp".
const TempMark = ".quern-tmp"

// IsTemp reports whether a base name is that of an unfinished file.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, TempMark)
}

// ErrLength marks a file whose written length is not the promised one.
var ErrLength = errors.New("written length differs from the planned one")

// Options change how a file is finished. The zero value is right for most.
type Options struct {
	// Mode is the permission of the final file; 0 means 0644.
	Mode fs.FileMode
	// Size is the exact length promised, checked at Commit; negative or
	// zero means unknown.
	Size int64
	// NoReplace makes Commit fail with fs.ErrExist when the name is taken.
	NoReplace bool
}

// File is an unfinished file. Commit or Abort must be called once; Abort after
// Commit does nothing, so it can be deferred.
type File struct {
	f    *os.File
	path string
	opt  Options

	mu   sync.Mutex
	done bool
	err  error
}

// Create starts a file that Commit will put at path. The folder must exist.
func Create(path string, opt Options) (*File, error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	if base == "" || base == "." || base == ".." {
		return nil, fmt.Errorf("write %s: not a file name", path)
	}
	if opt.Mode == 0 {
		opt.Mode = 0o644
	}
	for range 16 {
		var r [4]byte
		if _, err := rand.Read(r[:]); err != nil {
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
		name := filepath.Join(dir, "."+base+"."+hex.EncodeToString(r[:])+TempMark)
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, opt.Mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
		return &File{f: f, path: path, opt: opt}, nil
	}
	return nil, fmt.Errorf("write %s: no free temporary name", path)
}

// Write appends bytes. The first error sticks and makes Commit fail.
func (w *File) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if err != nil {
		w.stick(err)
	}
	return n, err
}

// WriteAt writes at an offset; it may be mixed with Write only by callers that
// know what they do.
func (w *File) WriteAt(p []byte, off int64) (int, error) {
	n, err := w.f.WriteAt(p, off)
	if err != nil {
		w.stick(err)
	}
	return n, err
}

// ReadAt reads back what was written.
func (w *File) ReadAt(p []byte, off int64) (int, error) { return w.f.ReadAt(p, off) }

// Name is the temporary file's path.
func (w *File) Name() string { return w.f.Name() }

func (w *File) stick(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
}

// Commit finishes the file under its final name.
func (w *File) Commit() error {
	w.mu.Lock()
	if w.done {
		w.mu.Unlock()
		return fmt.Errorf("write %s: committed or aborted before", w.path)
	}
	w.done = true
	err := w.err
	w.mu.Unlock()
	if err != nil {
		return w.fail(err)
	}
	if w.opt.Size > 0 {
		st, err := w.f.Stat()
		if err != nil {
			return w.fail(err)
		}
		if st.Size() != w.opt.Size {
			return w.fail(fmt.Errorf("%w: %d bytes, planned %d", ErrLength, st.Size(), w.opt.Size))
		}
	}
	if err := w.f.Sync(); err != nil {
		return w.fail(err)
	}
	if err := w.f.Close(); err != nil {
		os.Remove(w.f.Name())
		return fmt.Errorf("write %s: %w", w.path, err)
	}
	if err := w.rename(); err != nil {
		os.Remove(w.f.Name())
		return fmt.Errorf("write %s: %w", w.path, err)
	}
	return SyncDir(filepath.Dir(w.path))
}

func (w *File) rename() error {
	if !w.opt.NoReplace {
		return os.Rename(w.f.Name(), w.path)
	}
	// A hard link fails when the name exists, which Rename would not. Where
	// links are not to be had the check is made first: a lost race then
	// replaces a file of the same name, as Rename does.
	err := os.Link(w.f.Name(), w.path)
	switch {
	case err == nil:
		return os.Remove(w.f.Name())
	case errors.Is(err, fs.ErrExist):
		return err
	}
	if _, serr := os.Lstat(w.path); serr == nil {
		return fs.ErrExist
	}
	return os.Rename(w.f.Name(), w.path)
}

func (w *File) fail(err error) error {
	w.f.Close()
	os.Remove(w.f.Name())
	return fmt.Errorf("write %s: %w", w.path, err)
}

// Abort drops the file. It is a no-op after Commit or Abort.
func (w *File) Abort() {
	w.mu.Lock()
	done := w.done
	w.done = true
	w.mu.Unlock()
	if done {
		return
	}
	w.f.Close()
	os.Remove(w.f.Name())
}

// WriteFile writes data under path in one go.
func WriteFile(path string, data []byte, opt Options) error {
	if opt.Size == 0 {
		opt.Size = int64(len(data))
	}
	f, err := Create(path, opt)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Commit()
}

// Copy writes everything from r under path, expecting exactly size bytes when
// size is not negative.
func Copy(path string, r io.Reader, size int64, opt Options) error {
	if size > 0 {
		opt.Size = size
	}
	f, err := Create(path, opt)
	if err != nil {
		return err
	}
	defer f.Abort()
	n, err := io.Copy(f, r)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if size >= 0 && n != size {
		return fmt.Errorf("write %s: %w: %d bytes, planned %d", path, ErrLength, n, size)
	}
	return f.Commit()
}

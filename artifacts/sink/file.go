package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"quern/internal/atomicfile"
	"quern/internal/digest"
)

// fileSink writes a file of this machine through internal/atomicfile: until it has
// its name nothing of it can be seen, and nothing stays after a break.
type fileSink struct {
	path string
	opt  Options
	f    *atomicfile.File
	n    int64
}

func newFile(t Target, opt Options) *fileSink { return &fileSink{path: t.Path, opt: opt} }

func (s *fileSink) String() string { return s.path }
func (s *fileSink) Name() string   { return filepath.Base(s.path) }
func (s *fileSink) Temp() string   { return s.Name() + TempSuffix }
func (s *fileSink) Keeps() bool    { return false }

func (s *fileSink) Close() error {
	if s.f != nil {
		s.f.Abort()
		s.f = nil
	}
	return nil
}

func (s *fileSink) Stat(_ context.Context, name string) (int64, error) {
	if name == s.Temp() {
		if s.f == nil {
			return 0, ErrNotExist
		}
		return s.n, nil
	}
	st, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, ErrNotExist
	case err != nil:
		return 0, err
	case st.IsDir():
		return 0, ErrFolder
	case !st.Mode().IsRegular():
		return 0, fmt.Errorf("%w: it is no regular file", ErrRefused)
	}
	return st.Size(), nil
}

func (s *fileSink) Free(context.Context) (int64, error) {
	if s.f != nil {
		return 0, errors.ErrUnsupported // its space is reserved
	}
	dir := filepath.Dir(s.path)
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	n, err := atomicfile.FreeBytes(dir)
	if err != nil {
		return 0, errors.ErrUnsupported
	}
	return n, nil
}

func (s *fileSink) Open(_ context.Context, _ string, off, size int64) (io.WriteCloser, error) {
	if off > 0 && s.f != nil && s.n == off {
		return &fileWriter{s}, nil
	}
	if off > 0 {
		return nil, fmt.Errorf("nothing of %s is there to append to", s.path)
	}
	s.Close()
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return nil, err
	}
	f, err := atomicfile.Create(s.path, atomicfile.Options{Size: size, Before: s.opt.Before})
	if err != nil {
		return nil, s.fault(err)
	}
	s.f, s.n = f, 0
	return &fileWriter{s}, nil
}

func (s *fileSink) fault(err error) error {
	switch {
	case atomicfile.IsDiskFull(err):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case atomicfile.IsReadOnly(err):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

type fileWriter struct{ s *fileSink }

func (w *fileWriter) Write(p []byte) (int, error) {
	n, err := w.s.f.Write(p)
	w.s.n += int64(n)
	return n, w.s.fault(err)
}

func (w *fileWriter) Close() error { return nil }

func (s *fileSink) Sum(ctx context.Context, name string, n int64) (digest.Digest, error) {
	var r io.ReaderAt
	if name == s.Temp() {
		if s.f == nil {
			return digest.Digest{}, ErrNotExist
		}
		r = s.f
	} else {
		f, err := os.Open(s.path)
		if errors.Is(err, fs.ErrNotExist) {
			return digest.Digest{}, ErrNotExist
		}
		if err != nil {
			return digest.Digest{}, err
		}
		defer f.Close()
		r = f
	}
	return sumOf(ctx, r, 0, n)
}

// sumOf hashes n bytes from an offset.
func sumOf(ctx context.Context, r io.ReaderAt, off, n int64) (digest.Digest, error) {
	h := digest.New()
	buf := make([]byte, 1<<20)
	for n > 0 {
		if cause := context.Cause(ctx); cause != nil {
			return digest.Digest{}, cause
		}
		b := buf[:min(n, int64(len(buf)))]
		if k, err := r.ReadAt(b, off); k < len(b) {
			return digest.Digest{}, err
		}
		h.Write(b)
		off += int64(len(b))
		n -= int64(len(b))
	}
	return digest.Sum(h), nil
}

func (s *fileSink) Rename(_ context.Context, from, to string) error {
	if s.f == nil {
		return ErrNotExist
	}
	err := s.f.Commit()
	s.f = nil
	return s.fault(err)
}

func (s *fileSink) Remove(_ context.Context, name string) error {
	if name == s.Temp() {
		return s.Close()
	}
	err := atomicfile.Remove(s.path, atomicfile.Options{Before: s.opt.Before})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

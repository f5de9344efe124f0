package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"quern/internal/digest"
	"quern/pipeline"
	"quern/tensor"
	"quern/verify"
)

// subject is what quern verify looks at: a file, or all shards of a GGUF file where
// it is the first of them.
type subject struct {
	*verify.File // nil before read
	path         string
	// files are in order; only the first is open before read.
	files []pipeline.WrittenFile
	sums  []digest.Digest // of files, as far as somebody asked
}

// openSubject opens a file, and looks at nothing in it.
func openSubject(path string) (*subject, error) {
	s := &subject{path: path}
	_, err := s.add(filepath.Base(path))
	return s, err
}

// add opens a file of the subject's folder.
func (s *subject) add(name string) (tensor.Blob, error) {
	path := s.path
	if len(s.files) > 0 {
		path = filepath.Join(filepath.Dir(s.path), name)
	}
	b, err := tensor.OpenFile(path)
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, pipeline.WrittenFile{Name: name, Blob: b})
	return b, nil
}

// read reads the headers.
func (s *subject) read(ctx context.Context, opt verify.OpenOptions) (err error) {
	opt.Beside = func(_ context.Context, name string) (tensor.Blob, error) { return s.add(name) }
	s.File, err = verify.Open(ctx, s.files[0].Name, s.files[0].Blob, opt)
	return err
}

// sum is the digest of a file, which is read once for it.
func (s *subject) sum(ctx context.Context, i int) (digest.Digest, error) {
	if s.sums == nil {
		s.sums = make([]digest.Digest, len(s.files))
	}
	if s.sums[i].IsZero() {
		sum, err := sumBlob(ctx, s.files[i].Blob)
		if err != nil {
			return sum, err
		}
		s.sums[i] = sum
	}
	return s.sums[i], nil
}

func sumBlob(ctx context.Context, b tensor.Blob) (digest.Digest, error) {
	h := digest.New()
	buf := make([]byte, 1<<20)
	for off := int64(0); off < b.Size(); off += int64(len(buf)) {
		if left := b.Size() - off; left < int64(len(buf)) {
			buf = buf[:left]
		}
		if err := b.ReadAt(ctx, buf, off); err != nil {
			return digest.Digest{}, err
		}
		h.Write(buf)
	}
	return digest.Sum(h), nil
}

// golden demands equal bytes and finds the first tensor that differs. err is
// that a file could not be read.
func (s *subject) golden(ctx context.Context, golden string, opt verify.OpenOptions) (differs, err error) {
	want, err := openSubject(golden)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, want.close()) }()
	broken := want.read(ctx, opt)
	head := ""
	for i, f := range s.files {
		if i >= len(want.files) {
			break
		}
		a, err := s.sum(ctx, i)
		if err != nil {
			return nil, err
		}
		b, err := want.sum(ctx, i)
		if err != nil {
			return nil, err
		}
		if a != b {
			if head = fmt.Sprintf("SHA-256 %s, the golden file %s has %s", a.Hex(), golden, b.Hex()); i > 0 {
				head = fmt.Sprintf("%s: SHA-256 %s, that of the golden file %s has %s", f.Name, a.Hex(), golden, b.Hex())
			}
			break
		}
	}
	switch have, wanted := len(s.files), len(want.files); {
	case broken != nil && head == "":
		return broken, nil
	case broken != nil:
		return fmt.Errorf("%s; %w", head, broken), nil
	case head == "" && have == wanted:
		return nil, nil
	case head == "":
		head = fmt.Sprintf("%s, the golden file %s has %s", plural(have, "shard"), golden, plural(wanted, "shard"))
	}
	where, err := verify.FirstDifference(ctx, s.Tensors, want.Tensors)
	if err != nil {
		return nil, fmt.Errorf("%s; %w", head, err)
	}
	return fmt.Errorf("%s; %s", head, where), nil
}

func (s *subject) close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Blob.(io.Closer).Close())
	}
	return errors.Join(errs...)
}

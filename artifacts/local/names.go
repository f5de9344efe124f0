package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"quern/artifacts"
	"quern/internal/atomicfile"
)

// maxIndex bounds index.json: some hundred thousand entries.
const maxIndex = 64 << 20

func readLimited(f *os.File, path string, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("%s: more than the limit of %d bytes", path, limit)
	}
	return buf.Bytes(), nil
}

// Index reads index.json.
func (s *Store) Index(ctx context.Context) (*artifacts.Index, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	raw, err := readSmall(s.path(indexFile), maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store %s: %w: %s is missing; put it back, or write {\"schemaVersion\":2,\"manifests\":[]} into it to go on without names",
			s.dir, artifacts.ErrCorrupt, indexFile)
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", s.dir, err)
	}
	x, err := artifacts.ParseIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("store %s: %s: %w: %w", s.dir, indexFile, artifacts.ErrCorrupt, err)
	}
	return x, nil
}

// Resolve finds a name, a digest or a digest's beginning.
func (s *Store) Resolve(ctx context.Context, ref string) (artifacts.Descriptor, error) {
	x, err := s.Index(ctx)
	if err != nil {
		return artifacts.Descriptor{}, err
	}
	d, err := artifacts.Resolve(ctx, x, s, ref)
	if err != nil {
		return artifacts.Descriptor{}, fmt.Errorf("store %s: %w", s.dir, err)
	}
	return d, nil
}

// Names lists all names in order.
func (s *Store) Names(ctx context.Context) ([]artifacts.Named, error) {
	x, err := s.Index(ctx)
	if err != nil {
		return nil, err
	}
	return x.Names(), nil
}

// Roots lists all entries of the index.
func (s *Store) Roots(ctx context.Context) ([]artifacts.Descriptor, error) {
	x, err := s.Index(ctx)
	if err != nil {
		return nil, err
	}
	return x.Roots(), nil
}

// Tag names a blob.
func (s *Store) Tag(ctx context.Context, name string, d artifacts.Descriptor) error {
	if err := artifacts.CheckName(name); err != nil {
		return err
	}
	if err := s.writable(); err != nil {
		return err
	}
	release, err := s.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := artifacts.CheckComplete(ctx, s, d); err != nil {
		return fmt.Errorf("tag %s: %w", name, err)
	}
	return s.changeIndex(ctx, func(x *artifacts.Index) error { return x.Tag(name, d) })
}

// Untag forgets a name.
func (s *Store) Untag(ctx context.Context, name string) error {
	if err := s.writable(); err != nil {
		return err
	}
	return s.changeIndex(ctx, func(x *artifacts.Index) error {
		if !x.Untag(name) {
			return fmt.Errorf("name %s: %w", name, artifacts.ErrNotFound)
		}
		return nil
	})
}

// changeIndex reads, changes and replaces index.json, one process at a time.
func (s *Store) changeIndex(ctx context.Context, change func(*artifacts.Index) error) error {
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	release, err := s.lock(ctx, lockIndex, true)
	if err != nil {
		return s.changeError(err)
	}
	defer release()
	x, err := s.Index(ctx)
	if err != nil {
		return err
	}
	if err := change(x); err != nil {
		return fmt.Errorf("store %s: %w", s.dir, err)
	}
	raw, err := x.Marshal()
	if err != nil {
		return err
	}
	return s.changeError(atomicfile.WriteFile(s.path(indexFile), raw, s.fileOptions()))
}

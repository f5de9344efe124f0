// Package mem is a store in memory, for tests and for runs that keep nothing.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"hash"
	"maps"
	"slices"
	"sync"

	"quern/artifacts"
)

// Store is an artifacts.Store in memory. Make one with New.
type Store struct {
	mu    sync.RWMutex
	blobs map[artifacts.Digest][]byte
	index *artifacts.Index
	keys  map[artifacts.Key][]artifacts.Ref
}

var _ artifacts.Store = (*Store)(nil)

// New makes an empty store.
func New() *Store {
	return &Store{
		blobs: map[artifacts.Digest][]byte{},
		index: artifacts.NewIndex(),
		keys:  map[artifacts.Key][]artifacts.Ref{},
	}
}

type blob struct {
	*bytes.Reader
}

func (blob) Close() error { return nil }

// Open opens a blob.
func (s *Store) Open(ctx context.Context, d artifacts.Digest) (artifacts.Blob, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	b, ok := s.blobs[d]
	if !ok {
		return nil, notFound(d)
	}
	return blob{bytes.NewReader(b)}, nil
}

func notFound(d artifacts.Digest) error { return fmt.Errorf("blob %s: %w", d, artifacts.ErrNotFound) }

// Stat gives a blob's size.
func (s *Store) Stat(ctx context.Context, d artifacts.Digest) (artifacts.Info, error) {
	if err := context.Cause(ctx); err != nil {
		return artifacts.Info{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	b, ok := s.blobs[d]
	if !ok {
		return artifacts.Info{}, notFound(d)
	}
	return artifacts.Info{Digest: d, Size: int64(len(b))}, nil
}

// List gives all blobs in order.
func (s *Store) List(ctx context.Context) ([]artifacts.Info, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]artifacts.Info, 0, len(s.blobs))
	for d, b := range s.blobs {
		out = append(out, artifacts.Info{Digest: d, Size: int64(len(b))})
	}
	slices.SortFunc(out, func(a, b artifacts.Info) int { return a.Digest.Compare(b.Digest) })
	return out, nil
}

// Resolve finds a name, a digest or a digest's beginning.
func (s *Store) Resolve(ctx context.Context, ref string) (artifacts.Descriptor, error) {
	if err := context.Cause(ctx); err != nil {
		return artifacts.Descriptor{}, err
	}
	x, err := s.snapshot()
	if err != nil {
		return artifacts.Descriptor{}, err
	}
	return artifacts.Resolve(ctx, x, s, ref)
}

// snapshot copies the index, so that it can be used without the lock.
func (s *Store) snapshot() (*artifacts.Index, error) {
	s.mu.RLock()
	raw, err := s.index.Marshal()
	s.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	return artifacts.ParseIndex(raw)
}

// Names lists all names in order.
func (s *Store) Names(ctx context.Context) ([]artifacts.Named, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.index.Names(), nil
}

// Roots lists all entries of the index.
func (s *Store) Roots(ctx context.Context) ([]artifacts.Descriptor, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.index.Roots(), nil
}

// Lookup finds keys whose bytes are here.
func (s *Store) Lookup(ctx context.Context, keys []artifacts.Key) (map[artifacts.Key]artifacts.Ref, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := map[artifacts.Key]artifacts.Ref{}
	for _, k := range keys {
		for _, r := range s.keys[k] {
			if b, ok := s.blobs[r.Blob]; ok && r.Fits(int64(len(b))) {
				out[k] = r
				break
			}
		}
	}
	return out, nil
}

// Keys lists all keys in order.
func (s *Store) Keys(ctx context.Context) ([]artifacts.KeyRef, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []artifacts.KeyRef
	for _, k := range slices.SortedFunc(maps.Keys(s.keys), func(a, b artifacts.Key) int { return bytes.Compare(a[:], b[:]) }) {
		for _, r := range s.keys[k] {
			out = append(out, artifacts.KeyRef{Key: k, Ref: r})
		}
	}
	return out, nil
}

// NewBlob starts a blob.
func (s *Store) NewBlob(ctx context.Context, opt artifacts.BlobOptions) (artifacts.BlobWriter, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if opt.MediaType == "" {
		opt.MediaType = artifacts.MediaTypeOctets
	}
	return &writer{s: s, ctx: ctx, opt: opt, h: artifacts.NewHash()}, nil
}

type writer struct {
	s    *Store
	ctx  context.Context
	opt  artifacts.BlobOptions
	h    hash.Hash
	buf  bytes.Buffer
	n    int64
	err  error
	done bool
}

func (w *writer) Write(p []byte) (int, error) {
	switch {
	case w.done:
		return 0, fmt.Errorf("write blob: %w", artifacts.ErrClosed)
	case w.err == nil && w.ctx.Err() != nil:
		w.err = context.Cause(w.ctx)
	}
	if w.err != nil {
		return 0, w.err
	}
	w.h.Write(p)
	w.n += int64(len(p))
	return w.buf.Write(p)
}

func (w *writer) Size() int64 { return w.n }

func (w *writer) Sum() artifacts.Digest { return artifacts.SumHash(w.h) }

func (w *writer) Abort() {
	w.done = true
	w.buf = bytes.Buffer{}
}

func (w *writer) Commit(want artifacts.Digest) (artifacts.Descriptor, error) {
	if w.done {
		return artifacts.Descriptor{}, fmt.Errorf("write blob: %w", artifacts.ErrClosed)
	}
	defer w.Abort()
	if w.err != nil {
		return artifacts.Descriptor{}, w.err
	}
	if err := context.Cause(w.ctx); err != nil {
		return artifacts.Descriptor{}, err
	}
	d := artifacts.Descriptor{MediaType: w.opt.MediaType, Digest: w.Sum(), Size: w.n}
	if err := artifacts.CheckPromise(d, w.opt, want); err != nil {
		return artifacts.Descriptor{}, err
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.blobs[d.Digest] = w.buf.Bytes()
	return d, nil
}

// Delete removes a blob.
func (s *Store) Delete(ctx context.Context, d artifacts.Digest) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.blobs[d]; !ok {
		return notFound(d)
	}
	delete(s.blobs, d)
	return nil
}

// Tag names a blob.
func (s *Store) Tag(ctx context.Context, name string, d artifacts.Descriptor) error {
	if err := artifacts.CheckName(name); err != nil {
		return err
	}
	if err := artifacts.CheckComplete(ctx, s, d); err != nil {
		return fmt.Errorf("tag %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.Tag(name, d)
}

// Untag forgets a name.
func (s *Store) Untag(ctx context.Context, name string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.index.Untag(name) {
		return fmt.Errorf("name %s: %w", name, artifacts.ErrNotFound)
	}
	return nil
}

// PutKeys remembers where bytes are.
func (s *Store) PutKeys(ctx context.Context, refs []artifacts.KeyRef) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, r := range refs {
		if err := artifacts.CheckKeyRef(r); err != nil && !r.Key.IsZero() {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range refs {
		if r.Key.IsZero() || slices.Contains(s.keys[r.Key], r.Ref) {
			continue
		}
		s.keys[r.Key] = append(s.keys[r.Key], r.Ref)
		slices.SortFunc(s.keys[r.Key], artifacts.Ref.Compare)
	}
	return nil
}

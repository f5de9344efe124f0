package local

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"

	"quern/artifacts"
	"quern/internal/atomicfile"
	"quern/internal/digest"
)

func (s *Store) blobPath(d artifacts.Digest) string { return s.path(blobsDir, d.Hex()) }

// blob is an open blob file.
type blob struct {
	*os.File
	size int64
}

func (b *blob) Size() int64 { return b.size }

// Open opens a blob.
func (s *Store) Open(ctx context.Context, d artifacts.Digest) (artifacts.Blob, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	f, err := os.Open(s.blobPath(d))
	if err != nil {
		return nil, s.blobError(d, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = atomicfile.ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, s.blobError(d, err)
	}
	return &blob{f, st.Size()}, nil
}

func (s *Store) blobError(d artifacts.Digest, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store %s: blob %s: %w", s.dir, d, artifacts.ErrNotFound)
	}
	return fmt.Errorf("store %s: blob %s: %w", s.dir, d, err)
}

// Stat gives a blob's size.
func (s *Store) Stat(ctx context.Context, d artifacts.Digest) (artifacts.Info, error) {
	if err := context.Cause(ctx); err != nil {
		return artifacts.Info{}, err
	}
	st, err := os.Stat(s.blobPath(d))
	if err == nil && !st.Mode().IsRegular() {
		err = atomicfile.ErrNotRegular
	}
	if err != nil {
		return artifacts.Info{}, s.blobError(d, err)
	}
	return artifacts.Info{Digest: d, Size: st.Size()}, nil
}

// List gives all blobs in order. Files whose name is no digest are not blobs.
func (s *Store) List(ctx context.Context) ([]artifacts.Info, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.path(blobsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a layout without blobs
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", s.dir, err)
	}
	out := make([]artifacts.Info, 0, len(entries))
	for _, e := range entries {
		d, err := digest.ParseHex(e.Name())
		if err != nil {
			continue
		}
		in, err := s.Stat(ctx, d)
		if errors.Is(err, artifacts.ErrNotFound) || errors.Is(err, atomicfile.ErrNotRegular) {
			continue // removed meanwhile, or a folder
		}
		if err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	slices.SortFunc(out, func(a, b artifacts.Info) int { return a.Digest.Compare(b.Digest) })
	return out, nil
}

// NewBlob starts a blob.
func (s *Store) NewBlob(ctx context.Context, opt artifacts.BlobOptions) (artifacts.BlobWriter, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := s.writable(); err != nil {
		return nil, err
	}
	if opt.MediaType == "" {
		opt.MediaType = artifacts.MediaTypeOctets
	}
	fo := s.fileOptions()
	fo.Mode, fo.Size = 0o444, opt.Size
	f, err := atomicfile.CreateIn(s.path(ingestDir), fo)
	if err != nil {
		return nil, s.changeError(err)
	}
	return &writer{s: s, ctx: ctx, opt: opt, f: f, h: artifacts.NewHash()}, nil
}

// ResumeBlob starts the blob that want names, or goes on with what an earlier
// call has left of it: the writer's Size says how many bytes are there. Abort and
// the end of ctx keep them for the next call; bytes that turn out wrong, and a
// write that fails, leave nothing. gc removes what nobody went on with. If
// another process is at it, the blob is made anew, and what there is of it stays.
func (s *Store) ResumeBlob(ctx context.Context, want artifacts.Descriptor) (artifacts.BlobWriter, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := s.writable(); err != nil {
		return nil, err
	}
	opt := artifacts.BlobOptions{MediaType: want.MediaType, Size: want.Size}
	fo := s.fileOptions()
	fo.Mode, fo.Size = 0o444, opt.Size
	for range 2 {
		f, have, err := atomicfile.Resume(s.path(ingestDir, want.Digest.Hex()+"-part"), fo)
		if errors.Is(err, atomicfile.ErrBusy) {
			break
		}
		if err != nil {
			return nil, s.changeError(err)
		}
		w := &writer{s: s, ctx: ctx, opt: opt, f: f, h: artifacts.NewHash()}
		if have > want.Size {
			f.Discard() // of no use
			continue
		}
		if w.n, err = artifacts.CopyRange(ctx, w.h, f, 0, have); err != nil {
			f.Abort()
			return nil, fmt.Errorf("store %s: what there is of blob %s: at offset %d: %w", s.dir, want.Digest, w.n, err)
		}
		return w, nil
	}
	return s.NewBlob(ctx, opt)
}

type writer struct {
	s   *Store
	ctx context.Context
	opt artifacts.BlobOptions
	f   *atomicfile.File
	h   hash.Hash
	n   int64
	err error // why the file is gone
}

func (w *writer) Size() int64 { return w.n }

func (w *writer) Sum() artifacts.Digest { return artifacts.SumHash(w.h) }

// fail drops the file at once, so that nothing is left even if the caller
// forgets to abort.
func (w *writer) fail(err error) error {
	w.err = err
	w.f.Discard()
	return err
}

// leave gives the file up; one of ResumeBlob keeps its bytes.
func (w *writer) leave(err error) error {
	w.err = err
	w.f.Abort()
	return err
}

func (w *writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.ctx.Err() != nil {
		return 0, w.leave(context.Cause(w.ctx))
	}
	n, err := w.f.Write(p)
	w.h.Write(p[:n])
	w.n += int64(n)
	if err != nil {
		return n, w.fail(w.s.changeError(fmt.Errorf("write blob: at offset %d: %w", w.n, err)))
	}
	return n, nil
}

func (w *writer) Abort() {
	if w.err == nil {
		w.leave(fmt.Errorf("write blob: %w", artifacts.ErrClosed))
	}
}

func (w *writer) Commit(want artifacts.Digest) (artifacts.Descriptor, error) {
	if w.err != nil {
		return artifacts.Descriptor{}, w.err
	}
	d := artifacts.Descriptor{MediaType: w.opt.MediaType, Digest: w.Sum(), Size: w.n}
	if err := artifacts.CheckPromise(d, w.opt, want); err != nil {
		return artifacts.Descriptor{}, w.fail(err)
	}
	placed, err := w.place(d)
	if err != nil && w.ctx.Err() != nil {
		return artifacts.Descriptor{}, w.leave(err)
	}
	if err != nil {
		return artifacts.Descriptor{}, w.fail(w.s.changeError(err))
	}
	if !placed {
		w.fail(nil) // the store had it
	}
	w.err = fmt.Errorf("write blob: %w", artifacts.ErrClosed)
	return d, nil
}

// place gives the file its name, unless the blob is there already: then that
// one is read, and kept if it is good, so that hard links to it stay shared and
// a damaged one does not stay for ever.
func (w *writer) place(d artifacts.Descriptor) (placed bool, err error) {
	release, err := w.s.Hold(w.ctx)
	if err != nil {
		return false, err
	}
	defer release()
	path := w.s.blobPath(d.Digest)
	good, err := w.s.verified(w.ctx, d)
	if err != nil {
		return false, err
	}
	if good && w.s.touch(path) == nil {
		return false, nil
	}
	// The name is free, or has damaged bytes, or another process has just
	// taken it with the same ones: all are replaced, without a moment in which
	// the blob is missing.
	err = w.f.CommitAs(path)
	if errors.Is(err, fs.ErrPermission) {
		// Windows replaces no file that is read-only or open. That is fine if
		// another process has just put it there.
		if good, _ := w.s.verified(w.ctx, d); good {
			return false, nil
		}
	}
	return true, err
}

// verified reports whether the store has exactly these bytes.
func (s *Store) verified(ctx context.Context, d artifacts.Descriptor) (bool, error) {
	err := artifacts.Copy(ctx, io.Discard, s, d)
	if err != nil && ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil, nil
}

// touch makes a blob young, so that gc keeps it for the grace time.
func (s *Store) touch(path string) error {
	if err := s.before(atomicfile.StepRename, path); err != nil {
		return err
	}
	now := s.opt.Now()
	return os.Chtimes(path, now, now)
}

// Delete removes a blob.
func (s *Store) Delete(ctx context.Context, d artifacts.Digest) error {
	if err := s.writable(); err != nil {
		return err
	}
	release, err := s.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	err = atomicfile.Remove(s.blobPath(d), s.fileOptions())
	if errors.Is(err, fs.ErrNotExist) {
		return s.blobError(d, err)
	}
	return s.changeError(err)
}

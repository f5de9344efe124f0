package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"quern/hub"
	"quern/model"
	"quern/pipeline"
	"quern/tensor"
)

// urlFile is a file at an address.
type urlFile struct {
	users
	*hub.URLFile
	url string

	mu     sync.Mutex
	sha    string // in hex: the recipe's, else what Digest found
	found  bool   // by Digest
	broken bool   // a read has failed since the last Finish
}

func (r *remote) url(ctx context.Context, url, sha256 string) (*urlFile, func() error, error) {
	key := sha256 + "\x00" + url
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.urls[key]
	if u == nil {
		f, err := r.c.OpenURL(ctx, url, hub.URLOptions{SHA256: sha256})
		if err != nil {
			return nil, nil, err
		}
		u = &urlFile{URLFile: f, url: url, sha: sha256}
		r.urls[key] = u
	}
	u.n++
	return u, r.release(&u.users, func() { delete(r.urls, key) }, u.URLFile.Close), nil
}

func (u *urlFile) digest() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sha
}

// ReadAt notices when reading fails.
func (u *urlFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := u.URLFile.ReadAt(ctx, p, off)
	if unreachable(err) {
		u.mu.Lock()
		u.broken = true
		u.mu.Unlock()
	}
	return err
}

// URL opens a single file at an address, which may be a model of itself.
func (r *remote) URL(ctx context.Context, name, url, sha256 string, h Headers) (*pipeline.Source, error) {
	u, release, err := r.url(ctx, url, sha256)
	if err != nil {
		return nil, err
	}
	src := &pipeline.Source{Close: release, Fetch: &urlFetch{u}}
	if src.Model, err = again(func() (*model.Model, error) { return u.load(ctx, name, h) }, func() bool { return u.doubt(ctx) }); err != nil {
		return nil, errors.Join(err, release())
	}
	if src.Model == nil || !isModel(src.Model) {
		src.Model, src.Content = nil, marked{&whole{urlFile: u}}
	}
	src.Files = []pipeline.SourceFile{{Path: u.Name(), Size: u.Size(), SHA256: u.digest()}}
	switch {
	case u.digest() != "":
	case u.Kept():
		src.Digest = func(ctx context.Context) error {
			if err := u.hash(ctx); err != nil {
				return err
			}
			src.Files[0].SHA256 = u.digest()
			return nil
		}
	default:
		src.Notes = append(src.Notes, fmt.Sprintf("%s: no sha256 is given and there is no store to keep the file in: nothing says later what was read", u.Name()))
	}
	return src, nil
}

// whole is a file all of which is read, by whoever reads of it at all.
type whole struct {
	*urlFile
	once sync.Once
	err  error
}

func (w *whole) ReadAt(ctx context.Context, p []byte, off int64) error {
	w.once.Do(func() {
		if w.err = w.Need([]hub.Range{{Off: 0, Len: w.Size()}}); w.err == nil {
			w.Prefetch()
		}
	})
	if w.err != nil {
		return w.err
	}
	return w.urlFile.ReadAt(ctx, p, off)
}

// load opens a file that is a model, as its first bytes say; of any other file it
// gives nil.
func (u *urlFile) load(ctx context.Context, name string, h Headers) (*model.Model, error) {
	head := make([]byte, min(headBytes, u.Size()))
	if err := u.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	// Without a digest nothing is keyed: servers give one validator to
	// different files.
	var key tensor.Key
	if sha := u.digest(); sha != "" {
		key = tensor.Derive("file", sha)
	}
	if !bytes.HasPrefix(head, []byte("GGUF")) {
		return loadSingle(ctx, head, u.Name(), marked{u}, name, key, h)
	}
	open := func(_ context.Context, file string) (tensor.Blob, error) {
		if file != u.Name() {
			return nil, fmt.Errorf("%w: %s belongs to it, and a url: source is one file; an hf: source has all shards", ErrKind, file)
		}
		return marked{u}, nil
	}
	m, _, err := model.LoadGGUF(ctx, u.Name(), open, h.gguf(name, key))
	return m, err
}

// hash fetches all of the file and remembers its digest.
func (u *urlFile) hash(ctx context.Context) error {
	if u.digest() != "" {
		return nil
	}
	if err := u.Need([]hub.Range{{Off: 0, Len: u.Size()}}); err != nil {
		return err
	}
	u.Prefetch()
	sum, err := hashBlob(ctx, u)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sha, u.found = sum.Hex(), true
	return nil
}

// replaced forgets the digest of bytes that are others now.
func (u *urlFile) replaced() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.found {
		u.sha, u.found = "", false
	}
}

func (u *urlFile) doubt(ctx context.Context) bool {
	changed, _ := u.URLFile.Recheck(ctx)
	return changed
}

// urlFetch drives a file.
type urlFetch struct{ u *urlFile }

func (f *urlFetch) Need(_ context.Context, ranges []tensor.Extent) error {
	if err := f.u.Need(runs(ranges)); err != nil {
		return err
	}
	f.u.Prefetch()
	return nil
}

func runs(ranges []tensor.Extent) []hub.Range {
	out := make([]hub.Range, len(ranges))
	for i, r := range ranges {
		out[i] = hub.Range{Off: r.Offset, Len: r.Bytes}
	}
	return out
}

func (f *urlFetch) Missing(_ context.Context, ranges []tensor.Extent) (int64, error) {
	return f.u.URLFile.Missing(runs(ranges)), nil
}

// Finish is that of snapshotFetch for one file.
func (f *urlFetch) Finish(ctx context.Context) error {
	f.u.mu.Lock()
	broken := f.u.broken
	f.u.broken = false
	f.u.mu.Unlock()
	if broken {
		return nil
	}
	err := f.u.URLFile.Finish(ctx)
	if errors.Is(err, hub.ErrRepaired) {
		f.u.replaced()
	}
	return repaired(err)
}

func (f *urlFetch) Recheck(ctx context.Context, ranges []tensor.Extent) (bool, error) {
	changed, err := f.u.URLFile.Recheck(ctx, runs(ranges)...)
	if changed {
		f.u.replaced()
	}
	return changed, err
}

// Proved holds as well where the digest is that of the bytes themselves.
func (f *urlFetch) Proved(string) bool {
	f.u.mu.Lock()
	found := f.u.found
	f.u.mu.Unlock()
	return found || f.u.URLFile.Proved()
}

func (f *urlFetch) Stats() pipeline.FetchStats { return stats(f.u.Stats()) }

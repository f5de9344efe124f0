package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"quern/formats/gguf"
	"quern/hub"
	"quern/model"
	"quern/pipeline"
	"quern/tensor"
)

// FromHub opens hf: and url: sources with a client. pins maps a source's name to
// the commit that a lock file has for it.
func FromHub(c *hub.Client, pins map[string]string) Remote { return &remote{c, pins} }

type remote struct {
	c    *hub.Client
	pins map[string]string
}

// repo is a snapshot that remembers which of its files were asked for.
type repo struct {
	*hub.Snapshot
	files map[string]hub.File

	mu   sync.Mutex
	used map[string]bool
}

func (r *repo) note(p string) {
	r.mu.Lock()
	r.used[p] = true
	r.mu.Unlock()
}

func (r *repo) ReadFile(ctx context.Context, p string, limit int64) ([]byte, error) {
	b, err := r.Snapshot.ReadFile(ctx, p, limit)
	if err == nil {
		r.note(p)
	}
	return b, err
}

func (r *repo) Open(ctx context.Context, p string) (tensor.Blob, error) {
	b, err := r.Snapshot.Open(ctx, p)
	if err != nil {
		return nil, err
	}
	r.note(p)
	return marked{b}, nil
}

func (r *repo) sourceFiles() []pipeline.SourceFile {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []pipeline.SourceFile
	for p := range r.used {
		f := r.files[p]
		out = append(out, pipeline.SourceFile{Path: p, Size: f.Size, SHA256: f.SHA256, GitOID: f.GitOID})
	}
	slices.SortFunc(out, func(a, b pipeline.SourceFile) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// fileKey identifies a file's content by its best digest; by SHA-256 it is the
// key that a local copy has, see safetensors.ModelOptions.
func fileKey(f hub.File) tensor.Key {
	switch d := f.Digest(); {
	case d.IsZero():
		return tensor.Key{}
	case d.Algorithm == hub.SHA256:
		return tensor.Derive("file", d.Hex)
	default:
		return tensor.Derive("file", d.String())
	}
}

func (r *remote) Repo(ctx context.Context, name, ref string, h Headers) (*pipeline.Source, error) {
	parsed, err := hub.ParseRef(ref)
	if err != nil {
		return nil, err
	}
	snap, err := r.c.Snapshot(ctx, parsed, hub.SnapshotOptions{Commit: r.pins[name]})
	if err != nil {
		return nil, err
	}
	rp := &repo{Snapshot: snap, files: map[string]hub.File{}, used: map[string]bool{}}
	for _, f := range snap.Files() {
		rp.files[f.Path] = f
	}
	m, err := rp.load(ctx, name, h)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", parsed, err), snap.Close())
	}
	src := &pipeline.Source{Model: m, Commit: snap.Commit, Close: snap.Close, Fetch: &snapshotFetch{snap}}
	src.Refresh = func() { src.Files = rp.sourceFiles() }
	src.Refresh()
	return src, nil
}

// load opens the repository's model: a checkpoint by its config.json, else the
// only GGUF file there is.
func (r *repo) load(ctx context.Context, name string, h Headers) (*model.Model, error) {
	if _, ok := r.files[model.ConfigName]; ok {
		opt := h.hf(name)
		opt.FileKey = func(fi model.FileInfo) tensor.Key { return fileKey(r.files[fi.Path]) }
		return model.LoadHF(ctx, r, opt)
	}
	first := map[string]bool{}
	for p := range r.files {
		if !strings.HasSuffix(p, ".gguf") {
			continue
		}
		if _, i, _, ok := gguf.ParseSplitName(p); !ok || i == 0 {
			first[p] = true
		}
	}
	switch len(first) {
	case 0:
		return nil, fmt.Errorf("%w: neither config.json nor a GGUF file is in the repository", ErrKind)
	case 1:
	default:
		return nil, fmt.Errorf("%w: %d GGUF files are in the repository; name one with a url: source", ErrKind, len(first))
	}
	for p := range first {
		key := fileKey(r.files[p])
		m, _, err := model.LoadGGUF(ctx, p, r.Open, h.gguf(name, key))
		return m, err
	}
	return nil, nil
}

// snapshotFetch drives a snapshot.
type snapshotFetch struct{ s *hub.Snapshot }

func (f *snapshotFetch) Need(ctx context.Context, ranges []tensor.Extent) error {
	for len(ranges) > 0 {
		file := ranges[0].File
		var run []hub.Range
		for len(ranges) > 0 && ranges[0].File == file {
			run = append(run, hub.Range{Off: ranges[0].Offset, Len: ranges[0].Bytes})
			ranges = ranges[1:]
		}
		if err := f.s.Need(ctx, file, run); err != nil {
			return err
		}
	}
	return f.s.Prefetch()
}

func (f *snapshotFetch) Finish(ctx context.Context) error { return repaired(f.s.Finish(ctx)) }

func repaired(err error) error {
	if errors.Is(err, hub.ErrRepaired) {
		return fmt.Errorf("%w: %w", pipeline.ErrRepaired, err)
	}
	return err
}

func (f *snapshotFetch) Stats() pipeline.FetchStats { return stats(f.s.Stats()) }

func stats(s hub.Stats) pipeline.FetchStats {
	return pipeline.FetchStats{Needed: s.Needed, Fetched: s.Fetched, Cached: s.FromCache + s.FromSpool, Requests: s.Requests, Retries: s.Retries}
}

// URL opens a single file at an address. A GGUF file is a model.
func (r *remote) URL(ctx context.Context, name, url, sha256 string, h Headers) (*pipeline.Source, error) {
	f, err := r.c.OpenURL(ctx, url, hub.URLOptions{SHA256: sha256})
	if err != nil {
		return nil, err
	}
	src := &pipeline.Source{Close: f.Close, Fetch: &urlFetch{f}}
	src.Files = []pipeline.SourceFile{{Path: f.Name(), Size: f.Size(), SHA256: sha256}}
	var key tensor.Key
	if sha256 != "" {
		key = tensor.Derive("file", sha256)
	} else {
		// Without a digest the server's validator stands in for provenance;
		// nothing is keyed by it, since servers reuse them.
		src.Files[0].SHA256 = ""
		src.Digest = func(ctx context.Context) error {
			sum, err := hashBlob(ctx, f)
			if err != nil {
				return err
			}
			src.Files[0].SHA256 = sum.Hex()
			return nil
		}
	}
	magic := make([]byte, 4)
	if f.Size() >= 4 {
		if err := f.ReadAt(ctx, magic, 0); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	if string(magic) != "GGUF" {
		return src, nil
	}
	open := func(context.Context, string) (tensor.Blob, error) { return marked{f}, nil }
	m, _, err := model.LoadGGUF(ctx, f.Name(), open, h.gguf(name, key))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	src.Model = m
	return src, nil
}

type urlFetch struct{ f *hub.URLFile }

func (u *urlFetch) Need(_ context.Context, ranges []tensor.Extent) error {
	run := make([]hub.Range, len(ranges))
	for i, r := range ranges {
		run[i] = hub.Range{Off: r.Offset, Len: r.Bytes}
	}
	if err := u.f.Need(run); err != nil {
		return err
	}
	u.f.Prefetch()
	return nil
}

func (u *urlFetch) Finish(ctx context.Context) error { return repaired(u.f.Finish(ctx)) }
func (u *urlFetch) Stats() pipeline.FetchStats       { return stats(u.f.Stats()) }

package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"quern/formats/gguf"
	"quern/formats/safetensors"
	"quern/hub"
	"quern/model"
	"quern/model/needle"
	"quern/pipeline"
	"quern/tensor"
)

// FromHub opens hf: and url: sources with a client. pins maps a source's name to
// the commit that a lock file has for it.
//
// A build may open its sources more than once. As long as one opening lasts, the
// next one shares what it has: the commit that a branch was, the listing, the
// bytes, the digest of a file that had none.
func FromHub(c *hub.Client, pins map[string]string) Remote {
	return &remote{c: c, pins: pins, repos: map[string]*repo{}, urls: map[string]*urlFile{}}
}

type remote struct {
	c    *hub.Client
	pins map[string]string

	mu    sync.Mutex
	repos map[string]*repo
	urls  map[string]*urlFile
}

// users counts the openings that share something.
type users struct{ n int }

// release closes what nobody uses any more.
func (r *remote) release(u *users, forget func(), close func() error) func() error {
	return sync.OnceValue(func() error {
		r.mu.Lock()
		u.n--
		last := u.n == 0
		if last {
			forget()
		}
		r.mu.Unlock()
		if !last {
			return nil
		}
		return close()
	})
}

// repo is a snapshot that remembers which of its files were asked for.
type repo struct {
	users
	*hub.Snapshot
	files map[string]hub.File

	mu     sync.Mutex
	used   map[string]int64 // sizes: listings may not know them
	absent map[string]bool  // not in the cache, and there is nobody to ask
	broken bool             // a read has failed since the last Finish
}

// repo gives the snapshot of a source.
func (r *remote) repo(ctx context.Context, name, ref string) (*repo, func() error, error) {
	parsed, err := hub.ParseRef(ref)
	if err != nil {
		return nil, nil, err
	}
	key := name + "\x00" + ref
	r.mu.Lock()
	defer r.mu.Unlock()
	rp := r.repos[key]
	if rp == nil {
		snap, err := r.c.Snapshot(ctx, parsed, hub.SnapshotOptions{Commit: r.pins[name]})
		if err != nil {
			return nil, nil, err
		}
		rp = &repo{Snapshot: snap, files: map[string]hub.File{}, used: map[string]int64{}, absent: map[string]bool{}}
		for _, f := range snap.Files() {
			rp.files[f.Path] = f
		}
		r.repos[key] = rp
	}
	rp.n++
	return rp, r.release(&rp.users, func() { delete(r.repos, key) }, rp.Snapshot.Close), nil
}

func (r *repo) note(p string, size int64) {
	r.mu.Lock()
	r.used[p] = size
	r.mu.Unlock()
}

func (r *repo) ReadFile(ctx context.Context, p string, limit int64) ([]byte, error) {
	b, err := r.Snapshot.ReadFile(ctx, p, limit)
	if err == nil {
		r.note(p, int64(len(b)))
	}
	return b, r.missing(p, err)
}

// missing takes a file that the cache does not have for one that the repository
// does not have, where nobody can be asked: caches seldom know what is absent.
// The source says so in its notes.
func (r *repo) missing(p string, err error) error {
	if _, listed := r.files[p]; listed || !errors.Is(err, hub.ErrOffline) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.absent[p] = true
	return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
}

// notes tells what was taken for absent.
func (r *repo) notes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.absent) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: offline, and the cache may hold a part of the commit only: %s not in it and taken as absent",
		r.Ref(), is(slices.Sorted(maps.Keys(r.absent))))}
}

func is(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return some(names) + " are"
}

func (r *repo) Open(ctx context.Context, p string) (tensor.Blob, error) {
	b, err := r.Snapshot.Open(ctx, p)
	if err != nil {
		return nil, r.missing(p, err)
	}
	r.note(p, b.Size())
	return marked{repoBlob{b, r}}, nil
}

// repoBlob notices when reading fails.
type repoBlob struct {
	tensor.Blob
	r *repo
}

func (b repoBlob) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := b.Blob.ReadAt(ctx, p, off)
	if unreachable(err) {
		b.r.mu.Lock()
		b.r.broken = true
		b.r.mu.Unlock()
	}
	return err
}

// unreachable reports whether bytes could not be had at all.
func unreachable(err error) bool {
	var e *hub.Error
	return errors.As(err, &e)
}

// sourceFiles lists the files that were asked for, by path.
func (r *repo) sourceFiles() []pipeline.SourceFile {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []pipeline.SourceFile
	for _, p := range slices.Sorted(maps.Keys(r.used)) {
		f := r.files[p]
		out = append(out, pipeline.SourceFile{Path: p, Size: r.used[p], SHA256: f.SHA256, GitOID: f.GitOID})
	}
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

func (r *remote) Repo(ctx context.Context, name, ref, path string, h Headers) (*pipeline.Source, error) {
	rp, release, err := r.repo(ctx, name, ref)
	if err != nil {
		return nil, err
	}
	m, err := again(func() (*model.Model, error) {
		if path != "" {
			return rp.loadFile(ctx, name, path, h)
		}
		return rp.load(ctx, name, h)
	}, func() bool { return rp.doubt(ctx) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", rp.Ref(), err), release())
	}
	src := &pipeline.Source{Model: m, Commit: rp.Commit, Close: release, Fetch: &snapshotFetch{rp}}
	if m == nil || !isModel(m) {
		src.Model = nil
		if path == "" {
			path = rp.ggufFiles()[0] // the only one, which holds a table
		}
		if src.Content, err = rp.Open(ctx, path); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", rp.Ref(), err), release())
		}
	}
	src.Refresh = func() { src.Files, src.Notes = rp.sourceFiles(), rp.notes() }
	src.Refresh()
	return src, nil
}

// headerFaults are what damage on the way can make of a header.
var headerFaults = [...]error{
	safetensors.ErrHeader, safetensors.ErrHeaderLimit, safetensors.ErrTruncated, safetensors.ErrFormat, safetensors.ErrIndex, safetensors.ErrShards,
	gguf.ErrFormat, gguf.ErrNotGGUF, gguf.ErrVersion, gguf.ErrByteOrder, gguf.ErrTruncated, gguf.ErrHeaderLimit, gguf.ErrDuplicate,
	gguf.ErrTensorType, gguf.ErrSplit,
}

// again loads once more if headers make no sense and other bytes come when they
// are fetched again: a few bytes of a large file prove nothing by themselves.
func again(load func() (*model.Model, error), doubt func() bool) (*model.Model, error) {
	m, err := load()
	for _, f := range headerFaults {
		if errors.Is(err, f) {
			if doubt() {
				return load()
			}
			break
		}
	}
	return m, err
}

// doubt compares what was read with the server.
func (r *repo) doubt(ctx context.Context) bool {
	changed := false
	for _, f := range r.sourceFiles() {
		c, err := r.Recheck(ctx, f.Path)
		if err != nil {
			break // what is wrong with the headers is the better message
		}
		changed = changed || c
	}
	return changed
}

// load opens the repository's model: a checkpoint by its config.json, else the
// only GGUF file there is, else Needle's checkpoint or archive. Repositories of GGUF files often have a config.json
// too.
func (r *repo) load(ctx context.Context, name string, h Headers) (*model.Model, error) {
	if _, ok := r.files[model.ConfigName]; ok {
		opt := h.hf(name)
		opt.FileKey = r.keyOf
		m, err := model.LoadHF(ctx, r, opt)
		if !errors.Is(err, safetensors.ErrNoWeights) {
			return m, err
		}
		if len(r.ggufFiles()) == 0 {
			// A repository of Needle's own form may have a config for other programs.
			return needleIn(ctx, r, err, r.needle(name, h))
		}
	}
	switch list := r.ggufFiles(); len(list) {
	case 0:
		why := fmt.Errorf("%w: neither config.json, nor a GGUF file, nor a Needle checkpoint or archive is in the repository", ErrKind)
		return needleIn(ctx, r, why, r.needle(name, h))
	case 1:
		m, _, err := model.LoadGGUF(ctx, list[0], r.Open, h.gguf(name, r.ggufKey(list[0])))
		return m, err
	default:
		return nil, fmt.Errorf("%w: the repository has %d GGUF files, %s; name one with path", ErrKind, len(list), some(list))
	}
}

// keyOf identifies the content of a file.
func (r *repo) keyOf(f model.FileInfo) tensor.Key { return fileKey(r.files[f.Path]) }

func (r *repo) needle(name string, h Headers) needle.FolderOptions {
	return needle.FolderOptions{Source: name, MaxHeader: h.Max, FileKey: r.keyOf}
}

// loadFile opens one file of the repository: a model, or nil for a file that is
// none.
func (r *repo) loadFile(ctx context.Context, name, p string, h Headers) (*model.Model, error) {
	if _, ok := r.files[p]; !ok {
		return nil, fmt.Errorf("%s is not in the repository: %w; it has %s", p, fs.ErrNotExist, some(slices.Sorted(maps.Keys(r.files))))
	}
	content, err := r.Open(ctx, p)
	if err != nil {
		return nil, err
	}
	head := make([]byte, min(headBytes, content.Size()))
	if err := content.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte("GGUF")) {
		m, _, err := model.LoadGGUF(ctx, p, r.Open, h.gguf(name, r.ggufKey(p)))
		return m, err
	}
	return loadSingle(ctx, head, p, content, name, fileKey(r.files[p]), h)
}

// ggufFiles lists the repository's GGUF files, of split ones the first shards.
func (r *repo) ggufFiles() []string {
	var out []string
	for p := range r.files {
		if !strings.HasSuffix(p, ".gguf") {
			continue
		}
		if _, i, _, ok := gguf.ParseSplitName(p); !ok || i == 0 {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// ggufKey identifies the content of a GGUF file, all shards together, as
// folder.key does.
func (r *repo) ggufKey(first string) tensor.Key {
	stem, _, n, ok := gguf.ParseSplitName(first)
	if !ok || n == 1 {
		return fileKey(r.files[first])
	}
	var all []byte
	for i := range n {
		f := r.files[gguf.SplitName(stem, i, n)]
		if f.SHA256 == "" {
			return tensor.Key{}
		}
		all = append(all, f.SHA256...)
	}
	return tensor.Derive("files", string(all))
}

// some shortens a list of names for a message.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// snapshotFetch drives a snapshot.
type snapshotFetch struct{ r *repo }

func (f *snapshotFetch) Need(ctx context.Context, ranges []tensor.Extent) error {
	for len(ranges) > 0 {
		n := 1
		for n < len(ranges) && ranges[n].File == ranges[0].File {
			n++
		}
		if err := f.r.Snapshot.Need(ctx, ranges[0].File, runs(ranges[:n])); err != nil {
			return err
		}
		ranges = ranges[n:]
	}
	return f.r.Prefetch()
}

// Missing gathers the ranges of each file: one may be asked for twice.
func (f *snapshotFetch) Missing(ctx context.Context, ranges []tensor.Extent) (int64, error) {
	byFile := map[string][]tensor.Extent{}
	for _, x := range ranges {
		byFile[x.File] = append(byFile[x.File], x)
	}
	var all int64
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		n, err := f.r.Snapshot.Missing(ctx, file, runs(byFile[file]))
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

// Finish has nothing to verify where reading failed, and does not ask an
// unreachable server for the rest.
func (f *snapshotFetch) Finish(ctx context.Context) error {
	f.r.mu.Lock()
	broken := f.r.broken
	f.r.broken = false
	f.r.mu.Unlock()
	if broken {
		return nil
	}
	return repaired(f.r.Snapshot.Finish(ctx))
}

func (f *snapshotFetch) Recheck(ctx context.Context, ranges []tensor.Extent) (bool, error) {
	changed := false
	for _, x := range ranges {
		c, err := f.r.Snapshot.Recheck(ctx, x.File, hub.Range{Off: x.Offset, Len: x.Bytes})
		if err != nil {
			return changed, err
		}
		changed = changed || c
	}
	return changed, nil
}

func repaired(err error) error {
	if errors.Is(err, hub.ErrRepaired) {
		return fmt.Errorf("%w: %w", pipeline.ErrRepaired, err)
	}
	return err
}

func (f *snapshotFetch) Proved(file string) bool { return f.r.Snapshot.Proved(file) }

func (f *snapshotFetch) Stats() pipeline.FetchStats { return stats(f.r.Snapshot.Stats()) }

func stats(s hub.Stats) pipeline.FetchStats {
	return pipeline.FetchStats{Needed: s.Needed, Fetched: s.Fetched, Cached: s.FromCache + s.FromSpool, Requests: s.Requests, Retries: s.Retries}
}

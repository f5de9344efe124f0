package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"

	"quern/model"
	"quern/tensor"
)

// SnapshotOptions come from a lock file. The zero value asks the server.
type SnapshotOptions struct {
	// Commit is used in place of what the revision is now.
	Commit string
	// Files is the listing of Commit. With both, nothing is asked before
	// bytes are read.
	Files []File
	// Ranges are digests that parts of files must have, by path. Finish
	// checks those whose bytes are all there.
	Ranges map[string][]RangeDigest
}

// Snapshot is a repository at one commit: a model.FileSet whose files are read
// from the cache, the spool or by ranges over HTTP. It must be closed.
type Snapshot struct {
	c   *Client
	ref Ref
	// Commit is the 40-digit commit that every byte comes from.
	Commit string
	files  []File
	ranges map[string][]RangeDigest
	// claims: the listing is made from the cache's file names and proves
	// nothing until the bytes have been hashed.
	claims bool
	caches []cacheRepo
	eng    *engine
	api    counters

	mu      sync.Mutex
	handles map[string]*handle
	small   map[string][]byte
	kept    int64
	record  recorder
}

var _ model.FileSet = (*Snapshot)(nil)

// Snapshot pins ref to a commit and lists its files. When the server cannot be
// asked (no network, 5xx, 401, still limited after the retries) the commit that
// the cache has for the revision is used; a revision that does not exist never
// falls back.
func (c *Client) Snapshot(ctx context.Context, ref Ref, opt SnapshotOptions) (*Snapshot, error) {
	if err := ref.Validate(); err != nil {
		return nil, err
	}
	if opt.Commit != "" && !IsCommit(opt.Commit) {
		return nil, fmt.Errorf("%w: commit %q is not 40 hex digits", ErrRef, clean(opt.Commit))
	}
	s := &Snapshot{
		c: c, ref: ref, ranges: opt.Ranges, caches: c.cacheRepos(ref),
		handles: map[string]*handle{}, small: map[string][]byte{},
	}
	var err error
	if s.Commit, err = s.pin(ctx, opt); err != nil {
		return nil, err
	}
	if s.files, err = s.list(ctx, opt); err != nil {
		return nil, err
	}
	s.eng = c.newEngine(ctx, c.opt.SpoolDir != "")
	s.record = recorder{dir: c.opt.SpoolDir, dirty: true, soon: true}
	return s, nil
}

func (s *Snapshot) what(path string) string {
	w := s.ref.String()
	if s.ref.Revision != s.Commit && s.Commit != "" {
		w = s.ref.Repo + "@" + s.Commit[:12]
	}
	if path != "" {
		w += ": " + path
	}
	return w
}

func (s *Snapshot) pin(ctx context.Context, opt SnapshotOptions) (string, error) {
	switch {
	case opt.Commit != "":
		return opt.Commit, nil
	case IsCommit(s.ref.Revision):
		return s.ref.Revision, nil
	case s.c.opt.Offline:
		commit, ok := s.cachedCommit()
		if !ok {
			return "", &Error{Kind: ErrOffline, What: s.ref.String(), Hint: "run once without offline mode (HF_HUB_OFFLINE, --offline)"}
		}
		return commit, nil
	}
	commit, err := s.c.pin(ctx, s.ref, &s.api)
	if err == nil || !fallsBack(err) {
		return commit, err
	}
	if commit, ok := s.cachedCommit(); ok {
		s.c.event(Event{Kind: EventFallback, What: s.ref.String(), Text: fmt.Sprintf("using commit %s of the cache: %v", commit, err)})
		return commit, nil
	}
	return "", err
}

// cachedCommit is what the revision was when it was last seen: by other tools
// (their cache), else by us (the spool).
func (s *Snapshot) cachedCommit() (string, bool) {
	for _, r := range s.caches {
		if commit, err := r.ref(s.ref.Revision); err == nil {
			return commit, true
		}
	}
	return spooledCommit(s.c.opt.SpoolDir, s.ref)
}

// fallsBack: the metadata could not be had, as opposed to an answer that says
// the thing does not exist.
func fallsBack(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Kind == ErrNetwork || e.Kind == ErrRateLimited || e.Status >= 500 || e.Status == http.StatusUnauthorized
}

// list finds the listing of the commit: the lock's, the cache's, the server's,
// or, when there is no server, what is left of it.
func (s *Snapshot) list(ctx context.Context, opt SnapshotOptions) ([]File, error) {
	if opt.Files != nil && opt.Commit != "" {
		files := slices.Clone(opt.Files)
		for _, f := range files {
			if err := checkPath(f.Path); err != nil {
				return nil, about(s.ref.String(), err)
			}
			if d := f.Digest(); !d.IsZero() && !d.valid() {
				return nil, fmt.Errorf("%s: %w: digest %s", s.what(f.Path), ErrListing, clean(d.String()))
			}
		}
		return sortFiles(s.what(""), files)
	}
	for _, r := range s.caches {
		files, err := r.tree(s.Commit)
		if err == nil {
			return files, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			s.c.event(Event{Kind: EventCache, What: s.what(""), Text: fmt.Sprintf("the cache's listing is not used: %v", err)})
		}
	}
	var err error
	if !s.c.opt.Offline {
		var files []File
		if files, err = s.c.tree(ctx, s.ref, s.Commit, &s.api); err == nil || !fallsBack(err) {
			return files, err
		}
	}
	if files, ok := spooledListing(s.c.opt.SpoolDir, s.ref, s.Commit); ok {
		return files, nil
	}
	for _, r := range s.caches {
		files, werr := r.walk(s.Commit)
		if werr == nil && len(files) > 0 {
			s.claims = true
			if err != nil {
				s.c.event(Event{Kind: EventFallback, What: s.what(""), Text: fmt.Sprintf("listing only what the cache holds: %v", err)})
			}
			return files, nil
		}
		if werr != nil && !errors.Is(werr, fs.ErrNotExist) {
			return nil, about(s.what(""), werr)
		}
	}
	if err == nil {
		err = &Error{Kind: ErrOffline, What: s.what(""), Hint: "run once without offline mode (HF_HUB_OFFLINE, --offline)"}
	}
	return nil, err
}

// Name is the repository's last name.
func (s *Snapshot) Name() string { return s.ref.Name() }

// Ref is what was asked for.
func (s *Snapshot) Ref() Ref { return s.ref }

// Files is the listing with digests, sorted by path, for a lock file.
func (s *Snapshot) Files() []File { return slices.Clone(s.files) }

// List gives the files by path. A size of -1 means that the server does not
// tell; Open finds it out.
func (s *Snapshot) List(context.Context) ([]model.FileInfo, error) {
	out := make([]model.FileInfo, len(s.files))
	for i, f := range s.files {
		out[i] = model.FileInfo{Path: f.Path, Size: f.Size, SHA256: f.SHA256}
	}
	return out, nil
}

// lookup finds a file in the listing. A listing made from the cache may lack
// files, so that absence is only certain where the cache has noted it.
func (s *Snapshot) lookup(path string) (File, error) {
	i := sort.Search(len(s.files), func(i int) bool { return s.files[i].Path >= path })
	if i < len(s.files) && s.files[i].Path == path {
		return s.files[i], nil
	}
	if s.claims {
		known := slices.ContainsFunc(s.caches, func(r cacheRepo) bool { return checkPath(path) == nil && r.absent(s.Commit, path) })
		if !known {
			return File{}, &Error{Kind: ErrOffline, What: s.what(path), Hint: "the cache holds only a part of this commit; run once with a connection"}
		}
	}
	return File{}, &Error{Kind: ErrNotFound, What: s.what(path), Hint: "check the file name against the repository's listing"}
}

// handle gives the one handle of a path.
func (s *Snapshot) handle(path string) (*handle, error) {
	f, err := s.lookup(path)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.handles[path]
	if h == nil {
		h = &handle{snap: s, file: f, what: s.what(path)}
		s.handles[path] = h
		s.record.dirty = true
	}
	return h, nil
}

// all lists the handles by path.
func (s *Snapshot) all() []*handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*handle, 0, len(s.handles))
	for _, h := range s.handles {
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b *handle) int { return strings.Compare(a.file.Path, b.file.Path) })
	return out
}

// Open gives random access to a file. It sends a request only when the file's
// size is not known. Undeclared reads at a file's start fetch some more at
// once, for headers.
func (s *Snapshot) Open(ctx context.Context, path string) (tensor.Blob, error) {
	h, err := s.handle(path)
	if err != nil {
		return nil, err
	}
	if err := h.open(ctx); err != nil {
		return nil, err
	}
	return h, nil
}

// smallFile and smallTotal bound what ReadFile remembers without a spool.
const (
	smallFile  = 1 << 20
	smallTotal = 8 << 20
)

// ReadFile returns a whole file, checked against its digest.
func (s *Snapshot) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	h, err := s.handle(path)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	b, ok := s.small[path]
	s.mu.Unlock()
	if ok && int64(len(b)) <= limit {
		return slices.Clone(b), nil
	}
	if b, err = h.readAll(ctx, limit); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := int64(len(b)); n <= smallFile && s.kept+n <= smallTotal && s.small[path] == nil {
		s.small[path] = slices.Clone(b)
		s.kept += n
	}
	return b, nil
}

// Need declares ranges of a file that will be read, in the order of reading;
// further calls come after the earlier ones, whatever the file. It only notes
// them: fetching begins with Prefetch or with the first read. Neighbouring
// ranges are fetched together.
func (s *Snapshot) Need(ctx context.Context, path string, ranges []Range) error {
	h, err := s.handle(path)
	if err != nil {
		return err
	}
	if err := h.open(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.record.dirty, s.record.soon = true, true
	s.mu.Unlock()
	return h.need(ranges)
}

// Prefetch starts to fetch what was declared. It fails when the disk of the
// spool has no room for it.
func (s *Snapshot) Prefetch() error {
	if err := s.save(); err != nil {
		return err
	}
	if err := s.room(); err != nil {
		return err
	}
	s.eng.start()
	return nil
}

// Stats tell what was needed and what it cost.
type Stats struct {
	// Needed counts the bytes that were declared or read, headers as they are
	// fetched; each once. FromCache and FromSpool are the parts of it that
	// were there before.
	Needed, FromCache, FromSpool int64
	// Fetched counts the bytes of files that came over the network.
	Fetched int64
	// Requests counts all requests, redirects and metadata included; Retries
	// those that were sent again.
	Requests, Retries int64
}

// Stats gives the counts so far.
func (s *Snapshot) Stats() Stats {
	st := Stats{
		Fetched:  s.eng.count.fetched.Load(),
		Requests: s.eng.count.requests.Load() + s.api.requests.Load(),
		Retries:  s.eng.count.retries.Load() + s.api.retries.Load(),
	}
	for _, h := range s.all() {
		h.addTo(&st)
	}
	return st
}

// Close stops fetching and closes the files. Blobs of the snapshot fail after
// it.
func (s *Snapshot) Close() error {
	s.eng.close()
	errs := []error{s.save()}
	for _, h := range s.all() {
		errs = append(errs, h.close())
	}
	return errors.Join(errs...)
}

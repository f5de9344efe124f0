package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
)

// freeHead is how far a large cached file may be read before it has been
// hashed: enough for a header, so that a plan does not read gigabytes. What is
// read of it is checked with the rest, at the latest by Finish.
const freeHead = 32 << 20

// handle is one file of a snapshot. It reads the cache's copy as long as that
// is believed, and by ranges otherwise. It is a tensor.Blob.
type handle struct {
	snap *Snapshot
	file File
	what string

	mu     sync.Mutex
	local  *local
	bad    *local // a local copy that was wrong; a reader may still be in it
	remote *remote
	needs  []Range // declared while the local copy was used
	dirty  bool    // bytes of a bad local copy were given out
	closed bool
}

// local is a cached copy.
type local struct {
	f      *os.File
	path   string
	size   int64
	expect Digest // zero: there is nothing to check against
	proved bool
	used   spans
}

// open chooses where to read from.
func (h *handle) open(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return about(h.what, ErrClosed)
	case h.local != nil || h.remote != nil:
		return nil
	}
	found, err := h.openLocal()
	if err != nil || found {
		return err
	}
	return h.openRemote(ctx)
}

// openLocal looks in the caches. A copy of the wrong length is an error
// offline and passed over otherwise. It is called with h.mu held.
func (h *handle) openLocal() (bool, error) {
	for _, r := range h.snap.caches {
		c, err := r.find(h.snap.Commit, h.file.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && h.file.Size >= 0 && c.size != h.file.Size {
			err = &Error{Kind: ErrSize, What: h.what, Err: fmt.Errorf("cached %s has %d bytes, expected %d", c.path, c.size, h.file.Size),
				Hint: "remove it, or run with a connection to fetch the file again"}
		}
		if err == nil {
			err = h.useLocal(c)
		}
		if err == nil {
			return true, nil
		}
		if h.snap.c.opt.Offline {
			return false, about(h.what, err)
		}
		h.snap.c.event(Event{Kind: EventCache, What: h.what, Text: fmt.Sprintf("the cached copy is not used: %v", err)})
	}
	return false, nil
}

func (h *handle) useLocal(c cached) error {
	f, err := os.Open(c.path)
	if err != nil {
		return err
	}
	l := &local{f: f, path: c.path, size: c.size, expect: h.file.Digest()}
	if l.expect.IsZero() {
		l.expect = c.claim
	}
	if l.expect.IsZero() {
		l.proved = true
		h.snap.c.event(Event{Kind: EventCache, What: h.what, Text: "no digest is known for the cached copy; it is used unchecked"})
	}
	h.local = l
	return nil
}

// openRemote prepares reading by ranges. It is called with h.mu held.
func (h *handle) openRemote(ctx context.Context) error {
	s := h.snap
	u, err := s.c.address("/" + escapeSegments(s.ref.Repo) + "/resolve/" + url.PathEscape(s.Commit) + "/" + escapeSegments(h.file.Path))
	if err != nil {
		return about(h.what, err)
	}
	l := s.c.newLocator(h.what, u, h.file.Size, &s.eng.count)
	l.hub, l.commit, l.digest, l.page = true, s.Commit, h.file.Digest(), isPage(h.file.Path)
	if h.file.Size < 0 {
		if err := l.measure(ctx); err != nil {
			return err
		}
	}
	f := &remote{eng: s.eng, what: h.what, size: l.knownSize(), digest: l.digest, loc: l, expect: s.ranges[h.file.Path]}
	if dir := s.c.opt.SpoolDir; dir != "" {
		name := entryName(f.digest)
		if name == "" {
			// A commit pins the content where no digest is known.
			name = keyedName("commit", s.ref.Repo, s.Commit, h.file.Path)
		}
		if f.spool, err = openSpool(dir, name, entryInfo{What: h.what, Digest: digestText(f.digest), Size: f.size}, s.c.opt.hooks); err != nil {
			return err
		}
	}
	h.remote = f
	s.eng.add(f)
	if len(h.needs) > 0 {
		return s.eng.declare(f, h.needs)
	}
	return nil
}

// isPage: the file is HTML by its name.
func isPage(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".html", ".htm", ".xhtml":
		return true
	}
	return false
}

// Size is the file's length.
func (h *handle) Size() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.remote != nil:
		return h.remote.size
	case h.local != nil:
		return h.local.size
	}
	return max(h.file.Size, 0)
}

// ReadAt fills p from off.
func (h *handle) ReadAt(ctx context.Context, p []byte, off int64) error {
	if size := h.Size(); off < 0 || off > size || int64(len(p)) > size-off {
		return fmt.Errorf("%s: %w: %d bytes at offset %d of %d", h.what, io.ErrUnexpectedEOF, len(p), off, size)
	}
	f, l, err := h.source(ctx, span{off, off + int64(len(p))})
	if err != nil {
		return err
	}
	if f != nil {
		if err := h.snap.saveSoon(); err != nil {
			return err
		}
		return f.ReadAt(ctx, p, off)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if _, err := readFullAt(l.f, p, off); err != nil {
		return fmt.Errorf("%s: cached %s: %w", h.what, l.path, err)
	}
	return nil
}

// source returns what to read x from: the remote file, or the local copy,
// which is hashed before x is believed.
func (h *handle) source(ctx context.Context, x span) (*remote, *local, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, about(h.what, ErrClosed)
	}
	if h.remote == nil && (h.snap.claims || h.local.size <= freeHead || x.hi > freeHead) {
		if err := h.prove(ctx); err != nil {
			return nil, nil, err
		}
	}
	if h.remote != nil {
		return h.remote, nil, nil
	}
	h.local.used = h.local.used.add(x)
	return nil, h.local, nil
}

// prove hashes the local copy. A bad one is an error offline; with a
// connection the file is read from the server instead. It is called with h.mu
// held.
func (h *handle) prove(ctx context.Context) error {
	l := h.local
	if l == nil || l.proved {
		return nil
	}
	found, err := hashFile(ctx, l.f, l.size, l.expect)
	if err != nil {
		return about(h.what, err)
	}
	if found == l.expect.Hex {
		l.proved = true
		return nil
	}
	bad := &Error{Kind: ErrDigest, What: h.what, Err: fmt.Errorf("cached %s: expected %s, found %s", l.path, l.expect, found),
		Hint: "remove it, or run with a connection to fetch the file again"}
	if h.snap.c.opt.Offline {
		return bad
	}
	h.snap.c.event(Event{Kind: EventCache, What: h.what, Text: bad.Error()})
	h.dirty = h.dirty || len(l.used) > 0
	if err := h.openRemote(ctx); err != nil {
		return err
	}
	h.local, h.bad = nil, l
	return nil
}

func (h *handle) need(ranges []Range) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.remote != nil {
		return h.snap.eng.declare(h.remote, ranges)
	}
	for _, r := range ranges {
		if r.Off < 0 || r.Len < 0 || r.Off > h.local.size || r.Len > h.local.size-r.Off {
			return fmt.Errorf("%s: %w: need of %d bytes at offset %d of %d", h.what, ErrRange, r.Len, r.Off, h.local.size)
		}
		h.local.used = h.local.used.add(span{r.Off, r.Off + r.Len})
	}
	h.needs = append(h.needs, ranges...)
	return nil
}

// readAll returns the whole file, proved.
func (h *handle) readAll(ctx context.Context, limit int64) ([]byte, error) {
	large := func(n int64) error {
		return &Error{Kind: ErrTooLarge, What: h.what, Err: fmt.Errorf("%d bytes, at most %d are read", n, limit)}
	}
	if h.file.Size > limit {
		return nil, large(h.file.Size)
	}
	if err := h.open(ctx); err != nil {
		return nil, err
	}
	n := h.Size()
	if n > limit {
		return nil, large(n)
	}
	f, _, err := h.source(ctx, span{0, n})
	if err != nil {
		return nil, err
	}
	if f != nil {
		return f.readProved(ctx)
	}
	if err := h.proveAll(ctx); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	return b, h.ReadAt(ctx, b, 0)
}

func (h *handle) proveAll(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.prove(ctx)
}

func (h *handle) addTo(st *Stats) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.local != nil {
		n := h.local.used.total()
		st.Needed += n
		st.FromCache += n
	}
	if h.remote != nil {
		h.remote.addTo(st)
	}
}

func (f *remote) addTo(st *Stats) {
	f.eng.mu.Lock()
	needs := append(spans(nil), f.needs...)
	var before spans
	for _, x := range needs {
		for _, m := range f.fetched.missing(x) {
			before = before.add(m)
		}
	}
	f.eng.mu.Unlock()
	st.Needed += needs.total()
	if f.spool != nil {
		st.FromSpool += f.spool.held(before)
	}
}

func (h *handle) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	var errs []error
	for _, l := range []*local{h.local, h.bad} {
		if l != nil {
			errs = append(errs, l.f.Close())
		}
	}
	if h.remote != nil && h.remote.spool != nil {
		errs = append(errs, h.remote.spool.close())
	}
	return errors.Join(errs...)
}

package hub

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"quern/hub/hubtest"
)

// fakeClock passes time only by sleeping, and sleeps in no time.
type fakeClock struct {
	mu    sync.Mutex
	now   time.Time
	slept []time.Duration
}

func newFakeClock() *fakeClock { return &fakeClock{now: time.Unix(1_700_000_000, 0)} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.slept = append(c.slept, d)
	return context.Cause(ctx)
}

func (c *fakeClock) total() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var t time.Duration
	for _, d := range c.slept {
		t += d
	}
	return t
}

// events collects what a client reports.
type events struct {
	mu   sync.Mutex
	list []Event
}

func (e *events) add(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

func (e *events) of(kind EventKind) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Event
	for _, ev := range e.list {
		if ev.Kind == kind {
			out = append(out, ev)
		}
	}
	return out
}

// rig is a hub with one repository and a client for it.
type rig struct {
	t      *testing.T
	hub    *hubtest.Hub
	repo   *hubtest.Repo
	commit string
	clock  *fakeClock
	events *events
	spool  string
}

const rigID = "org/toy"

// noise is n bytes that do not repeat.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

func newRig(t *testing.T, opt hubtest.Options, files map[string]*hubtest.File) *rig {
	t.Helper()
	repo := hubtest.NewRepo(rigID)
	r := &rig{t: t, repo: repo, commit: repo.Commit(files), clock: newFakeClock(), events: &events{}, spool: filepath.Join(t.TempDir(), "spool")}
	r.hub = hubtest.New(t, opt, repo)
	return r
}

func (r *rig) client(change ...func(*Options)) *Client {
	r.t.Helper()
	o := Options{Endpoint: r.hub.URL, SpoolDir: r.spool, Clock: r.clock, Events: r.events.add, MaxWait: time.Hour}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) snapshot(c *Client) *Snapshot {
	r.t.Helper()
	s, err := c.Snapshot(r.t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
	if err != nil {
		r.t.Fatalf("snapshot: %v", err)
	}
	r.t.Cleanup(func() { s.Close() })
	return s
}

func inMemory(o *Options)               { o.SpoolDir = "" }
func withToken(t string) func(*Options) { return func(o *Options) { o.Token = t } }
func offline(o *Options)                { o.Offline = true }

func read(t *testing.T, s *Snapshot, path string, off, n int64) []byte {
	t.Helper()
	b, err := s.Open(t.Context(), path)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	p := make([]byte, n)
	if err := b.ReadAt(t.Context(), p, off); err != nil {
		t.Fatalf("read %s [%d,%d): %v", path, off, off+n, err)
	}
	return p
}

func wantBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes differ from the expected %d", what, len(got), len(want))
	}
}

// listDir names everything below a folder, for looking for leftovers.
func listDir(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if rel, _ := filepath.Rel(dir, p); rel != "." {
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out
}

func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }

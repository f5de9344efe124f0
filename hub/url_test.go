package hub

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"quern/hub/hubtest"
)

// site is a plain HTTP server with one file, without a hub's habits.
type site struct {
	*httptest.Server
	mu       sync.Mutex
	data     []byte
	etag     string // with its quotes
	modified time.Time
	mode     string
	requests []*http.Request
	cut      int // break off after so many bytes, once
}

func newSite(t *testing.T, data []byte, mode string) *site {
	s := &site{data: data, mode: mode, etag: `"v1"`}
	s.Server = httptest.NewServer(s)
	s.Config.ErrorLog = quietLog()
	t.Cleanup(s.Close)
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	data, mode, cut := s.data, s.mode, s.cut
	s.cut = 0
	if s.etag != "" {
		w.Header().Set("ETag", s.etag)
	}
	modified := s.modified
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/octet-stream")
	if !modified.IsZero() {
		w.Header().Set("Last-Modified", modified.UTC().Format(http.TimeFormat))
	}
	if r.Header.Get("Authorization") != "" {
		panic("a token at a plain site")
	}
	if cut > 0 {
		w = &cutter{w, cut}
	}
	switch mode {
	case "ranges":
		http.ServeContent(w, r, "", modified, bytes.NewReader(data))
	case "no ranges":
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data)
	case "no length":
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		w.Write(data)
	}
}

type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.ResponseWriter.Write(p[:n])
	if c.left -= n; c.left == 0 {
		http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (s *site) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func sumHex(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func TestURLKindsOfServers(t *testing.T) {
	data := noise(70, 700_000)
	for _, mode := range []string{"ranges", "no ranges", "no length"} {
		for _, spool := range []bool{true, false} {
			for _, digest := range []string{"", sumHex(data)} {
				name := fmt.Sprintf("%s, spool %v, digest %v", mode, spool, digest != "")
				s := newSite(t, data, mode)
				o := Options{Clock: newFakeClock(), Token: "secret"}
				if spool {
					o.SpoolDir = t.TempDir()
				}
				c, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				f, err := c.OpenURL(t.Context(), s.URL+"/dir/model%20a.gguf?sig=secret", URLOptions{SHA256: digest})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if f.Size() != int64(len(data)) || f.Name() != "model a.gguf" || f.Validator() != "etag v1" {
					t.Errorf("%s: size %d, name %q, validator %q", name, f.Size(), f.Name(), f.Validator())
				}
				for _, off := range []int64{500_000, 0, 100} {
					p := make([]byte, 100_000)
					if err := f.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, data[off:off+100_000]) {
						t.Errorf("%s: at %d: %v", name, off, err)
					}
				}
				got, err := f.ReadAll(t.Context(), 1<<20)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: whole: %v", name, err)
				}
				if err := f.Finish(t.Context()); err != nil {
					t.Errorf("%s: finish: %v", name, err)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestURLDigestMismatch(t *testing.T) {
	data := noise(71, 50_000)
	s := newSite(t, data, "ranges")
	c, err := New(Options{Clock: newFakeClock(), SpoolDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("ab", 32)
	f, err := c.OpenURL(t.Context(), s.URL+"/x", URLOptions{SHA256: want})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAll(t.Context(), 1<<20); !errors.Is(err, ErrDigest) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), sumHex(data)) {
		t.Errorf("%v", err)
	}
}

// TestURLResumes: a second run goes on where the first was, as long as the
// server says that the file is the same.
func TestURLResumes(t *testing.T) {
	data := noise(72, 400_000)
	date := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name   string
		digest string
		etag   string
		date   time.Time
		after  func(*site)
		again  int64 // bytes fetched in the second run
	}{
		{"etag", "", `"v1"`, time.Time{}, func(*site) {}, 200_000},
		{"date", "", "", date, func(*site) {}, 200_000},
		{"weak etag and date", "", `W/"x"`, date, func(*site) {}, 200_000},
		{"nothing to go by", "", "", time.Time{}, func(*site) {}, 400_000},
		{"new etag", "", `"v1"`, time.Time{}, func(s *site) { s.etag = `"v2"` }, 400_000},
		{"new date", "", "", date, func(s *site) { s.modified = date.Add(time.Hour) }, 400_000},
		{"digest, new etag", sumHex(data), `"v1"`, time.Time{}, func(s *site) { s.etag = `"v2"` }, 200_000},
	} {
		s := newSite(t, data, "ranges")
		s.etag, s.modified = c.etag, c.date
		dir := t.TempDir()
		open := func() *URLFile {
			cl, err := New(Options{Clock: newFakeClock(), SpoolDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			f, err := cl.OpenURL(t.Context(), s.URL+"/x?signature=changes", URLOptions{SHA256: c.digest})
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		f := open()
		if err := f.Need([]Range{{0, 200_000}}); err != nil {
			t.Fatal(err)
		}
		if err := f.ReadAt(t.Context(), make([]byte, 200_000), 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		c.after(s)
		f = open()
		got, err := f.ReadAll(t.Context(), 1<<20)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %v", c.name, err)
		}
		if st := f.Stats(); st.Fetched != c.again {
			t.Errorf("%s: %d bytes fetched, want %d", c.name, st.Fetched, c.again)
		}
		f.Close()
		if c.name == "nothing to go by" {
			list, _ := os.ReadDir(dir)
			for _, d := range list {
				if strings.HasPrefix(d.Name(), "once-") {
					t.Errorf("left behind: %s", d.Name())
				}
			}
		}
	}
}

// TestURLChangesWhileRead: If-Range makes the server send the new file, and
// its other validator shows that it is one.
func TestURLChangesWhileRead(t *testing.T) {
	for _, byDate := range []bool{false, true} {
		data := noise(73, 400_000)
		s := newSite(t, data, "ranges")
		if byDate {
			s.etag, s.modified = "", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		}
		c, err := New(Options{Clock: newFakeClock()})
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.OpenURL(t.Context(), s.URL+"/x", URLOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.ReadAt(t.Context(), make([]byte, 10), 0); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.data = noise(74, 400_000)
		s.etag, s.modified = `"v2"`, s.modified.Add(time.Hour)
		if byDate {
			s.etag = ""
		}
		s.mu.Unlock()
		if err := f.ReadAt(t.Context(), make([]byte, 10), 300_000); !errors.Is(err, ErrChanged) {
			t.Errorf("by date %v: %v", byDate, err)
		}
		f.Close()
	}
}

func TestURLRefusals(t *testing.T) {
	c, err := New(Options{Clock: newFakeClock()})
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{"", "x", "file:///etc/passwd", "ftp://h/x", "http:///x", "https://user:secret@h/x", "http://h:port/x"} {
		if _, err := c.OpenURL(t.Context(), raw, URLOptions{}); !errors.Is(err, ErrOptions) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", raw, err)
		}
	}
	if _, err := c.OpenURL(t.Context(), "http://h/x", URLOptions{SHA256: "AB"}); !errors.Is(err, ErrOptions) {
		t.Errorf("digest: %v", err)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte("<html>log in</html>"))
	}))
	defer page.Close()
	if _, err := c.OpenURL(t.Context(), page.URL+"/model.gguf", URLOptions{}); !errors.Is(err, ErrHTML) {
		t.Errorf("a page: %v", err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	if _, err := c.OpenURL(t.Context(), gone.URL+"/model.gguf?sig=secret", URLOptions{}); !errors.Is(err, ErrNotFound) || strings.Contains(err.Error(), "secret") {
		t.Errorf("404: %v", err)
	}
}

func TestURLEmptyFile(t *testing.T) {
	for _, mode := range []string{"ranges", "no ranges", "no length"} {
		s := newSite(t, nil, mode)
		c, err := New(Options{Clock: newFakeClock(), SpoolDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.OpenURL(t.Context(), s.URL+"/x", URLOptions{})
		if err != nil || f.Size() != 0 {
			t.Errorf("%s: %v", mode, err)
			continue
		}
		if b, err := f.ReadAll(t.Context(), 10); err != nil || len(b) != 0 {
			t.Errorf("%s: %q, %v", mode, b, err)
		}
		f.Close()
	}
}

func TestURLCutsAndOffline(t *testing.T) {
	data := noise(75, 300_000)
	s := newSite(t, data, "no ranges")
	s.cut = 100
	dir := t.TempDir()
	c, err := New(Options{Clock: newFakeClock(), SpoolDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.OpenURL(t.Context(), s.URL+"/x", URLOptions{SHA256: sumHex(data), Size: int64(len(data))})
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.ReadAll(t.Context(), 1<<20)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("cut: %v", err)
	}
	if n := s.count(); n != 2 {
		t.Errorf("%d requests", n)
	}
	f.Close()
	// With the digest and all of it in the spool nobody is asked.
	off, err := New(Options{Clock: newFakeClock(), SpoolDir: dir, Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	if f, err = off.OpenURL(t.Context(), s.URL+"/x", URLOptions{SHA256: sumHex(data)}); err != nil {
		t.Fatal(err)
	}
	if got, err = f.ReadAll(t.Context(), 1<<20); err != nil || !bytes.Equal(got, data) || s.count() != 2 {
		t.Errorf("offline: %v, %d requests", err, s.count())
	}
	f.Close()
	if _, err := off.OpenURL(t.Context(), s.URL+"/y", URLOptions{}); !errors.Is(err, ErrOffline) {
		t.Errorf("offline and unknown: %v", err)
	}
}

func TestURLAtTheHubGetsTheToken(t *testing.T) {
	repo := hubtest.NewRepo(rigID)
	repo.Private = true
	data := noise(76, 1000)
	repo.Commit(map[string]*hubtest.File{"w": hubtest.LFS(data)})
	h := hubtest.New(t, hubtest.Options{Tokens: map[string][]string{"good": {rigID}}}, repo)
	c, err := New(Options{Endpoint: h.URL, Token: "good", Clock: newFakeClock()})
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.OpenURL(t.Context(), h.URL+"/"+rigID+"/resolve/main/w", URLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := f.ReadAll(t.Context(), 1000); err != nil || !bytes.Equal(b, data) {
		t.Errorf("%v", err)
	}
}

// TestLockedSnapshotAsksNothing: with commit and listing from a lock file, only
// bytes are requested.
func TestLockedSnapshotAsksNothing(t *testing.T) {
	files := toyFiles()
	r := newRig(t, hubtest.Options{}, files)
	listing := r.snapshot(r.client()).Files()
	r.hub.ResetLog()
	s, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{Commit: r.commit, Files: listing})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := r.hub.Count(hubtest.Any, ""); n != 0 {
		t.Errorf("%d requests", n)
	}
	fetchAll(t, s, files)
	for _, q := range r.hub.Requests() {
		if q.Kind != hubtest.Resolve && q.Kind != hubtest.ResolveCache && q.Kind != hubtest.CDN {
			t.Errorf("%s %s", q.Kind, q.URL)
		}
	}
	for name, bad := range map[string]SnapshotOptions{
		"commit": {Commit: "main"},
		"path":   {Commit: r.commit, Files: []File{{Path: "../x"}}},
		"digest": {Commit: r.commit, Files: []File{{Path: "x", SHA256: "zz"}}},
		"twice":  {Commit: r.commit, Files: []File{{Path: "x", Size: 1}, {Path: "x", Size: 2}}},
	} {
		if _, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, bad); err == nil {
			t.Errorf("bad lock (%s) is taken", name)
		}
	}
}

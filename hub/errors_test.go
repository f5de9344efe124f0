package hub

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"quern/hub/hubtest"
)

// TestErrorRows goes through the table of errors: code and status decide the
// sentinel, and the message says what to do and quotes the request's id.
func TestErrorRows(t *testing.T) {
	repos := map[string]*hubtest.Repo{}
	var list []*hubtest.Repo
	for _, id := range []string{"org/open", "org/gated", "org/private", "org/off"} {
		r := hubtest.NewRepo(id)
		r.Commit(map[string]*hubtest.File{"a": hubtest.Git("a"), "w": hubtest.LFS([]byte("w"))})
		repos[id] = r
		list = append(list, r)
	}
	repos["org/gated"].Gated, repos["org/private"].Private, repos["org/off"].Disabled = true, true, true
	h := hubtest.New(t, hubtest.Options{Tokens: map[string][]string{"good": {"org/gated", "org/private"}, "poor": nil}}, list...)
	for _, c := range []struct {
		name, ref, file, token string
		want                   error
		hint                   string
	}{
		{"entry", "org/open", "none", "", ErrNotFound, "file name"},
		{"revision", "org/open@none", "a", "", ErrRevision, "after '@'"},
		{"repository with a token", "org/none", "a", "good", ErrRepoNotFound, "token"},
		{"repository without", "org/none", "a", "", ErrNotFoundOrPrivate, "HF_TOKEN"},
		{"private without a token", "org/private", "a", "", ErrNotFoundOrPrivate, "HF_TOKEN"},
		{"private without access", "org/private", "a", "poor", ErrRepoNotFound, "access"},
		{"private", "org/private", "a", "good", nil, ""},
		{"gated without a token", "org/gated", "a", "", ErrGatedNoToken, "accept the terms"},
		{"gated without access", "org/gated", "w", "poor", ErrGatedNoAccess, "ask for access"},
		{"gated", "org/gated", "w", "good", nil, ""},
		{"bad token on a public repository", "org/open", "a", "wrong", ErrBadToken, "HF_TOKEN"},
		{"disabled", "org/off", "a", "", ErrDisabled, "another source"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ref, err := ParseRef(c.ref)
			if err != nil {
				t.Fatal(err)
			}
			cl, err := New(Options{Endpoint: h.URL, Token: c.token, Clock: newFakeClock()})
			if err != nil {
				t.Fatal(err)
			}
			h.ResetLog()
			s, err := cl.Snapshot(t.Context(), ref, SnapshotOptions{})
			if err == nil {
				defer s.Close()
				_, err = s.ReadFile(t.Context(), c.file, 10)
			}
			if c.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.hint) {
				t.Fatalf("%v, want %v with %q", err, c.want, c.hint)
			}
			if c.want != ErrNotFound && !strings.Contains(err.Error(), "request id Root=1-") {
				t.Errorf("no request id: %v", err)
			}
			if c.token != "" && strings.Contains(err.Error(), c.token+" ") {
				t.Errorf("the token is in the message: %v", err)
			}
			if !strings.Contains(err.Error(), ref.Repo) {
				t.Errorf("the repository is not named: %v", err)
			}
			if (c.want == ErrNotFound) != errors.Is(err, fs.ErrNotExist) {
				t.Errorf("fs.ErrNotExist: %v", err)
			}
			// None of these may be tried again.
			if n := h.Count(hubtest.Any, ""); n > 3 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestErrorStatuses: what is retried and what is not, by status alone.
func TestErrorStatuses(t *testing.T) {
	for _, c := range []struct {
		fault hubtest.Fault
		want  error
		tries int
	}{
		{hubtest.Fault{Status: 400}, ErrServer, 1},
		{hubtest.Fault{Status: 401, Message: "Invalid username or password."}, ErrNotFoundOrPrivate, 1},
		{hubtest.Fault{Status: 401, Code: "RepoNotFound"}, ErrNotFoundOrPrivate, 1},
		{hubtest.Fault{Status: 403}, ErrForbidden, 1},
		{hubtest.Fault{Status: 403, Code: "GatedRepo"}, ErrGatedNoAccess, 1},
		{hubtest.Fault{Status: 404}, ErrRepoNotFound, 1},
		{hubtest.Fault{Status: 404, Code: "RevisionNotFound"}, ErrRevision, 1},
		{hubtest.Fault{Status: 408}, ErrServer, 6},
		{hubtest.Fault{Status: 429}, ErrRateLimited, 6},
		{hubtest.Fault{Status: 500}, ErrServer, 6},
		{hubtest.Fault{Status: 502}, ErrServer, 6},
		{hubtest.Fault{Status: 503}, ErrServer, 6},
		{hubtest.Fault{Status: 504}, ErrServer, 6},
		{hubtest.Fault{Status: 200, ContentType: "text/html", Body: "<!doctype html>"}, ErrNotHub, 1},
		{hubtest.Fault{Status: 200, ContentType: "application/json", Body: "{}"}, ErrNotHub, 1},
		{hubtest.Fault{Status: 200, ContentType: "application/json", Body: `{"sha":"../../x"}`}, ErrNotHub, 1},
		{hubtest.Fault{Status: 200, ContentType: "application/json", Body: "not JSON"}, ErrNotHub, 1},
	} {
		r := newRig(t, hubtest.Options{}, toyFiles())
		c.fault.On, c.fault.Times = hubtest.Info, -1
		r.hub.Inject(c.fault)
		_, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
		if n := r.hub.Count(hubtest.Info, ""); !errors.Is(err, c.want) || n != c.tries {
			t.Errorf("%d %s: %v after %d requests, want %v after %d", c.fault.Status, c.fault.Code, err, n, c.want, c.tries)
		}
	}
}

func TestErrorTextIsClean(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	r.hub.Inject(hubtest.Fault{On: hubtest.Info, Status: 403, Message: "no \x1b[31mred\u202e text", Times: -1})
	_, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\u202e\n") {
		t.Errorf("%q", err)
	}
}

func TestServerWarningsOncePerTopic(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	r.hub.Inject(hubtest.Fault{Times: -1, Header: map[string]string{"X-HF-Warning": "old; update your client\nquota; nearly used up"}})
	s := r.snapshot(r.client())
	s.ReadFile(t.Context(), "config.json", 100)
	if w := r.events.of(EventWarning); len(w) != 2 || w[0].What != "old" || w[1].Text != "nearly used up" {
		t.Errorf("warnings %+v", w)
	}
}

func TestNotAHub(t *testing.T) {
	// A server that answers files without X-Repo-Commit.
	r := newRig(t, hubtest.Options{}, toyFiles())
	r.hub.Inject(hubtest.Fault{On: hubtest.Resolve, Times: -1, Header: map[string]string{"X-Repo-Commit": ""}},
		hubtest.Fault{On: hubtest.ResolveCache, Times: -1, Header: map[string]string{"X-Repo-Commit": ""}})
	s := r.snapshot(r.client())
	if _, err := s.ReadFile(t.Context(), "config.json", 100); !errors.Is(err, ErrNotHub) {
		t.Errorf("no X-Repo-Commit: %v", err)
	}
	// Another commit than the one that was asked for.
	r.hub.ClearFaults()
	r.hub.Inject(hubtest.Fault{On: hubtest.Resolve, Times: -1, Header: map[string]string{"X-Repo-Commit": strings.Repeat("1", 40)}})
	if _, err := s.ReadFile(t.Context(), weights, 10<<20); !errors.Is(err, ErrChanged) {
		t.Errorf("another commit: %v", err)
	}
}

// TestFallbackToCachedRevision: metadata that cannot be had falls back to what
// was seen before, an answer that denies the revision does not.
func TestFallbackToCachedRevision(t *testing.T) {
	cases := []struct {
		fault hubtest.Fault
		falls bool
	}{
		{hubtest.Fault{Status: 500}, true},
		{hubtest.Fault{Status: 503}, true},
		{hubtest.Fault{Status: 401, Message: "Invalid username or password."}, true},
		{hubtest.Fault{Status: 404, Code: "RevisionNotFound"}, false},
		{hubtest.Fault{Status: 404, Code: "RepoNotFound"}, false},
		{hubtest.Fault{Status: 403, Message: "Access to this resource is disabled."}, false},
	}
	for _, from := range []string{"cache", "spool"} {
		for _, c := range cases {
			files := map[string]*hubtest.File{"config.json": hubtest.Git("{}")}
			r := newRig(t, hubtest.Options{}, files)
			cache := t.TempDir()
			use := func(o *Options) { o.CacheDirs = []string{cache} }
			if from == "cache" {
				writeCache(t, cache, r.commit, files)
			} else {
				s := r.snapshot(r.client())
				if _, err := s.ReadFile(t.Context(), "config.json", 10); err != nil {
					t.Fatal(err)
				}
				s.Close()
			}
			c.fault.Times = -1
			r.hub.Inject(c.fault)
			s, err := r.client(use).Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
			if (err == nil) != c.falls {
				t.Errorf("%s, %d %s: %v", from, c.fault.Status, c.fault.Code, err)
			}
			if err == nil {
				if b, err := s.ReadFile(t.Context(), "config.json", 10); err != nil || string(b) != "{}" {
					t.Errorf("%s, %d: %q, %v", from, c.fault.Status, b, err)
				}
				s.Close()
			}
		}
	}
}

func TestNetworkErrorsAreRetriedThenNamed(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	c := r.client()
	r.hub.Close()
	_, err := c.Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
	if !errors.Is(err, ErrNetwork) || len(r.clock.slept) != 5 {
		t.Errorf("%v after waits %v", err, r.clock.slept)
	}
	if len(r.events.of(EventRetry)) != 5 {
		t.Errorf("%d retry events", len(r.events.of(EventRetry)))
	}
}

// TestListingBreaksOff: a body that ends early is asked for again, after a
// pause.
func TestListingBreaksOff(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	broken := 0
	inner := newTransport(8)
	rt := roundTrips(func(q *http.Request) *http.Response {
		res, err := inner.RoundTrip(q)
		if err != nil {
			t.Error(err)
			return reply(500, "")
		}
		if strings.Contains(q.URL.Path, "/tree/") && broken < 2 {
			broken++
			res.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(res.Body, 20), iotest.ErrReader(io.ErrUnexpectedEOF)), res.Body}
		}
		return res
	})
	s := r.snapshot(r.client(func(o *Options) { o.Transport = rt }))
	if len(s.Files()) != len(toyFiles()) || len(r.clock.slept) != 2 || s.Stats().Retries != 2 {
		t.Errorf("%d files after waits %v", len(s.Files()), r.clock.slept)
	}
}

func TestCertificateErrorsAreNotRetried(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = quietLog()
	srv.StartTLS()
	defer srv.Close()
	clock := newFakeClock()
	c, err := New(Options{Endpoint: srv.URL, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{}); !errors.Is(err, ErrNetwork) || len(clock.slept) != 0 {
		t.Errorf("%v after waits %v", err, clock.slept)
	}
}

func TestTokenThatCannotBeOne(t *testing.T) {
	for _, token := range []string{"a b", "a\nb", "a\x00", "tökén"} {
		if _, err := New(Options{Token: token}); !errors.Is(err, ErrBadToken) || strings.Contains(err.Error(), token) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// writeCache makes the cache folder that Python's client would.
func writeCache(t *testing.T, dir, commit string, files map[string]*hubtest.File) string {
	t.Helper()
	repo := filepath.Join(dir, "models--org--toy")
	put := func(path string, data []byte) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(repo, "refs", "main"), []byte(commit))
	for path, f := range files {
		name := f.OID()
		if f.LFS {
			name = f.SHA256()
		}
		put(filepath.Join(repo, "blobs", name), f.Data)
		link := filepath.Join(repo, "snapshots", commit, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		up := strings.Repeat("../", strings.Count(path, "/"))
		if err := os.Symlink(up+"../../blobs/"+name, link); err != nil {
			t.Fatal(err)
		}
	}
	return repo
}

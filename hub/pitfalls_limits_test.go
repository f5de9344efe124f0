package hub

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"quern/hub/hubtest"
)

// Pitfall 109: retries that prolong a block.
func TestPitfall109RateLimitWithoutAStorm(t *testing.T) {
	const workers, limited = 8, 12
	data := noise(15, workers*4096)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	s := r.snapshot(r.client(func(o *Options) { o.Concurrency = workers }))
	r.hub.ResetLog()
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Status: 429, Times: limited, Header: map[string]string{"Retry-After": "2"}})
	b, err := s.Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	var ranges []Range
	for i := range int64(workers) {
		ranges = append(ranges, Range{i * 4096, 100}) // far apart: a request each
	}
	if err := s.Need(t.Context(), weights, ranges); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, x := range ranges {
		wg.Go(func() {
			p := make([]byte, x.Len)
			if err := b.ReadAt(t.Context(), p, x.Off); err != nil || !bytes.Equal(p, data[x.Off:x.Off+x.Len]) {
				t.Errorf("range %v: %v", x, err)
			}
		})
	}
	wg.Wait()
	bad := 0
	for _, q := range r.hub.Requests() {
		if q.Kind == hubtest.CDN && q.Status == 429 {
			bad++
		}
	}
	if n := r.hub.Count(hubtest.CDN, ""); bad != limited || n != limited+workers {
		t.Errorf("%d requests, %d of them limited", n, bad)
	}
	// At most one request a worker was under way when the first answer came;
	// every later one was a single probe after the full pause.
	if probes := len(r.clock.slept); probes < limited-workers || r.clock.total() < time.Duration(limited-workers)*3*time.Second {
		t.Errorf("%d pauses of %v in all", probes, r.clock.total())
	}
	for _, d := range r.clock.slept {
		if d > 3*time.Second {
			t.Errorf("slept %v", d)
		}
	}
}

// Pitfall 109: a pause longer than anyone wants to wait ends at once.
func TestPitfall109PauseTooLong(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	r.hub.Inject(hubtest.Fault{On: hubtest.Info, Status: 429, Times: -1, Header: map[string]string{"Retry-After": "86400"}})
	_, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
	if !errors.Is(err, ErrRateLimited) || r.hub.Count(hubtest.Any, "") != 1 || len(r.clock.slept) != 0 || !strings.Contains(err.Error(), "24h") {
		t.Errorf("%v after %d requests and waits %v", err, r.hub.Count(hubtest.Any, ""), r.clock.slept)
	}
}

// roundTrips answers requests without a network.
type roundTrips func(*http.Request) *http.Response

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) {
	res := f(r)
	res.Request = r
	return res, nil
}

func reply(status int, body string, header ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
	for i := 0; i < len(header); i += 2 {
		res.Header.Add(header[i], header[i+1])
	}
	return res
}

// Pitfall 110: where the token goes.
func TestPitfall110WhereTheTokenGoes(t *testing.T) {
	const end = "https://hub.example"
	const commit = "0123456789012345678901234567890123456789"
	body := "content"
	for _, c := range []struct {
		endpoint, location string
		sent, refused      bool
	}{
		{end, "/elsewhere?a=b", true, false},
		{end, "https://hub.example/elsewhere", true, false},
		{end, "https://hub.example:443/elsewhere", true, false},
		{end, "https://HUB.example/elsewhere", true, false},
		{end, "https://huggingface.co/x", true, false},
		{end, "https://hf.co/x", true, false},
		{end, "https://cdn.hub.example/x", false, false},
		{end, "https://cdn-lfs.huggingface.co/x", false, false},
		{end, "https://hub.example.evil.example/x", false, false},
		{end, "https://evilhub.example/x", false, false},
		{end, "https://hub.example:8443/x", false, false},
		{end, "https://user:pass@other.example/x", false, false},
		{end, "//other.example/x", false, false},
		{end, "http://hub.example/x", false, true},
		{end, "http://other.example/x", false, true},
		{end, "http://huggingface.co/x", false, true},
		{end, "file:///etc/passwd", false, true},
		{end, "javascript:x", false, true},
		{"http://hub.example", "http://hub.example/x", true, false},
		{"http://hub.example", "https://hub.example/x", false, false},
		{"http://hub.example", "http://huggingface.co/x", false, false},
		{"http://hub.example", "http://other.example/x", false, false},
	} {
		var last *http.Request
		hops := 0
		rt := roundTrips(func(r *http.Request) *http.Response {
			last = r
			hops++
			if hops == 1 {
				return reply(302, "", "Location", c.location, "X-Repo-Commit", commit, "Set-Cookie", "a=b")
			}
			return reply(200, body, "X-Repo-Commit", commit)
		})
		cl, err := New(Options{Endpoint: c.endpoint, Token: "secret", Transport: rt})
		if err != nil {
			t.Fatal(err)
		}
		s, err := cl.Snapshot(t.Context(), Ref{rigID, commit}, SnapshotOptions{Commit: commit, Files: []File{{Path: "a", Size: int64(len(body))}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.ReadFile(t.Context(), "a", 100)
		s.Close()
		if c.refused {
			if !errors.Is(err, ErrRedirect) || hops != 1 {
				t.Errorf("%s to %s: %v after %d hops", c.endpoint, c.location, err, hops)
			}
			continue
		}
		if err != nil || hops != 2 {
			t.Errorf("%s to %s: %v after %d hops", c.endpoint, c.location, err, hops)
			continue
		}
		if got := last.Header.Get("Authorization"); (got != "") != c.sent || c.sent && got != "Bearer secret" {
			t.Errorf("%s to %s: Authorization %q", c.endpoint, c.location, got)
		}
		if last.Header.Get("Cookie") != "" || last.Header.Get("Referer") != "" || last.URL.User != nil {
			t.Errorf("%s to %s: headers %v", c.endpoint, c.location, last.Header)
		}
	}
}

// Pitfall 111: four answers that all are 401 somewhere get four messages.
func TestPitfall111FourMessages(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range []hubtest.Fault{
		{Status: 401, Message: "Invalid username or password."},
		{Status: 401, Code: "GatedRepo", Message: "Access to model x is restricted."},
		{Status: 401, Message: "Invalid credentials in Authorization header"},
		{Status: 404, Code: "RepoNotFound", Message: "Repository not found"},
	} {
		r := newRig(t, hubtest.Options{}, toyFiles())
		f.Times = -1
		r.hub.Inject(f)
		_, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
		var e *Error
		if !errors.As(err, &e) || e.Hint == "" {
			t.Fatalf("%+v: %v", f, err)
		}
		if seen[e.Kind.Error()] {
			t.Errorf("%v comes twice", e.Kind)
		}
		seen[e.Kind.Error()] = true
	}
}

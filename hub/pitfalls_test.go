package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"quern/hub/hubtest"
)

// Each test here is a public failure of some downloader, with its number in
// our collection.

// Pitfall 6: a Git LFS pointer in place of the file.
func TestPitfall006Pointer(t *testing.T) {
	text := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("ab", 32) + "\nsize 123456789\n"
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.Git(text), "x.gguf": hubtest.LFS([]byte(text))})
	s := r.snapshot(r.client())
	for _, path := range []string{weights, "x.gguf"} {
		_, err := s.ReadFile(t.Context(), path, 1000)
		if !errors.Is(err, ErrPointer) || !strings.Contains(err.Error(), strings.Repeat("ab", 32)) || !strings.Contains(err.Error(), "123456789") {
			t.Errorf("%s: %v", path, err)
		}
	}
	s.Close()
	list, err := ListSpool(r.spool)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Entries {
		if e.Have > 0 {
			t.Errorf("the pointer was kept: %+v", e)
		}
	}
}

// Pitfall 7: an HTML page saved as a model.
func TestPitfall007HTMLPage(t *testing.T) {
	for name, fault := range map[string]hubtest.Fault{
		"by type":    {Status: 200, ContentType: "text/html; charset=utf-8", Body: "<p>log in</p>"},
		"by content": {Status: 200, ContentType: "application/octet-stream", Body: "  <!DOCTYPE html><html>" + strings.Repeat(" ", 977)},
	} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(noise(1, 1000)), "page.html": hubtest.Git("<!doctype html><p>a page of the repository")})
		fault.On, fault.Times = hubtest.CDN, -1
		r.hub.Inject(fault)
		s := r.snapshot(r.client())
		if _, err := s.ReadFile(t.Context(), weights, 1000); !errors.Is(err, ErrHTML) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.ReadFile(t.Context(), "page.html", 1000); err != nil {
			t.Errorf("a file that is a page: %v", err)
		}
		s.Close()
		list, _ := ListSpool(r.spool)
		for _, e := range list.Entries {
			if e.Have > 0 && !strings.Contains(e.What, "page.html") {
				t.Errorf("%s: the page was kept: %+v", name, e)
			}
		}
	}
}

// Pitfall 7: a page of which only the first bytes came at first is seen all the
// same.
func TestPitfall007PageInTwoParts(t *testing.T) {
	page := []byte("<!DOCTYPE html><p>" + strings.Repeat("log in ", 200))
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(page)})
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Cut: true, CutAfter: 5}, hubtest.Fault{On: hubtest.CDN, Status: 400, Times: 6})
	s := r.snapshot(r.client())
	_, first := s.ReadFile(t.Context(), weights, 10_000)
	r.hub.ClearFaults()
	_, second := s.ReadFile(t.Context(), weights, 10_000)
	if first == nil || errors.Is(first, ErrHTML) || !errors.Is(second, ErrHTML) {
		t.Errorf("first %v, then %v", first, second)
	}
}

// Pitfall 103: a resume that gets 200 with the whole file.
func TestPitfall103ResumeGetsWholeFile(t *testing.T) {
	data := noise(10, 300_000)
	for name, change := range map[string]func(*Options){"spool": func(*Options) {}, "memory": inMemory} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Cut: true, CutAfter: 100}, hubtest.Fault{On: hubtest.CDN, IgnoreRange: true, Times: -1})
		s := r.snapshot(r.client(change))
		got, err := s.ReadFile(t.Context(), weights, 1<<20)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantBytes(t, name, got, data)
		if name == "spool" {
			st, err := os.Stat(filepath.Join(r.spool, "sha256-"+r.sha(weights), dataName))
			if err != nil || st.Size() != int64(len(data)) {
				t.Errorf("spooled file: %v, %v", st, err)
			}
		}
	}
}

func (r *rig) sha(path string) string {
	r.t.Helper()
	s := r.snapshot(r.client())
	for _, f := range s.Files() {
		if f.Path == path {
			return f.SHA256
		}
	}
	r.t.Fatalf("no %s", path)
	return ""
}

// Pitfall 105: a resumed range goes on at the right offset.
func TestPitfall105ResumeOfARange(t *testing.T) {
	data := noise(11, 5000)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Cut: true, CutAfter: 20})
	s := r.snapshot(r.client())
	if err := s.Need(t.Context(), weights, []Range{{15, 100}}); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, "range", read(t, s, weights, 15, 100), data[15:115])
	var ranges []string
	for _, q := range r.hub.Requests() {
		if q.Kind == hubtest.CDN {
			ranges = append(ranges, q.Range)
		}
	}
	if got := strings.Join(ranges, " "); got != "bytes=15-114 bytes=35-114" {
		t.Errorf("ranges %s", got)
	}
}

// Pitfall 105: another ETag on a later part means another file: everything is
// dropped and fetched once more, then it is an error.
func TestPitfall105ETagChanges(t *testing.T) {
	data := noise(12, 400_000)
	for name, change := range map[string]func(*Options){"spool": func(*Options) {}, "memory": inMemory} {
		for changes := 1; changes <= 2; changes++ {
			r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
			// The first answer is of an old version, with another first byte.
			r.hub.Inject(hubtest.Fault{On: hubtest.CDN, ETag: "old", Flip: 1})
			if changes == 2 {
				r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Skip: 2, ETag: "newer"})
			}
			s := r.snapshot(r.client(change, func(o *Options) { o.Concurrency = 1 }))
			b, err := s.Open(t.Context(), weights)
			if err != nil {
				t.Fatal(err)
			}
			var errs []error
			for _, off := range []int64{0, 150_000, 200_000, 250_000} {
				p := make([]byte, 10_000)
				err := b.ReadAt(t.Context(), p, off)
				if err == nil && off > 0 {
					wantBytes(t, name, p, data[off:off+10_000])
				}
				errs = append(errs, err)
			}
			err = errors.Join(errs...)
			if name == "memory" || changes == 2 {
				// Without a spool the first part cannot be taken back.
				if !errors.Is(err, ErrChanged) {
					t.Errorf("%s, %d changes: %v", name, changes, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if len(r.events.of(EventRefetch)) != 1 {
				t.Errorf("%d refetches", len(r.events.of(EventRefetch)))
			}
			// Bytes of the first part had been given out.
			if err := s.Finish(t.Context()); !errors.Is(err, ErrRepaired) {
				t.Errorf("finish: %v", err)
			}
			wantBytes(t, "the first part again", read(t, s, weights, 0, 10_000), data[:10_000])
			if err := s.Finish(t.Context()); err != nil {
				t.Errorf("finish again: %v", err)
			}
		}
	}
}

// Pitfall 107: 416 about a 177-byte error object.
func TestPitfall107UnsatisfiedOfAnotherObject(t *testing.T) {
	data := noise(13, 100_000)
	for _, always := range []bool{false, true} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		f := hubtest.Fault{On: hubtest.CDN, Status: 416, Header: map[string]string{"Content-Range": "bytes */177"}, Body: "<Error/>"}
		if always {
			f.Times = -1
		}
		r.hub.Inject(f)
		s := r.snapshot(r.client())
		b, err := s.Open(t.Context(), weights)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1000)
		err = b.ReadAt(t.Context(), p, 50_000)
		if always {
			if !errors.Is(err, ErrSize) || !strings.Contains(err.Error(), "177") || r.hub.Count(hubtest.CDN, "") != maxFresh {
				t.Errorf("always: %v after %d requests", err, r.hub.Count(hubtest.CDN, ""))
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wantBytes(t, "range", p, data[50_000:51_000])
		if n := r.hub.Count(hubtest.Resolve, ""); n != 2 {
			t.Errorf("%d fresh addresses", n)
		}
	}
}

// Pitfall 108: answers that are not the range that was asked for.
func TestPitfall108NotTheRange(t *testing.T) {
	data := noise(14, 300_000)
	for name, fault := range map[string]hubtest.Fault{
		"multipart":     {Multipart: true},
		"another start": {ContentRange: "bytes 0-999/300000"},
		"too long":      {ContentRange: "bytes 200000-299999/300000", Chunked: true},
		"length":        {ContentRange: "bytes 200000-200998/300000"},
		"another total": {ContentRange: "bytes 200000-200999/300001"},
		"no range":      {ContentRange: "bytes */300000"},
		"nonsense":      {ContentRange: "pages 1-2/3"},
	} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		fault.On, fault.Times = hubtest.CDN, -1
		r.hub.Inject(fault)
		s := r.snapshot(r.client())
		b, err := s.Open(t.Context(), weights)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1000)
		if err := b.ReadAt(t.Context(), p, 200_000); !errors.Is(err, ErrRange) && !errors.Is(err, ErrSize) {
			t.Errorf("%s: %v", name, err)
		}
		r.hub.ClearFaults()
		if err := b.ReadAt(t.Context(), p, 200_000); err != nil || !bytes.Equal(p, data[200_000:201_000]) {
			t.Errorf("%s: after it: %v", name, err)
		}
	}
}

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

// Pitfall 112: right size, wrong bytes. A small file is refused and fetched
// again; the second failure keeps evidence.
func TestPitfall112WrongBytesInASmallFile(t *testing.T) {
	for _, lfs := range []bool{false, true} {
		f := &hubtest.File{Data: noise(16, 5000), LFS: lfs}
		on := hubtest.ResolveCache
		if lfs {
			on = hubtest.CDN
		}
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{"f": f})
		r.hub.Inject(hubtest.Fault{On: on, Flip: 1 + 2500})
		got, err := r.snapshot(r.client()).ReadFile(t.Context(), "f", 10_000)
		if err != nil || !bytes.Equal(got, f.Data) {
			t.Errorf("LFS %v: %v", lfs, err)
		}
		r = newRig(t, hubtest.Options{}, map[string]*hubtest.File{"f": f})
		r.hub.Inject(hubtest.Fault{On: on, Flip: 1 + 2500, Times: -1})
		_, err = r.snapshot(r.client()).ReadFile(t.Context(), "f", 10_000)
		checkEvidence(t, r, err, f)
	}
}

// checkEvidence wants an error with both digests and the bytes in the spool.
func checkEvidence(t *testing.T, r *rig, err error, f *hubtest.File) {
	t.Helper()
	want := "git:" + f.OID()
	if f.LFS {
		want = "sha256:" + f.SHA256()
	}
	if !errors.Is(err, ErrDigest) || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), ":"+strings.Split(want, ":")[1]) != 1 {
		t.Fatalf("no digest error with %s: %v", want, err)
	}
	var bad []string
	for _, name := range listDir(t, r.spool) {
		if strings.HasSuffix(name, ".bad") {
			bad = append(bad, name)
		}
	}
	if len(bad) != 1 || !strings.Contains(err.Error(), bad[0]) {
		t.Fatalf("evidence %v: %v", bad, err)
	}
	kept, rerr := os.ReadFile(filepath.Join(r.spool, bad[0]))
	if rerr != nil || len(kept) != len(f.Data) || bytes.Equal(kept, f.Data) {
		t.Errorf("evidence has %d bytes, %v", len(kept), rerr)
	}
}

// Pitfall 112: in a large file the damage is found by comparing, only as much
// is fetched as that takes, and the caller is told to start over.
func TestPitfall112WrongByteInALargeFile(t *testing.T) {
	data := noise(17, 3*repairStep+12345)
	file := hubtest.LFS(data)
	at := int64(repairStep + 77)
	fetch := func(r *rig, opt SnapshotOptions) (*Snapshot, error) {
		s, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if err := s.Need(t.Context(), weights, []Range{{0, int64(len(data))}}); err != nil {
			t.Fatal(err)
		}
		read(t, s, weights, 0, int64(len(data)))
		return s, s.Finish(t.Context())
	}
	t.Run("repaired", func(t *testing.T) {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: file})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Flip: at + 1})
		s, err := fetch(r, SnapshotOptions{})
		if !errors.Is(err, ErrRepaired) {
			t.Fatalf("finish: %v", err)
		}
		// Two steps were compared; the digest was right after the second.
		if sent := r.hub.Sent(weights); sent != int64(len(data))+2*repairStep {
			t.Errorf("%d bytes sent for %d and two steps", sent, len(data))
		}
		wantBytes(t, "after repair", read(t, s, weights, 0, int64(len(data))), data)
		if err := s.Finish(t.Context()); err != nil {
			t.Errorf("finish again: %v", err)
		}
	})
	t.Run("by the lock's range digest", func(t *testing.T) {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: file})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Flip: at + 1})
		x := Range{at - 1000, 2000}
		sum := sha256.Sum256(data[x.Off : x.Off+x.Len])
		s, err := fetch(r, SnapshotOptions{Ranges: map[string][]RangeDigest{weights: {{x, fmt.Sprintf("%x", sum)}}}})
		if !errors.Is(err, ErrRepaired) {
			t.Fatalf("finish: %v", err)
		}
		if sent := r.hub.Sent(weights); sent != int64(len(data))+x.Len {
			t.Errorf("%d bytes sent for %d and the range", sent, len(data))
		}
		wantBytes(t, "after repair", read(t, s, weights, 0, int64(len(data))), data)
		s.Close()
		// The repair is as lasting as the rest.
		next := r.snapshot(r.client(offline))
		wantBytes(t, "next run", read(t, next, weights, 0, int64(len(data))), data)
	})
	t.Run("always", func(t *testing.T) {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: file})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Flip: at + 1, Times: -1})
		_, err := fetch(r, SnapshotOptions{})
		checkEvidence(t, r, err, file)
		// The next run starts from nothing and may succeed.
		r.hub.ClearFaults()
		if _, err := fetch(r, SnapshotOptions{}); err != nil {
			t.Errorf("next run: %v", err)
		}
	})
}

// Pitfall 113: an incomplete blob of our own, offline.
func TestPitfall113IncompleteSpoolOffline(t *testing.T) {
	data := noise(18, 300_000)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	s := r.snapshot(r.client())
	read(t, s, weights, 0, int64(len(data)))
	s.Close()
	path := filepath.Join(r.spool, "sha256-"+s.Files()[0].SHA256, dataName)
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	off := r.snapshot(r.client(offline))
	if _, err := off.ReadFile(t.Context(), weights, 1<<20); !errors.Is(err, ErrOffline) {
		t.Errorf("truncated spool offline: %v", err)
	}
	off.Close()
	got, err := r.snapshot(r.client()).ReadFile(t.Context(), weights, 1<<20)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("online: %v", err)
	}
}

// Pitfall 114: an interrupted fetch shows as partial and goes on.
func TestPitfall114InterruptedFetch(t *testing.T) {
	files := map[string]*hubtest.File{}
	for i := range 3 {
		files[fmt.Sprintf("w-%d.safetensors", i)] = hubtest.LFS(noise(uint64(30+i), 200_000))
	}
	r := newRig(t, hubtest.Options{}, files)
	s := r.snapshot(r.client(func(o *Options) { o.Concurrency = 1 }))
	// The second file stops in its middle and never goes on.
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Path: "w-1.safetensors", Cut: true, CutAfter: 70_000},
		hubtest.Fault{On: hubtest.CDN, Path: "w-1.safetensors", Stall: true, Times: -1, Stalled: func() { cancel(interrupted) }})
	for i := range 3 {
		if err := s.Need(t.Context(), fmt.Sprintf("w-%d.safetensors", i), []Range{{0, 200_000}}); err != nil {
			t.Fatal(err)
		}
	}
	read(t, s, "w-0.safetensors", 0, 200_000)
	b, err := s.Open(t.Context(), "w-1.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ReadAt(ctx, make([]byte, 200_000), 0); !errors.Is(err, interrupted) {
		t.Fatalf("interrupted: %v", err)
	}
	s.Close()
	list, err := ListSpool(r.spool)
	if err != nil || len(list.Snapshots) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	got := list.Snapshots[0]
	if got.Status() != "partial 1/3" || got.Repo != rigID || got.Commit != r.commit || strings.Join(got.Missing, " ") != "w-1.safetensors w-2.safetensors" || got.Need != 600_000 || got.Have != 270_000 {
		t.Errorf("%s: %+v", got.Status(), got)
	}
	r.hub.ClearFaults()
	r.hub.ResetLog()
	s = r.snapshot(r.client())
	fetchAll(t, s, files)
	s.Close()
	if sent := r.hub.Sent(""); sent != 600_000-270_000 {
		t.Errorf("%d bytes sent to finish", sent)
	}
	if list, _ := ListSpool(r.spool); list.Snapshots[0].Status() != "complete 3/3" {
		t.Errorf("%+v", list.Snapshots[0])
	}
}

// Pitfalls 115 and 116: no links, safe names, and nothing deleted that is not
// ours or not old.
func TestPitfall116SafeNames(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	stray := filepath.Join(r.spool, "notes.txt")
	os.MkdirAll(r.spool, 0o755)
	if err := os.WriteFile(stray, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := r.snapshot(r.client())
	fetchAll(t, s, toyFiles())
	s.Close()
	safe := regexp.MustCompile(`^[a-z0-9-]+(\.json|\.bad)?$`)
	for _, name := range listDir(t, r.spool) {
		base := filepath.Base(name)
		if base != cacheTagName && base != "notes.txt" && !safe.MatchString(base) {
			t.Errorf("name %s", name)
		}
		if st, err := os.Lstat(filepath.Join(r.spool, name)); err != nil || st.Mode()&os.ModeSymlink != 0 {
			t.Errorf("%s is a link", name)
		}
	}
	entries := func() int { l, _ := ListSpool(r.spool); return len(l.Entries) }
	before := entries()
	if _, err := CleanSpool(t.Context(), r.spool, CleanOptions{}); err != nil || entries() != before || before == 0 {
		t.Errorf("young entries were removed: %d of %d left, %v", entries(), before, err)
	}
	dry, err := CleanSpool(t.Context(), r.spool, CleanOptions{OlderThan: -1, DryRun: true})
	if err != nil || len(dry.Removed) != before || entries() != before {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	// An entry that is open stays.
	open := r.snapshot(r.client())
	read(t, open, "config.json", 0, 5)
	res, err := CleanSpool(t.Context(), r.spool, CleanOptions{OlderThan: -1})
	if err != nil || len(res.Removed) != before-1 || len(res.InUse) != 1 {
		t.Errorf("clean: %d removed, %d in use of %d, %v", len(res.Removed), len(res.InUse), before, err)
	}
	wantBytes(t, "entry in use", read(t, open, "config.json", 0, 5), toyFiles()["config.json"].Data[:5])
	open.Close()
	if _, err := CleanSpool(t.Context(), r.spool, CleanOptions{OlderThan: -1}); err != nil || entries() != 0 {
		t.Errorf("%d entries left, %v", entries(), err)
	}
	if b, err := os.ReadFile(stray); err != nil || string(b) != "mine" {
		t.Errorf("the stray file: %q, %v", b, err)
	}
}

// Pitfall 118: a mirror that reports size 0.
func TestPitfall118SizeZero(t *testing.T) {
	zero := int64(0)
	data := noise(19, 2166)
	files := map[string]*hubtest.File{
		"git":   {Data: data, ListedSize: &zero},
		"lfs":   {Data: data, LFS: true, ListedSize: &zero},
		"empty": hubtest.Git(""),
	}
	r := newRig(t, hubtest.Options{}, files)
	r.hub.Inject(hubtest.Fault{Method: "HEAD", Times: -1, ZeroLength: true})
	s := r.snapshot(r.client())
	for _, f := range s.Files() {
		want := int64(-1)
		if f.Path == "empty" {
			want = 0
		}
		if f.Size != want {
			t.Errorf("%s: size %d", f.Path, f.Size)
		}
	}
	for p, f := range files {
		got, err := s.ReadFile(t.Context(), p, 3000)
		if err != nil || !bytes.Equal(got, f.Data) {
			t.Errorf("%s: %d bytes, %v", p, len(got), err)
		}
		b, err := s.Open(t.Context(), p)
		if err != nil || b.Size() != int64(len(f.Data)) {
			t.Errorf("%s: %v", p, err)
		}
	}
	if _, err := s.ReadFile(t.Context(), "lfs", 2165); !errors.Is(err, ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	// A range without a total leaves the size unknown; one byte is not it.
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Times: -1, ContentRange: "bytes 0-0/*"})
	if _, err := r.snapshot(r.client()).Open(t.Context(), "lfs"); !errors.Is(err, ErrRange) {
		t.Errorf("no total: %v", err)
	}
}

// quotaFile fails with ENOSPC once the quota is used up, after writing what
// fits, as disks do.
type quotaFile struct {
	*os.File
	left *int64
}

func (q quotaFile) WriteAt(p []byte, off int64) (int, error) {
	n := int64(len(p))
	if n <= *q.left {
		*q.left -= n
		return q.File.WriteAt(p, off)
	}
	m, err := q.File.WriteAt(p[:*q.left], off)
	*q.left = 0
	if err == nil {
		err = &os.PathError{Op: "write", Path: q.Name(), Err: syscall.ENOSPC}
	}
	return m, err
}

// Pitfall 119: a full disk is named as such, what came before is kept and is
// right.
func TestPitfall119DiskFull(t *testing.T) {
	data := noise(21, 3_000_000)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	left := int64(1 << 20)
	s := r.snapshot(r.client(func(o *Options) {
		o.Concurrency = 1
		o.hooks.openData = func(path string) (dataFile, error) {
			f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
			return quotaFile{f, &left}, err
		}
	}))
	b, err := s.Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	err = b.ReadAt(t.Context(), make([]byte, len(data)), 0)
	if !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), r.spool) {
		t.Fatalf("%v", err)
	}
	s.Close()
	for _, name := range listDir(t, r.spool) {
		if strings.Contains(name, "tmp") {
			t.Errorf("left behind: %s", name)
		}
	}
	r.hub.ResetLog()
	got, err := r.snapshot(r.client()).ReadFile(t.Context(), weights, 10<<20)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("after room was made: %v", err)
	}
	if sent := r.hub.Sent(weights); sent >= int64(len(data)) || sent < int64(len(data))-1<<20 {
		t.Errorf("%d bytes sent of %d", sent, len(data))
	}
}

// Pitfall 119: a disk that is too small is found out before anything is
// fetched.
func TestPitfall119TooLittleSpace(t *testing.T) {
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(noise(23, 1_000_000))})
	free := int64(600_000)
	s := r.snapshot(r.client(func(o *Options) {
		o.hooks.freeBytes = func(string) (int64, error) { return free, nil }
	}))
	need := func(lo, n int64) error {
		if err := s.Need(t.Context(), weights, []Range{{lo, n}}); err != nil {
			t.Fatal(err)
		}
		return s.Prefetch()
	}
	if err := need(0, 500_000); err != nil {
		t.Fatal(err)
	}
	read(t, s, weights, 0, 500_000)
	free = 100_000
	if err := need(500_000, 100_000); err != nil {
		t.Errorf("just enough: %v", err)
	}
	read(t, s, weights, 500_000, 100_000)
	before := r.hub.Count(hubtest.CDN, "")
	if err := need(600_000, 100_001); !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "100001") || !strings.Contains(err.Error(), r.spool) {
		t.Errorf("%v", err)
	}
	if n := r.hub.Count(hubtest.CDN, ""); n != before {
		t.Errorf("%d requests", n-before)
	}
}

// Pitfall 119: a missing folder is made, one that cannot be is named.
func TestPitfall119MissingFolder(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	r.spool = filepath.Join(t.TempDir(), "a", "b", "c")
	read(t, r.snapshot(r.client()), "config.json", 0, 5)
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.spool = filepath.Join(blocked, "spool")
	s := r.snapshot(r.client())
	if _, err := s.Open(t.Context(), "config.json"); err == nil || !strings.Contains(err.Error(), blocked) {
		t.Errorf("a file in the way: %v", err)
	}
}

// Pitfall 121: several writers and readers of one spool.
func TestPitfall121ParallelUsers(t *testing.T) {
	data := noise(22, 2_500_000)
	files := map[string]*hubtest.File{weights: hubtest.LFS(data), "config.json": hubtest.Git("{}")}
	r := newRig(t, hubtest.Options{}, files)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := r.client(func(o *Options) { o.Concurrency = 2 }).Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			b, err := s.Open(t.Context(), weights)
			if err != nil {
				t.Error(err)
				return
			}
			for k := range 10 {
				off := int64((i*7 + k*3) % 10 * 250_000)
				p := make([]byte, 250_000)
				if err := b.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, data[off:off+250_000]) {
					t.Errorf("user %d at %d: %v", i, off, err)
				}
			}
			if err := s.Finish(t.Context()); err != nil {
				t.Errorf("user %d: finish: %v", i, err)
			}
			if _, err := ListSpool(r.spool); err != nil {
				t.Errorf("user %d: list: %v", i, err)
			}
		})
	}
	wg.Wait()
	if sent := r.hub.Sent(weights); sent > 4*int64(len(data)) {
		t.Errorf("%d bytes sent for %d: the users do not see each other's work", sent, len(data))
	}
}

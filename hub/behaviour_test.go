package hub

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"quern/hub/hubtest"
)

// The behaviours of a hub as docs/hub.md numbers them, each against the
// client. That the test hub itself has them is tested in hubtest.

const weights = "model.safetensors"

// fetchAll opens and reads everything, and finishes.
func fetchAll(t *testing.T, s *Snapshot, files map[string]*hubtest.File) {
	t.Helper()
	for path, f := range files {
		wantBytes(t, path, read(t, s, path, 0, int64(len(f.Data))), f.Data)
	}
	if err := s.Finish(t.Context()); err != nil {
		t.Fatalf("finish: %v", err)
	}
}

func TestBehaviour01TokenStaysAtHub(t *testing.T) {
	files := toyFiles()
	r := newRig(t, hubtest.Options{Tokens: map[string][]string{"good": nil}}, files)
	fetchAll(t, r.snapshot(r.client(withToken("good"))), files)
	auth := map[hubtest.Kind]int{}
	for _, q := range r.hub.Requests() {
		if q.Auth != "" {
			auth[q.Kind]++
		} else if q.Kind != hubtest.CDN {
			t.Errorf("%s %s without the token", q.Kind, q.URL)
		}
		if got := q.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("%s asks for encoding %q", q.URL, got)
		}
		if got := q.Header.Get("Accept"); got != "*/*" {
			t.Errorf("%s accepts %q", q.URL, got)
		}
	}
	if auth[hubtest.CDN] != 0 || auth[hubtest.Resolve] == 0 || auth[hubtest.ResolveCache] == 0 {
		t.Errorf("token sent: %v", auth)
	}
}

func TestBehaviour02And03StorageRedirect(t *testing.T) {
	// The storage host's own ETag is another 64 hex digits, and the redirect's
	// body has its own length: neither may be taken for the file's.
	data := noise(3, 400_000)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	s := r.snapshot(r.client())
	wantBytes(t, "content", read(t, s, weights, 0, int64(len(data))), data)
	if err := s.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.hub.Count(hubtest.Resolve, weights); n != 1 {
		t.Errorf("resolved %d times", n)
	}
}

func TestBehaviour04FilesInGit(t *testing.T) {
	for _, direct := range []bool{false, true} {
		r := newRig(t, hubtest.Options{DirectGit: direct}, map[string]*hubtest.File{"config.json": hubtest.Git(`{"x":1}`)})
		b, err := r.snapshot(r.client()).ReadFile(t.Context(), "config.json", 100)
		if err != nil || string(b) != `{"x":1}` {
			t.Errorf("direct %v: %q, %v", direct, b, err)
		}
	}
}

func TestBehaviour05Renamed(t *testing.T) {
	for _, mirror := range []bool{false, true} {
		files := toyFiles()
		r := newRig(t, hubtest.Options{AbsoluteRename: mirror, Tokens: map[string][]string{"good": nil}}, files)
		r.hub.Rename("org/before", rigID)
		s, err := r.client(withToken("good")).Snapshot(t.Context(), Ref{"org/before", "main"}, SnapshotOptions{})
		if err != nil {
			t.Fatalf("mirror %v: %v", mirror, err)
		}
		fetchAll(t, s, files)
		s.Close()
	}
}

func TestBehaviour06RedirectLoopAndHostileHost(t *testing.T) {
	r := newRig(t, hubtest.Options{Tokens: map[string][]string{"good": nil}}, toyFiles())
	c := r.client(withToken("good"))
	s := r.snapshot(c)
	r.hub.Inject(hubtest.Fault{On: hubtest.Resolve, Path: "config.json", Times: -1, Status: 302, Location: "/" + rigID + "/resolve/" + r.commit + "/config.json"})
	if _, err := s.ReadFile(t.Context(), "config.json", 100); !errors.Is(err, ErrRedirect) || !strings.Contains(err.Error(), "loop") {
		t.Errorf("loop: %v", err)
	}
	r.hub.ClearFaults()
	r.hub.Inject(hubtest.Fault{On: hubtest.Resolve, Path: "config.json", Times: -1, Status: 302, Location: r.hub.HostileURL + "/x?token=mine",
		Header: map[string]string{"X-Repo-Commit": r.commit}})
	if _, err := s.ReadFile(t.Context(), "config.json", 100); err == nil {
		t.Error("the hostile host's bytes were taken")
	} else if strings.Contains(err.Error(), "token=mine") {
		t.Errorf("a query in a message: %v", err)
	}
	if r.hub.Count(hubtest.Hostile, "") == 0 {
		t.Error("the test did not get to the hostile host")
	}
	// A chain that leaves the hub and comes back does not get the token again.
	r.hub.ClearFaults()
	r.hub.ResetLog()
	r.hub.Inject(hubtest.Fault{On: hubtest.Resolve, Path: "config.json", Status: 302, Location: r.hub.HostileURL + "/x", Header: map[string]string{"X-Repo-Commit": r.commit}},
		hubtest.Fault{On: hubtest.Hostile, Status: 302, Location: r.hub.URL + "/" + rigID + "/resolve/main/config.json"})
	s.ReadFile(t.Context(), "config.json", 100)
	for i, q := range r.hub.Requests() {
		if i > 0 && q.Auth != "" {
			t.Errorf("token sent to %s after the chain had left the hub", q.URL)
		}
	}
}

func TestRedirectHops(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	s := r.snapshot(r.client())
	// Each hop has its own address, so this is not a loop.
	hops := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hops++
		w.Header().Set("Location", "/hop"+strings.Repeat("x", hops))
		w.WriteHeader(http.StatusFound)
	}))
	defer srv.Close()
	r.hub.Inject(hubtest.Fault{On: hubtest.Resolve, Times: -1, Status: 302, Location: srv.URL})
	if _, err := s.ReadFile(t.Context(), "config.json", 100); !errors.Is(err, ErrRedirect) || hops != maxHops {
		t.Errorf("%v after %d hops", err, hops)
	}
}

func TestBehaviour07Revisions(t *testing.T) {
	first := map[string]*hubtest.File{"config.json": hubtest.Git("first")}
	r := newRig(t, hubtest.Options{}, first)
	second := r.repo.Commit(map[string]*hubtest.File{"config.json": hubtest.Git("second")})
	r.repo.SetTag("v1", r.commit)
	r.repo.SetRef("refs/pr/1", r.commit)
	c := r.client()
	for rev, want := range map[string]string{"main": "second", "v1": "first", r.commit: "first", second: "second", "refs/pr/1": "first"} {
		ref, err := ParseRef(rigID + "@" + rev)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Snapshot(t.Context(), ref, SnapshotOptions{})
		if err != nil {
			t.Fatalf("%s: %v", rev, err)
		}
		if b, err := s.ReadFile(t.Context(), "config.json", 100); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", rev, b, err)
		}
		s.Close()
	}
	// The branch moves while a snapshot is open: its files do not.
	r.repo.SetRef("main", r.commit)
	s := r.snapshot(c)
	r.repo.SetRef("main", second)
	if b, err := s.ReadFile(t.Context(), "config.json", 100); err != nil || string(b) != "first" {
		t.Errorf("after the branch moved: %q, %v", b, err)
	}
	if next := r.snapshot(c); next.Commit != second {
		t.Errorf("a new snapshot has commit %s", next.Commit)
	}
	// A lock's commit wins over the branch.
	locked, err := c.Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{Commit: r.commit})
	if err != nil || locked.Commit != r.commit {
		t.Errorf("locked: %v", err)
	}
	locked.Close()
}

func TestBehaviour08Pages(t *testing.T) {
	for _, link := range []string{"", "https://huggingface.co"} {
		files := toyFiles()
		r := newRig(t, hubtest.Options{PageSize: 3, LinkHost: link}, files)
		// Only the endpoint may be contacted: a Link that names another host
		// must not lead there.
		s := r.snapshot(r.client(func(o *Options) { o.AllowHosts = []string{"127.0.0.2"} }))
		if n := len(s.Files()); n != len(files) {
			t.Errorf("Link to %q: %d of %d files", link, n, len(files))
		}
		if n := r.hub.Count(hubtest.Tree, ""); n != 3 {
			t.Errorf("Link to %q: %d pages", link, n)
		}
	}
	r := newRig(t, hubtest.Options{}, toyFiles())
	r.hub.Inject(hubtest.Fault{On: hubtest.Tree, Times: -1, Header: map[string]string{"Link": `</api/models/org/toy/tree/` + r.commit + `?recursive=true&expand=false>; rel="next"`}})
	if _, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{}); !errors.Is(err, ErrListing) {
		t.Errorf("pages in a circle: %v", err)
	}
}

func TestBehaviour09TwoNamesOfOneDigest(t *testing.T) {
	files := toyFiles()
	r := newRig(t, hubtest.Options{}, files)
	tree := r.snapshot(r.client()).Files()
	m := newRig(t, hubtest.Options{NoTree: true}, files)
	siblings := m.snapshot(m.client()).Files()
	if len(tree) != len(siblings) || len(tree) == 0 {
		t.Fatalf("%d files from the tree, %d from siblings", len(tree), len(siblings))
	}
	for i := range tree {
		if tree[i] != siblings[i] {
			t.Errorf("tree %+v, siblings %+v", tree[i], siblings[i])
		}
		f := files[tree[i].Path]
		if f.LFS && (tree[i].SHA256 != f.SHA256() || tree[i].GitOID != "") || !f.LFS && tree[i].GitOID != f.OID() {
			t.Errorf("%+v", tree[i])
		}
	}
}

func TestBehaviour11OneRangePerRequest(t *testing.T) {
	data := noise(4, 2_000_000)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	s := r.snapshot(r.client())
	if err := s.Need(t.Context(), weights, []Range{{1_500_000, 1}, {10, 20}, {900_000, 100_000}}); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, "one byte", read(t, s, weights, 1_500_000, 1), data[1_500_000:1_500_001])
	wantBytes(t, "start", read(t, s, weights, 10, 20), data[10:30])
	wantBytes(t, "middle", read(t, s, weights, 900_000, 100_000), data[900_000:1_000_000])
	for _, q := range r.hub.Requests() {
		if strings.Contains(q.Range, ",") {
			t.Errorf("several ranges in one request: %s", q.Range)
		}
	}
	if got := r.hub.Sent(weights); got != 100_021 {
		t.Errorf("%d bytes sent for 100021 needed", got)
	}
}

func TestBehaviour12RangeIgnoredAndGzip(t *testing.T) {
	data := noise(5, 1_000_000)
	for _, mode := range []struct {
		name   string
		change []func(*Options)
	}{{"spool", nil}, {"memory", []func(*Options){inMemory}}} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Times: -1, IgnoreRange: true})
		s := r.snapshot(r.client(mode.change...))
		for _, off := range []int64{0, 700_000, 300_000} {
			wantBytes(t, mode.name, read(t, s, weights, off, 1000), data[off:off+1000])
		}
		// The head, then the whole file once.
		if n := r.hub.Count(hubtest.CDN, weights); n > 2 {
			t.Errorf("%s: %d requests", mode.name, n)
		}
	}
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Times: -1, Gzip: true})
	b, err := r.snapshot(r.client()).Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ReadAt(t.Context(), make([]byte, 10), 0); !errors.Is(err, ErrEncoding) {
		t.Errorf("compressed against our wish: %v", err)
	}
	// A file over the memory cannot be read from such a server without a spool.
	big := noise(6, 2_000_000)
	r = newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(big)})
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Times: -1, IgnoreRange: true})
	b, err = r.snapshot(r.client(inMemory, func(o *Options) { o.Memory = 1 << 20 })).Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ReadAt(t.Context(), make([]byte, 10), 1_500_000); !errors.Is(err, ErrNoRange) {
		t.Errorf("no ranges and no room: %v", err)
	}
}

func TestBehaviour13CutStallShort(t *testing.T) {
	data := noise(7, 600_000)
	for name, fault := range map[string]hubtest.Fault{
		"cut":            {Cut: true, CutAfter: 1000},
		"cut three":      {Cut: true, CutAfter: 70_000, Times: 3},
		"cut at once":    {Cut: true, Times: 3},
		"stall":          {Stall: true, CutAfter: 1000},
		"stall at once":  {Stall: true},
		"short, chunked": {Chunked: true, Drop: 5000},
		"long, chunked":  {Chunked: true, Extra: 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
			fault.On = hubtest.CDN
			r.hub.Inject(fault)
			s := r.snapshot(r.client(func(o *Options) { o.DownloadTimeout = 200 * time.Millisecond }))
			wantBytes(t, "content", read(t, s, weights, 0, int64(len(data))), data)
			if err := s.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.Stats().Retries; got == 0 {
				t.Error("the fault did not show")
			}
			if name == "cut three" {
				// Nothing is asked for twice.
				if sent := r.hub.Sent(weights); sent != int64(len(data)) {
					t.Errorf("%d bytes sent for %d", sent, len(data))
				}
			}
		})
	}
	t.Run("for ever", func(t *testing.T) {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Times: -1, Cut: true})
		b, err := r.snapshot(r.client()).Open(t.Context(), weights)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.ReadAt(t.Context(), make([]byte, 10), 0); !errors.Is(err, ErrNetwork) {
			t.Errorf("a server that never sends: %v", err)
		}
		if n := r.hub.Count(hubtest.CDN, ""); n != 6 {
			t.Errorf("%d requests, want one and five retries", n)
		}
	})
}

func TestBehaviour14SignedAddresses(t *testing.T) {
	data := noise(8, 900_000)
	for name, opt := range map[string]hubtest.Options{"once": {SignedUses: 1}, "always": {}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, opt, map[string]*hubtest.File{weights: hubtest.LFS(data)})
			s := r.snapshot(r.client())
			r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Cut: true, CutAfter: 5000, Times: 6})
			wantBytes(t, "start", read(t, s, weights, 0, 200_000), data[:200_000])
			if name == "always" {
				if n := r.hub.Count(hubtest.Resolve, ""); n != 1 {
					t.Errorf("resolved %d times", n)
				}
				r.hub.Expire()
			}
			wantBytes(t, "rest", read(t, s, weights, 200_000, 700_000), data[200_000:])
			if err := s.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if sent := r.hub.Sent(weights); sent > int64(len(data))+2000 {
				t.Errorf("%d bytes sent for %d", sent, len(data))
			}
		})
	}
	t.Run("once, for many at a time", func(t *testing.T) {
		r := newRig(t, hubtest.Options{SignedUses: 1}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		s := r.snapshot(r.client(inMemory, func(o *Options) { o.Memory, o.Concurrency = 1<<20, 8 }))
		if err := s.Need(t.Context(), weights, []Range{{0, int64(len(data))}}); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, "all", read(t, s, weights, 0, int64(len(data))), data)
		if sent := r.hub.Sent(weights); sent > int64(len(data))+2000 {
			t.Errorf("%d bytes sent for %d", sent, len(data))
		}
	})
	t.Run("refused for ever", func(t *testing.T) {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Status: 403, Times: -1, Body: "<Error/>", ContentType: "application/xml"})
		b, _ := r.snapshot(r.client()).Open(t.Context(), weights)
		err := b.ReadAt(t.Context(), make([]byte, 10), 0)
		if !errors.Is(err, ErrServer) || r.hub.Count(hubtest.CDN, "") != maxFresh {
			t.Errorf("%v after %d requests", err, r.hub.Count(hubtest.CDN, ""))
		}
	})
}

func TestBehaviour16RateLimitThenGood(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	r.hub.Inject(
		hubtest.Fault{On: hubtest.Info, Status: 429, Header: map[string]string{"RateLimit": `"api";r=0;t=1`}},
		hubtest.Fault{On: hubtest.Info, Status: 429, Header: map[string]string{"RateLimit": "", "Retry-After": "7"}},
		hubtest.Fault{On: hubtest.Tree, Status: 503, Times: 2},
	)
	r.snapshot(r.client())
	// t+1, Retry-After+1, then 1 and 2 seconds of our own.
	want := []time.Duration{2 * time.Second, 8 * time.Second, 1 * time.Second, 2 * time.Second}
	if len(r.clock.slept) != len(want) {
		t.Fatalf("slept %v, want %v", r.clock.slept, want)
	}
	for i := range want {
		if r.clock.slept[i] != want[i] {
			t.Errorf("slept %v, want %v", r.clock.slept, want)
			break
		}
	}
	if n := r.hub.Count(hubtest.Any, ""); n != 6 {
		t.Errorf("%d requests", n)
	}
}

func TestBehaviour17OfflineSendsNothing(t *testing.T) {
	files := toyFiles()
	r := newRig(t, hubtest.Options{}, files)
	_, err := r.client(offline).Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
	if !errors.Is(err, ErrOffline) {
		t.Errorf("nothing cached: %v", err)
	}
	s := r.snapshot(r.client())
	fetchAll(t, s, files)
	s.Close()
	r.hub.ResetLog()
	s = r.snapshot(r.client(offline))
	fetchAll(t, s, files)
	if st := s.Stats(); r.hub.Count(hubtest.Any, "") != 0 || st.Requests != 0 || st.Fetched != 0 || st.FromSpool != st.Needed {
		t.Errorf("offline: %d requests, stats %+v", r.hub.Count(hubtest.Any, ""), st)
	}
}

func TestBehaviour18XetIsIgnored(t *testing.T) {
	for _, no := range []bool{false, true} {
		files := toyFiles()
		r := newRig(t, hubtest.Options{NoXet: no}, files)
		fetchAll(t, r.snapshot(r.client()), files)
		if n := r.hub.Count(hubtest.XetToken, ""); n != 0 {
			t.Errorf("%d Xet requests", n)
		}
	}
}

func TestBehaviour20HostileData(t *testing.T) {
	size := func(n int64) *int64 { return &n }
	for _, path := range []string{"../x", "/etc/x", "a/../../x", `a\b`, "C:/x", `\\host\share`, "a//b", "./a", "a\x00b", "a\nb"} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{"a": {Data: []byte("a"), ListedPath: path}})
		if _, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{}); !errors.Is(err, ErrPath) {
			t.Errorf("path %q: %v", path, err)
		}
	}
	open := func(f *hubtest.File) error {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: f})
		s, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.ReadFile(t.Context(), weights, 1<<20)
		return err
	}
	data := noise(9, 1000)
	for name, c := range map[string]struct {
		file *hubtest.File
		want error
	}{
		"size too small":   {&hubtest.File{Data: data, LFS: true, ListedSize: size(999)}, ErrSize},
		"size too large":   {&hubtest.File{Data: data, LFS: true, ListedSize: size(1001)}, ErrSize},
		"size negative":    {&hubtest.File{Data: data, LFS: true, ListedSize: size(-5)}, ErrListing},
		"git digest":       {&hubtest.File{Data: data, ListedOID: strings.Repeat("ab", 20)}, ErrDigest},
		"digest not hex":   {&hubtest.File{Data: data, LFS: true, ListedSHA256: "../../etc/passwd"}, ErrListing},
		"git hash not hex": {&hubtest.File{Data: data, ListedOID: "zz"}, ErrListing},
		// The hub contradicts its own listing.
		"digest of another file": {&hubtest.File{Data: data, LFS: true, ListedSHA256: strings.Repeat("ab", 32)}, ErrChanged},
	} {
		if err := open(c.file); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{"a": hubtest.Git("1"), "b": {Data: []byte("2"), ListedPath: "a"}})
	if _, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{}); !errors.Is(err, ErrListing) {
		t.Errorf("one path twice: %v", err)
	}
}

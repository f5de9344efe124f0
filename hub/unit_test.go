package hub

import (
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseRef(t *testing.T) {
	good := map[string]Ref{
		"gpt2":                      {"gpt2", "main"},
		"org/name":                  {"org/name", "main"},
		"org/name@v1.0":             {"org/name", "v1.0"},
		"org/name@refs/pr/12":       {"org/name", "refs/pr/12"},
		"Org_1/a.b-c_d@feature/x@y": {"Org_1/a.b-c_d", "feature/x@y"},
		"_a/b_":                     {"_a/b_", "main"},
		strings.Repeat("a", 96):     {strings.Repeat("a", 96), "main"},
	}
	for s, want := range good {
		got, err := ParseRef(s)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
		if again, err := ParseRef(got.String()); err != nil || again != got {
			t.Errorf("%q: written as %q", s, got)
		}
	}
	for _, s := range []string{
		"", "@main", "a/b/c", "/a", "a/", "a--b", "a..b", "../a", "a/..", "a.git", "org/a.git", "-a", "a-", ".a", "a.", "org/-a", "a b", "a%2Fb", "ä",
		strings.Repeat("a", 97), "a\n", "a\\b", "a:b",
		"a@", "a@..", "a@x..y", "a@/x", "a@x/", "a@x//y", "a@-x", "a@x y", "a@x~1", "a@x^", "a@x:y", "a@x?", "a@x*", "a@x[", "a@x\\y", "a@x\x7f", "a@x\ny",
		"a@.hidden", "a@x/.y", "a@x.lock", "a@x@{1}", "a@" + strings.Repeat("r", 256),
	} {
		if got, err := ParseRef(s); !errors.Is(err, ErrRef) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	if n := (Ref{"org/name", "main"}).Name(); n != "name" {
		t.Errorf("name %q", n)
	}
}

func TestParseContentRange(t *testing.T) {
	good := map[string]contentRange{
		"bytes 0-0/1":       {Start: 0, End: 0, Total: 1},
		"bytes 5-9/100":     {Start: 5, End: 9, Total: 100},
		"Bytes  5-9/*":      {Start: 5, End: 9, Total: -1},
		"bytes */177":       {Total: 177, Unsatisfied: true},
		" bytes 1-2/3 ":     {Start: 1, End: 2, Total: 3},
		"bytes 0-9223/9224": {Start: 0, End: 9223, Total: 9224},
	}
	for s, want := range good {
		if got, err := parseContentRange(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "bytes", "bytes 1-2", "bytes 2-1/3", "bytes 1-3/3", "bytes */*", "items 1-2/3", "bytes -1-2/3", "bytes 1-/3", "bytes 1-2/x", "bytes +1-2/3",
		"bytes 1-2/99999999999999999999", "bytes 0-9223372036854775807/*", "bytes 1 - 2/3", "bytes 1-2/3, 4-5/6",
	} {
		if got, err := parseContentRange(s); err == nil {
			t.Errorf("%q: %+v", s, got)
		}
	}
}

func TestParseLinkNext(t *testing.T) {
	for s, want := range map[string]string{
		`<https://h/x?cursor=a%3D>; rel="next"`:                                  "https://h/x?cursor=a%3D",
		`<https://h/x>; rel=next`:                                                "https://h/x",
		`<https://h/1>; rel="prev", <https://h/2>; rel="next"`:                   "https://h/2",
		`<https://h/a,b;c>; title="x, y; rel=\"next\""; rel="last next", <x>`:    "https://h/a,b;c",
		`</relative>; Rel="NEXT"`:                                                "/relative",
		`<https://h/x>; rel="xet-auth", <https://h/y>; rel="xet-reconstruction"`: "",
		`<https://h/x>; title="rel=next"`:                                        "",
		`<>; rel="next"`:                                                         "",
		`<https://h/x; rel="next"`:                                               "",
		`rel="next"`:                                                             "",
		``:                                                                       "",
	} {
		got, ok := parseLinkNext([]string{s})
		if got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", s, got, ok)
		}
	}
	if got, _ := parseLinkNext([]string{`<a>; rel="x"`, `<b>; rel="next"`}); got != "b" {
		t.Errorf("second header: %q", got)
	}
}

func TestRetryWait(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		limit, after string
		want         time.Duration
		ok           bool
	}{
		{`"api";r=0;t=55`, "", 56 * time.Second, true},
		{`"api";r=0;t=55`, "3", 56 * time.Second, true},
		{`"api";r=1;t=55`, "3", 4 * time.Second, true},
		{`"api";r=5;t=9, "resolvers";r=0;t=7`, "", 8 * time.Second, true},
		{`"api" ; r = 0 ; t = 2`, "", 3 * time.Second, true},
		{`"a;r=0;t=1";r=3;t=9`, "", 0, false},
		{"", "0", time.Second, true},
		{"", "Fri, 02 Jan 2026 03:04:15 GMT", 11 * time.Second, true},
		{"", "Fri, 02 Jan 2026 03:00:00 GMT", time.Second, true},
		{"", "soon", 0, false},
		{"", "-5", 0, false},
		{"", "", 0, false},
		{`"api";r=x;t=1`, "", 0, false},
		{"", "99999999999", 365*24*time.Hour + time.Second, true},
	} {
		h := http.Header{}
		if c.limit != "" {
			h.Set("RateLimit", c.limit)
		}
		if c.after != "" {
			h.Set("Retry-After", c.after)
		}
		if got, ok := retryWait(h, now); got != c.want || ok != c.ok {
			t.Errorf("%q %q: %v, %v", c.limit, c.after, got, ok)
		}
	}
}

func TestParseETag(t *testing.T) {
	for s, want := range map[string]string{`"abc"`: "abc", `W/"abc"`: "abc weak", ` "a" `: "a", ``: "", `abc`: "abc"} {
		tag, weak := parseETag(s)
		if weak {
			tag += " weak"
		}
		if tag != want {
			t.Errorf("%q: %q", s, tag)
		}
	}
}

func TestClean(t *testing.T) {
	for s, want := range map[string]string{
		"plain": "plain", "a\x1b[2Jb": "a[2Jb", " x\r\ny\t": "x y", "\xff\xfebad": "bad", "a\u202eb": "ab", strings.Repeat("é", 400): strings.Repeat("é", 300) + "...",
	} {
		if got := clean(s); got != want {
			t.Errorf("%q: %q", s, got)
		}
	}
}

func TestRedact(t *testing.T) {
	u, err := url.Parse("https://user:pass@host:1/a%2Fb?Signature=s&x=y#frag")
	if err != nil {
		t.Fatal(err)
	}
	if got := redact(u); got != "https://host:1/a%2Fb?..." {
		t.Error(got)
	}
}

// TestSpans compares the set of spans with a set of bits.
func TestSpans(t *testing.T) {
	const n = 64
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var s spans
		var bits [n]bool
		for range rng.IntN(12) {
			lo := rng.Int64N(n)
			x := span{lo, lo + rng.Int64N(n-lo+1)}
			add := rng.IntN(3) > 0
			if add {
				s = s.add(x)
			} else {
				s = s.remove(x)
			}
			for i := x.lo; i < x.hi; i++ {
				bits[i] = add
			}
		}
		var want spans
		for i := 0; i < n; i++ {
			if !bits[i] {
				continue
			}
			j := i
			for j < n && bits[j] {
				j++
			}
			want = append(want, span{int64(i), int64(j)})
			i = j
		}
		if !slices.Equal(s, want) {
			t.Fatalf("%v, want %v", s, want)
		}
		lo := rng.Int64N(n)
		q := span{lo, lo + rng.Int64N(n-lo+1)}
		var in, run int64
		all := true
		for i := q.lo; i < q.hi; i++ {
			if bits[i] {
				in++
			} else {
				all = false
			}
		}
		for i := lo; i < n && bits[i]; i++ {
			run++
		}
		var miss, inside int64
		for _, m := range s.missing(q) {
			miss += m.len()
			if m.lo < q.lo || m.hi > q.hi || m.lo >= m.hi {
				t.Fatalf("missing %v of %v", m, q)
			}
		}
		for _, m := range s.inside(q) {
			inside += m.len()
		}
		if miss != q.len()-in || inside != in || s.within(q) != in || s.has(q) != all || s.prefix(lo) != run {
			t.Fatalf("%v in %v: missing %d, inside %d, within %d, has %v, prefix %d", q, s, miss, inside, s.within(q), s.has(q), s.prefix(lo))
		}
	}
}

// TestPlanSegments: requests are disjoint, sorted, within the limit, cover all
// that is wanted and at most the gap budget more.
func TestPlanSegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		size := 1 + rng.Int64N(5000)
		lim := planLimits{segment: 1 + rng.Int64N(300), gap: rng.Int64N(50)}
		lim.big = 1 + lim.segment/4
		var items []span
		var want spans
		for range rng.IntN(20) {
			lo := rng.Int64N(size)
			x := span{lo, lo + rng.Int64N(min(size-lo, 400)+1)}
			items = append(items, x)
			want = want.add(x)
		}
		whole := rng.IntN(4) == 0
		input := slices.Clone(items)
		segs, gap := planSegments(items, size, whole, lim)
		if !slices.Equal(input, items) {
			t.Fatal("the items were changed")
		}
		var got spans
		last := int64(0)
		for _, s := range segs {
			if s.lo < last || s.hi <= s.lo || s.hi > size || s.len() > lim.segment {
				t.Fatalf("segments %v, limit %+v", segs, lim)
			}
			last = s.hi
			got = got.add(s)
		}
		if len(want) > 0 && whole {
			want = spans{{0, size}}
		}
		for _, w := range want {
			if !got.has(w) {
				t.Fatalf("%v does not cover %v", got, want)
			}
		}
		if over := got.total() - want.total(); over > lim.gap && !whole || !whole && over != gap || whole && over != 0 {
			t.Fatalf("%d bytes over, gap %d, budget %d, whole %v", over, gap, lim.gap, whole)
		}
	}
}

func TestPlanJoinsNeighbours(t *testing.T) {
	lim := planLimits{segment: 1000, big: 500, gap: 12}
	segs, gap := planSegments([]span{{0, 100}, {100, 200}, {205, 300}, {310, 400}, {407, 450}}, 5000, false, lim)
	// The gaps of 5 and 7 fit the budget, that of 10 does not.
	if want := []span{{0, 300}, {310, 450}}; !slices.Equal(segs, want) || gap != 12 {
		t.Errorf("%v, gap %d", segs, gap)
	}
	segs, _ = planSegments([]span{{0, 600}, {600, 700}, {700, 800}}, 5000, false, lim)
	if want := []span{{0, 600}, {600, 800}}; !slices.Equal(segs, want) {
		t.Errorf("a big range is not by itself: %v", segs)
	}
	segs, _ = planSegments([]span{{0, 2500}}, 5000, false, lim)
	if want := []span{{0, 834}, {834, 1667}, {1667, 2500}}; !slices.Equal(segs, want) {
		t.Errorf("a long range: %v", segs)
	}
	if segs, _ := planSegments([]span{{math.MaxInt64 - 10, math.MaxInt64}}, math.MaxInt64, false, lim); len(segs) != 1 {
		t.Errorf("at the end of the number line: %v", segs)
	}
}

func TestWantWhole(t *testing.T) {
	for _, c := range []struct {
		size, need int64
		want       bool
	}{{100, 100, true}, {101, 100, false}, {1000, 991, true}, {1000, 990, false}, {0, 0, false}, {10, 0, false}, {1, 1, true}} {
		if got := wantWhole(c.size, spans{}.add(span{0, c.need})); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestJournalRecords(t *testing.T) {
	r := record{kind: recordExtent, span: span{1 << 40, 1<<40 + 4096}, sum: [32]byte{1, 2, 3}}
	b := r.encode()
	if len(b) != 64 || string(b[:4]) != "qsj1" || b[4] != 1 || b[13] != 1 || b[17] != 0x10 || b[24] != 1 {
		t.Errorf("% x", b)
	}
	if got, ok := decodeRecord(b, 1<<41); !ok || got != r {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := decodeRecord(b, 1<<40+4095); ok {
		t.Error("a record past the end of its file")
	}
	for i := range b {
		c := slices.Clone(b)
		c[i] ^= 0x40
		if _, ok := decodeRecord(c, 1<<41); ok {
			t.Errorf("a wrong bit in byte %d passes", i)
		}
	}
	for _, bad := range []record{
		{kind: recordExtent, span: span{5, 5}},
		{kind: recordExtent, span: span{0, maxExtent + 1}},
		{kind: 9, span: span{0, 1}},
	} {
		if _, ok := decodeRecord(bad.encode(), 1<<41); ok {
			t.Errorf("%+v passes", bad)
		}
	}
	var m extentMap
	for _, x := range []span{{10, 20}, {0, 10}, {30, 40}, {15, 25}} {
		m.apply(record{kind: recordExtent, span: x}.encode(), 100)
	}
	m.apply(record{kind: recordVerified}.encode(), 100)
	if !m.verified || !slices.Equal(m.claimed, spans{{0, 25}, {30, 40}}) || len(m.touching(span{12, 16})) != 2 {
		t.Errorf("%+v", m)
	}
	// A drop takes every extent that touches it, and the verification.
	m.apply(record{kind: recordDrop, span: span{24, 31}}.encode(), 100)
	if m.verified || !slices.Equal(m.claimed, spans{{0, 20}}) {
		t.Errorf("%+v", m)
	}
}

// TestMemoryKeepsWhatAReaderWaitsFor: two readers in little room must not take
// their buffers from each other.
func TestMemoryKeepsWhatAReaderWaitsFor(t *testing.T) {
	m := newMemory(100)
	a, b := &remote{size: 1000}, &remote{size: 1000}
	m.reserve(a, span{0, 80}, nil, true, false)
	m.write(a, 0, make([]byte, 80))
	m.reserve(b, span{0, 80}, nil, true, false)
	p := make([]byte, 80)
	if n := m.read(a, p, 0); n != 80 {
		t.Fatalf("%d bytes left of what a reader waits for", n)
	}
	// Read once, it may go.
	m.reserve(b, span{80, 100}, nil, true, false)
	if n := m.read(a, p, 0); n != 0 || m.total() != 100 {
		t.Errorf("%d bytes kept, %d in all", n, m.total())
	}
}

func mapEnv(m map[string]string) func(string) string { return func(k string) string { return m[k] } }

func TestOptionsFromEnv(t *testing.T) {
	home := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".cache/huggingface/token", " from-home \r\n")
	write("hf/token", "from-hf-home\n")
	write("my-token", "from-path")
	write("empty", " \n")
	cache := filepath.Join(home, ".cache", "huggingface", "hub")
	for _, c := range []struct {
		name string
		env  map[string]string
		want Options
	}{
		{"nothing", nil, Options{Token: "from-home", CacheDirs: []string{cache}}},
		{"endpoint", map[string]string{"HF_ENDPOINT": "https://mirror.example/ "}, Options{Endpoint: "https://mirror.example", Token: "from-home", CacheDirs: []string{cache}}},
		{"token order", map[string]string{"HF_TOKEN": "a\n", "HUGGING_FACE_HUB_TOKEN": "b"}, Options{Token: "a", CacheDirs: []string{cache}}},
		{"old token", map[string]string{"HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": "b"}, Options{Token: "b", CacheDirs: []string{cache}}},
		{"token path", map[string]string{"HF_TOKEN_PATH": "~/my-token"}, Options{Token: "from-path", CacheDirs: []string{cache}}},
		{"empty token file", map[string]string{"HF_TOKEN_PATH": "$HOME/empty"}, Options{CacheDirs: []string{cache}}},
		{"no token file", map[string]string{"HF_TOKEN_PATH": "~/none"}, Options{CacheDirs: []string{cache}}},
		{"not implicit", map[string]string{"HF_TOKEN": "a", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "Yes"}, Options{CacheDirs: []string{cache}}},
		{"home", map[string]string{"HF_HOME": "${HOME}/hf"}, Options{Token: "from-hf-home", CacheDirs: []string{filepath.Join(home, "hf", "hub")}}},
		{"xdg", map[string]string{"XDG_CACHE_HOME": "~/xdg"}, Options{CacheDirs: []string{filepath.Join(home, "xdg", "huggingface", "hub")}}},
		{"cache", map[string]string{"HF_HUB_CACHE": "~/c1", "HUGGINGFACE_HUB_CACHE": "~/c2"}, Options{Token: "from-home", CacheDirs: []string{filepath.Join(home, "c1")}}},
		{"old cache", map[string]string{"HUGGINGFACE_HUB_CACHE": "$UNKNOWN/c2"}, Options{Token: "from-home", CacheDirs: []string{"$UNKNOWN/c2"}}},
		{"offline", map[string]string{"HF_HUB_OFFLINE": "on"}, Options{Token: "from-home", Offline: true, CacheDirs: []string{cache}}},
		{"offline of transformers", map[string]string{"TRANSFORMERS_OFFLINE": "1"}, Options{Token: "from-home", Offline: true, CacheDirs: []string{cache}}},
		{"not offline", map[string]string{"HF_HUB_OFFLINE": "0"}, Options{Token: "from-home", CacheDirs: []string{cache}}},
		{"timeouts", map[string]string{"HF_HUB_ETAG_TIMEOUT": "3", "HF_HUB_DOWNLOAD_TIMEOUT": "60"},
			Options{Token: "from-home", MetadataTimeout: 3 * time.Second, DownloadTimeout: time.Minute, CacheDirs: []string{cache}}},
	} {
		env := map[string]string{"HOME": home}
		for k, v := range c.env {
			env[k] = v
		}
		got, err := OptionsFromEnv(mapEnv(env))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	for _, env := range []map[string]string{
		{"HF_HUB_ETAG_TIMEOUT": "soon"}, {"HF_HUB_DOWNLOAD_TIMEOUT": "0"}, {"HF_HUB_DOWNLOAD_TIMEOUT": "-1"}, {"HF_TOKEN_PATH": home},
	} {
		env["HOME"] = home
		if _, err := OptionsFromEnv(mapEnv(env)); !errors.Is(err, ErrOptions) {
			t.Errorf("%v: %v", env, err)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for s, want := range map[string]string{
		"": DefaultEndpoint, "https://h": "https://h", "https://h/": "https://h", "http://h:8080//": "http://h:8080", "https://h/prefix/": "https://h/prefix",
	} {
		c, err := New(Options{Endpoint: s})
		if err != nil || c.Endpoint() != want {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"h", "ftp://h", "https://", "https://u:secret@h", "https://h?x=secret", "https://h#f", "https://h:x", "https://secret\x7f"} {
		if _, err := New(Options{Endpoint: s}); !errors.Is(err, ErrOptions) || strings.Contains(err.Error(), "secret") && s != "https://secret\x7f" {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestCheckPath(t *testing.T) {
	for _, p := range []string{"a", "a/b.c", "..a/b", "a/..b", "a b/ü#?%.txt", "aux:x/y", strings.Repeat("a", 4096)} {
		if err := checkPath(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{"", ".", "..", "/a", "a/", "a//b", "./a", "a/./b", "a/../b", "../a", "a\\b", "c:/x", "C:x", "a\x00", "a\x7f", "\xff", strings.Repeat("a", 4097)} {
		if err := checkPath(p); !errors.Is(err, ErrPath) {
			t.Errorf("%q: %v", p, err)
		}
	}
}

func TestDefaultsHoldOnSmallMachines(t *testing.T) {
	o, _, err := Options{}.withDefaults()
	if err != nil || o.Memory != 64<<20 || o.Concurrency != 8 || o.DownloadTimeout != 10*time.Second || !strings.Contains(o.UserAgent, runtime.GOARCH) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, _, _ := (Options{Memory: 5}).withDefaults(); o.Memory != 1<<20 {
		t.Errorf("memory %d", o.Memory)
	}
}

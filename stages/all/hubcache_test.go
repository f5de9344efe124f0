package all_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"quern/hub"
	"quern/hub/hubtest"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/source"
)

// hfCache writes the cache of huggingface_hub with some of the files, and gives
// the folder that holds the commit's links.
func (o *online) hfCache(dir string, names ...string) string {
	o.t.Helper()
	repo := filepath.Join(dir, "models--org--"+o.model)
	put := func(path string, b []byte) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			o.t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			o.t.Fatal(err)
		}
	}
	put(filepath.Join(repo, "refs", "main"), []byte(o.commit))
	snapshot := filepath.Join(repo, "snapshots", o.commit)
	if err := os.MkdirAll(snapshot, 0o755); err != nil {
		o.t.Fatal(err)
	}
	sealed := hubFiles(o.files)
	hubtest.NewRepo("x").Commit(sealed)
	for _, name := range names {
		f := sealed[name]
		blob := f.OID()
		if f.LFS {
			blob = f.SHA256()
		}
		put(filepath.Join(repo, "blobs", blob), o.files[name])
		if err := os.Symlink("../../blobs/"+blob, filepath.Join(snapshot, name)); err != nil {
			o.t.Fatal(err)
		}
	}
	return snapshot
}

func names(files map[string][]byte, except ...string) []string {
	var out []string
	for name := range files {
		if !strings.Contains(strings.Join(except, " "), name) {
			out = append(out, name)
		}
	}
	return out
}

// TestHubCacheInPlace: what other tools have downloaded is used where it is.
func TestHubCacheInPlace(t *testing.T) {
	o := goOnline(t, "stories-wide", hubtest.Options{})
	cache := t.TempDir()
	use := func(h *hub.Options) { h.CacheDirs = []string{cache} }
	offline := func(h *hub.Options) { h.Offline = true }
	want := o.fromDir("gguf-q8")

	// A part of it: the rest is fetched, and offline the missing file is named.
	snapshot := o.hfCache(cache, names(o.files, shard2)...)
	_, err := o.try(t.Context(), "gguf-q8", o.options(), use, offline)
	if !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), shard2) {
		t.Errorf("offline, without %s: %v", shard2, err)
	}
	if n := len(o.hub.Requests()); n != 0 {
		t.Errorf("%d requests offline", n)
	}
	res := o.build("gguf-q8", use)
	o.same(res, want)
	st := res.Stats.Fetch["base"]
	if size := int64(len(o.files[shard2])); st.Fetched > size+size/100 || o.hub.Sent("") != st.Fetched || st.Cached < int64(len(o.files[shard1])) {
		t.Errorf("%s has %d bytes, %+v", shard2, size, st)
	}

	// All of it: nothing is fetched, with a connection and without.
	cache = t.TempDir()
	snapshot = o.hfCache(cache, names(o.files)...)
	for _, online := range []bool{false, true} {
		o.store = newStore(t)
		o.hub.ResetLog()
		change := []func(*hub.Options){use}
		if !online {
			change = append(change, offline)
		}
		res = o.build("gguf-q8", change...)
		o.same(res, want)
		if sent := o.hub.Sent(""); sent != 0 || !online && len(o.hub.Requests()) != 0 {
			t.Errorf("online %v: %d bytes sent in %d requests", online, sent, len(o.hub.Requests()))
		}
		if res.Sources[0].Commit != o.commit {
			t.Errorf("commit %s", res.Sources[0].Commit)
		}
	}

	// The folder of links can be named as a folder as well. It is called by its
	// commit, which goes into the name; nothing else differs.
	o.hub.ResetLog()
	dir := filepath.Join(t.TempDir(), o.model)
	if err := os.Symlink(snapshot, dir); err != nil {
		t.Fatal(err)
	}
	res, err = build1(t.Context(), t, "gguf-q8", o.env(), o.options(), "sources.base.dir="+dir)
	if err != nil {
		t.Fatal(err)
	}
	o.same(res, want)
	if !res.Outputs[0].Cached || len(o.hub.Requests()) != 0 {
		t.Error("the folder's build did not find what that of the cache had made")
	}
	// An output must not replace a blob that a link leads to.
	blob, err := filepath.EvalSymlinks(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	opt := o.options()
	opt.OutDir = filepath.Dir(blob)
	_, err = build1(t.Context(), t, "gguf-q8", o.env(), opt, "sources.base.dir="+dir, "outputs.0.file="+filepath.Base(blob)+"")
	if !errors.Is(err, pipeline.ErrSameFile) {
		t.Errorf("an output over an input: %v", err)
	}

	// A damaged blob of the right size is noticed: an error offline, and
	// fetched otherwise.
	weights, err := filepath.EvalSymlinks(filepath.Join(snapshot, shard1))
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(nil), o.files[shard1]...)
	bad[len(bad)/2] ^= 1
	if err := os.WriteFile(weights, bad, 0o644); err != nil {
		t.Fatal(err)
	}
	o.store = newStore(t)
	if _, err = o.try(t.Context(), "gguf-q8", o.options(), use, offline); !errors.Is(err, hub.ErrDigest) || !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("damaged, offline: %v", err)
	}
	o.same(o.build("gguf-q8", use), want)
	if got := readAll(t, weights); len(got) != len(bad) || got[len(bad)/2] != bad[len(bad)/2] {
		t.Error("the cache was written to")
	}
}

// acting lets a test act before requests are sent and after they were answered.
type acting struct {
	mu     sync.Mutex
	before func(r *http.Request)
	after  func(r *http.Response)
}

func (a *acting) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	if a.before != nil {
		a.before(r)
	}
	a.mu.Unlock()
	resp, err := http.DefaultTransport.RoundTrip(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && a.after != nil {
		a.after(resp)
	}
	return resp, err
}

// other is another version of a model: every weight file has changed bytes of
// the same length.
func other(t *testing.T, files map[string][]byte) map[string]*hubtest.File {
	t.Helper()
	out := map[string][]byte{}
	for name, b := range files {
		c := append([]byte(nil), b...)
		if strings.HasSuffix(name, ".safetensors") {
			for i := len(c) - 1000; i < len(c); i += 2 {
				c[i] ^= 1
			}
		}
		out[name] = c
	}
	return hubFiles(out)
}

// TestBranchMoves: a branch that moves while a build runs cannot mix versions,
// and what the record says is what was read.
func TestBranchMoves(t *testing.T) {
	// A file that has to be hashed makes the build plan twice.
	extra := filepath.Join(t.TempDir(), "extra.txt")
	if err := os.WriteFile(extra, []byte("a file that has to be hashed"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		twice bool   // a file has to be hashed
		part  string // of the path of the request before which it moves
		first int64  // size up to which files are hashed first
	}{
		"before the listing":       {false, "/tree/", 0},
		"before the weights":       {false, "/resolve/", 0},
		"between two plans":        {true, "/tree/", 0},
		"before the plan for keys": {true, "/resolve/", -1},
		"while weights are read":   {true, "/xet-bridge-us/", -1},
	} {
		t.Run(name, func(t *testing.T) {
			o := goOnline(t, "stories-wide", hubtest.Options{})
			want := o.fromDir(hubRecipe)
			moved := 0
			tr := &acting{before: func(r *http.Request) {
				if strings.Contains(r.URL.Path, c.part) && moved == 0 {
					moved++
					o.repo.Commit(other(t, o.files))
				}
			}}
			env := o.env(func(h *hub.Options) { h.Transport = tr })
			prj := o.project(hubRecipe, env)
			if open := prj.Open; c.twice {
				prj.Open = func(ctx context.Context) ([]*pipeline.Source, error) {
					list, err := open(ctx)
					if err != nil {
						return nil, err
					}
					more, err := source.Open(ctx, env, []recipes.Source{{Name: "extra", Kind: recipes.SourceFile, Value: extra}})
					return append(list, more...), err
				}
			}
			opt := o.options()
			opt.HashFirst = c.first
			res, err := pipeline.Build(t.Context(), prj, opt)
			if err != nil {
				t.Fatal(err)
			}
			if moved != 1 {
				t.Fatal("the branch did not move")
			}
			o.same(res, want)
			if got := res.Sources[0].Commit; got != o.commit {
				t.Errorf("the record says commit %s, the bytes are those of %s", got, o.commit)
			}
			if n := o.hub.Count(hubtest.Info, ""); n != 1 {
				t.Errorf("the branch was asked for %d times", n)
			}
			// The next build takes the new version.
			if again := o.build(hubRecipe); again.Outputs[0].SHA256 == want.Outputs[0].SHA256 || again.Sources[0].Commit == o.commit {
				t.Error("the next build missed the new commit")
			}
		})
	}
}

// TestLockedCommit: --locked takes the branch for what it was.
func TestLockedCommit(t *testing.T) {
	o := goOnline(t, "stories-wide", hubtest.Options{})
	lock := filepath.Join(t.TempDir(), "r.lock")
	opt := o.options()
	opt.LockPaths = []string{lock}
	first, err := o.try(t.Context(), "kmcu-tied", opt)
	if err != nil {
		t.Fatal(err)
	}
	o.repo.Commit(other(t, o.files))
	opt.Locked = true
	// As a lock without pins would be used: the new commit is refused.
	if _, err := o.try(t.Context(), "kmcu-tied", opt); !errors.Is(err, pipeline.ErrLocked) || !strings.Contains(err.Error(), o.commit) {
		t.Errorf("another commit under the lock: %v", err)
	}
	l, err := pipeline.ReadLock(lock)
	if err != nil {
		t.Fatal(err)
	}
	o.pins = map[string]string{l.Sources[0].Name: l.Sources[0].Commit}
	for _, fresh := range []bool{false, true} {
		if fresh {
			o.store = newStore(t)
			opt.Store = o.options().Store
		}
		opt.OutDir = t.TempDir()
		res, err := o.try(t.Context(), "kmcu-tied", opt)
		if err != nil {
			t.Fatalf("fresh %v: %v", fresh, err)
		}
		o.same(res, first)
		if res.Sources[0].Commit != o.commit {
			t.Errorf("commit %s, locked to %s", res.Sources[0].Commit, o.commit)
		}
	}
	// A commit that is gone is an error that names it.
	o.pins["base"] = strings.Repeat("0", 40)
	o.store = newStore(t)
	if _, err := o.try(t.Context(), "kmcu-tied", o.options()); !errors.Is(err, hub.ErrRevision) || !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("a commit that is gone: %v", err)
	}
}

// TestReadInPartIsDoubted: the head of a file proves nothing, so what was made
// of it is not given to builds whose file is proved.
func TestReadInPartIsDoubted(t *testing.T) {
	o := goOnline(t, "stories-wide", hubtest.Options{})
	// The largest weight becomes another one.
	lo, hi := o.tensor("model.layers.1.mlp.up_proj.weight")
	at, largest := lo, uint16(0)
	for i := lo; i < hi; i += 2 {
		if v := binary.LittleEndian.Uint16(o.files[shard1][i:]) & 0x7fff; v > largest {
			at, largest = i, v
		}
	}
	// The server's bytes differ from its listing all along, in a file of which
	// the head is left out: nobody can know.
	o.hub.Inject(hubtest.Fault{On: hubtest.CDN, Path: shard1, Flip: at + 1, Times: -1})
	wrong := o.build("kmcu-tied")
	right := o.fromDir("kmcu-tied")
	if wrong.Outputs[0].SHA256 == right.Outputs[0].SHA256 {
		t.Fatal("the flipped byte changed nothing")
	}
	// The same build again needs nothing from the network.
	o.hub.ResetLog()
	again := o.build("kmcu-tied", func(h *hub.Options) { h.Offline = true })
	if !again.Outputs[0].Cached || again.Outputs[0].SHA256 != wrong.Outputs[0].SHA256 {
		t.Errorf("made %d tensors again", again.Outputs[0].Made)
	}
	// A folder with the right file does not get the wrong tensors.
	opt := o.options()
	opt.OutDir = t.TempDir()
	res, err := build1(t.Context(), t, "kmcu-tied", o.env(), opt, "sources.base.dir="+o.dir())
	if err != nil {
		t.Fatal(err)
	}
	o.same(res, right)
	// And what is proved is taken from now on, also by the hub's build.
	o.same(o.build("kmcu-tied", func(h *hub.Options) { h.Offline = true }), right)
}

// TestFetchEvents: the reporter hears how much of the fetch is done.
func TestFetchEvents(t *testing.T) {
	o := goOnline(t, "stories-wide", hubtest.Options{})
	var mu sync.Mutex
	var seen []pipeline.Event
	opt := o.options()
	opt.Events = pipeline.EventFunc(func(e pipeline.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == pipeline.EventFetch {
			seen = append(seen, e)
		}
	})
	res, err := o.try(t.Context(), "gguf-q8", opt)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) == 0 {
		t.Fatal("no event says what was fetched")
	}
	last := seen[len(seen)-1]
	if st := res.Stats.Fetch["base"]; last.Done != last.Total || last.Total != st.Needed || last.Total < o.needed(res)*9/10 {
		t.Errorf("the last event says %d of %d bytes; %+v", last.Done, last.Total, st)
	}
	for i := 1; i < len(seen); i++ {
		if seen[i].Done < seen[i-1].Done {
			t.Errorf("%d bytes after %d", seen[i].Done, seen[i-1].Done)
		}
	}
	// Nothing is fetched from a folder.
	seen = nil
	if _, err := build1(t.Context(), t, "gguf-q8", source.Env{}, pipeline.BuildOptions{OutDir: t.TempDir(), Events: opt.Events}, "sources.base.dir="+o.dir()); err != nil || len(seen) != 0 {
		t.Errorf("%v, %d events", err, len(seen))
	}
}

// TestPlanSaysWhatIsFetched: to the byte, less what is here already.
func TestPlanSaysWhatIsFetched(t *testing.T) {
	o := goOnline(t, "stories-wide", hubtest.Options{})
	text := strings.Replace(hubRecipe, "  - quantize: {type: Q8_0, fallback: F16}\n", "  - tie-head: {force: true}\n", 1)
	text = strings.Replace(text, "{format: gguf, file: out.gguf}", "{format: kmcu, file: out.kmcu}", 1)
	toFetch := func(change ...func(*hub.Options)) int64 {
		t.Helper()
		p, err := pipeline.NewPlan(t.Context(), o.project(text, o.env(change...)), pipeline.PlanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		rep, err := p.Report(t.Context(), nil, pipeline.EmitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !rep.Sources[0].Remote {
			t.Error("not a source of the network")
		}
		return rep.Sources[0].ToFetch
	}
	// All tensors but the head, which are BF16 and so as many bytes as both
	// files have behind their headers.
	var all int64
	for _, f := range []string{shard1, shard2} {
		all += int64(len(o.files[f])) - 8 - int64(binary.LittleEndian.Uint64(o.files[f]))
	}
	lo, hi := o.tensor("lm_head.weight")
	all -= hi - lo
	memory := func(h *hub.Options) { h.SpoolDir = "" }
	if got := toFetch(memory); got != all {
		t.Errorf("without a store: %d bytes, want %d", got, all)
	}
	// The reads of the headers have brought the start of the second file's
	// first tensors; that of the first file is the head's.
	head := int64(len(o.files[shard2]))/256 - 8 - int64(binary.LittleEndian.Uint64(o.files[shard2]))
	if got := toFetch(); got != all-head {
		t.Errorf("at first: %d bytes, want %d less %d", got, all, head)
	}
	o.build(text)
	if got := toFetch(); got != 0 {
		t.Errorf("after a build: %d bytes", got)
	}
	cache := t.TempDir()
	o.hfCache(cache, names(o.files, shard1)...)
	if got := toFetch(memory, func(h *hub.Options) { h.CacheDirs = []string{cache} }); got >= all || got < all/3 {
		t.Errorf("with one file in the cache: %d bytes of %d", got, all)
	}
}

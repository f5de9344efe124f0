package all_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/hub"
	"quern/hub/hubtest"
	"quern/internal/testmodel"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/source"
)

// online is a hub with one model, and a store and an output folder to build it
// into.
type online struct {
	t      *testing.T
	hub    *hubtest.Hub
	repo   *hubtest.Repo
	commit string
	model  string
	alias  string // the repository's former name, when recipes use that
	files  map[string][]byte

	store *local.Store // nil builds without one
	out   string
	pins  map[string]string // as --locked takes them from a lock file

	mu    sync.Mutex
	says  []hub.Event
	clock *jumping
}

// jumping is a clock whose waits take no time.
type jumping struct {
	mu  sync.Mutex
	now time.Time
}

func (c *jumping) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *jumping) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	c.now = c.now.Add(d)
	c.mu.Unlock()
	return context.Cause(ctx)
}

// hubFiles puts what the public hub would put there into large file storage.
func hubFiles(files map[string][]byte) map[string]*hubtest.File {
	out := map[string]*hubtest.File{}
	for name, b := range files {
		out[name] = hubtest.Git(string(b))
		if ext := path.Ext(name); ext == ".safetensors" || ext == ".model" || ext == ".gguf" {
			out[name] = hubtest.LFS(b)
		}
	}
	return out
}

// goOnline serves a test model as org/MODEL.
func goOnline(t *testing.T, model string, opt hubtest.Options) *online {
	t.Helper()
	files, err := testmodel.Build(model)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, model, files, opt)
}

// serve is goOnline for files of the test's own.
func serve(t *testing.T, model string, files map[string][]byte, opt hubtest.Options) *online {
	t.Helper()
	o := &online{t: t, model: model, files: files, out: t.TempDir(), clock: &jumping{now: time.Unix(1_700_000_000, 0)}}
	o.repo = hubtest.NewRepo("org/" + model)
	o.commit = o.repo.Commit(hubFiles(files))
	o.hub = hubtest.New(t, opt, o.repo)
	o.store = newStore(t)
	return o
}

func newStore(t *testing.T) *local.Store {
	t.Helper()
	st, err := local.Open(context.Background(), filepath.Join(t.TempDir(), "store"), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// ref is the model as recipes name it.
func (o *online) ref() string {
	if o.alias != "" {
		return o.alias
	}
	return "org/" + o.model
}

func (o *online) event(e hub.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.says = append(o.says, e)
}

// said counts the client's events of a kind.
func (o *online) said(kind hub.EventKind) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, e := range o.says {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// env is what the command makes of the environment.
func (o *online) env(change ...func(*hub.Options)) source.Env {
	o.t.Helper()
	env := source.Env{Digests: &source.Digests{}}
	opt := hub.Options{Endpoint: o.hub.URL, Clock: o.clock, Events: o.event, MaxWait: time.Hour}
	if o.store != nil {
		env.Digests.Keeper = o.store
		env.Artifacts = source.FromStore(o.store)
		opt.SpoolDir = o.store.SpoolDir()
	}
	for _, f := range change {
		f(&opt)
	}
	c, err := hub.New(opt)
	if err != nil {
		o.t.Fatal(err)
	}
	env.Hub = source.FromHub(c, o.pins)
	return env
}

func (o *online) options() pipeline.BuildOptions {
	opt := pipeline.BuildOptions{OutDir: o.out, Jobs: 2}
	if o.store != nil {
		opt.Store = pipeline.Keep(o.store, artifacts.Tool{Name: "quern", Version: "test"})
	}
	return opt
}

// try builds a recipe: a file of the acceptance recipes, with hf: in place of
// dir:, or a text.
func (o *online) try(ctx context.Context, recipe string, opt pipeline.BuildOptions, change ...func(*hub.Options)) (*pipeline.Result, error) {
	o.t.Helper()
	return build1(ctx, o.t, recipe, o.env(change...), opt, "sources.base.hf="+o.ref())
}

// project makes a recipe's text concrete.
func (o *online) project(text string, env source.Env) *pipeline.Project {
	o.t.Helper()
	r, err := recipes.Parse(filepath.Join(o.t.TempDir(), "r.yaml"), []byte(text), recipes.Options{Set: []string{"sources.base.hf=" + o.ref()}})
	if err != nil {
		o.t.Fatal(err)
	}
	prj, err := all.Project(r, env)
	if err != nil {
		o.t.Fatal(err)
	}
	return prj
}

func build1(ctx context.Context, t *testing.T, recipe string, env source.Env, opt pipeline.BuildOptions, set ...string) (*pipeline.Result, error) {
	t.Helper()
	var r *recipes.Recipe
	var err error
	if strings.Contains(recipe, "\n") {
		r, err = recipes.Parse(filepath.Join(t.TempDir(), "r.yaml"), []byte(recipe), recipes.Options{Set: set})
	} else {
		r, err = recipes.ReadFile(filepath.Join(testdata, "acceptance", recipe+".yaml"), recipes.Options{Set: set})
	}
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, env)
	if err != nil {
		return nil, err
	}
	return pipeline.Build(ctx, prj, opt)
}

func (o *online) build(recipe string, change ...func(*hub.Options)) *pipeline.Result {
	o.t.Helper()
	res, err := o.try(o.t.Context(), recipe, o.options(), change...)
	if err != nil {
		o.t.Fatal(err)
	}
	return res
}

// fromDir builds the same recipe from a folder, without a store.
func (o *online) fromDir(recipe string) *pipeline.Result {
	o.t.Helper()
	res, err := build1(o.t.Context(), o.t, recipe, source.Env{}, pipeline.BuildOptions{OutDir: o.t.TempDir()}, "sources.base.dir="+o.dir())
	if err != nil {
		o.t.Fatal(err)
	}
	return res
}

// dir puts the files into a folder of the model's name.
func (o *online) dir() string {
	o.t.Helper()
	dir := filepath.Join(o.t.TempDir(), o.model)
	for name, b := range o.files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			o.t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			o.t.Fatal(err)
		}
	}
	return dir
}

// same compares the outputs of two builds.
func (o *online) same(got, want *pipeline.Result) {
	o.t.Helper()
	if len(got.Outputs) != len(want.Outputs) {
		o.t.Fatalf("%d outputs, want %d", len(got.Outputs), len(want.Outputs))
	}
	for i, w := range want.Outputs {
		if got.Outputs[i].SHA256 != w.SHA256 || got.Outputs[i].Size != w.Size {
			o.t.Errorf("%s differs from what the folder gives", w.File)
		}
		if sum, ok := fileDigest(o.t, got.Outputs[i].Path); !ok || sum != w.SHA256 {
			o.t.Errorf("%s on disk is not the file", w.File)
		}
	}
}

// needed adds up the files that a build used, less tensors that it did not.
func (o *online) needed(res *pipeline.Result, dropped ...string) int64 {
	o.t.Helper()
	var n int64
	for _, s := range res.Sources {
		for _, f := range s.Files {
			if int64(len(o.files[f.Path])) != f.Size {
				o.t.Errorf("file %s: the record says %d bytes", f.Path, f.Size)
			}
			n += f.Size
		}
	}
	for _, name := range dropped {
		lo, hi := o.tensor(name)
		n -= hi - lo
	}
	return n
}

// tensor finds the bytes of a tensor in the file that holds it.
func (o *online) tensor(name string) (lo, hi int64) {
	o.t.Helper()
	_, lo, hi = o.find(name)
	return lo, hi
}

func (o *online) find(name string) (file string, lo, hi int64) {
	o.t.Helper()
	for file, b := range o.files {
		if path.Ext(file) != ".safetensors" {
			continue
		}
		n := int64(binary.LittleEndian.Uint64(b))
		var head map[string]struct {
			Offsets [2]int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(bytes.ReplaceAll(b[8:8+n], []byte(`"__metadata__":{"format":"pt"},`), nil), &head); err != nil {
			o.t.Fatal(err)
		}
		if x, ok := head[name]; ok {
			return file, 8 + n + x.Offsets[0], 8 + n + x.Offsets[1]
		}
	}
	o.t.Fatalf("no tensor %s", name)
	return "", 0, 0
}

// frugal demands that at most 1 % more was fetched than was needed, by the
// client's account and by the server's.
func (o *online) frugal(res *pipeline.Result, needed int64) {
	o.t.Helper()
	st := res.Stats.Fetch["base"]
	if st.Fetched > needed+needed/100 {
		o.t.Errorf("fetched %d bytes, needed %d", st.Fetched, needed)
	}
	if sent := o.hub.Sent(""); sent < needed*9/10 || st.Fetched > sent {
		o.t.Errorf("the server sent %d bytes, the client says %d of %d", sent, st.Fetched, needed)
	}
}

// misbehave switches on what the public service and its mirrors have been seen
// to do, all at once.
func misbehave(o *online, weights ...string) {
	o.hub.Inject(
		hubtest.Fault{On: hubtest.Info, Status: 503, Times: 2},
		hubtest.Fault{On: hubtest.Tree, Status: 429, Header: map[string]string{"RateLimit": `"api";r=0;t=1`}},
		hubtest.Fault{On: hubtest.Tree, Status: 500},
		hubtest.Fault{On: hubtest.Resolve, Status: 429, Header: map[string]string{"Retry-After": "2"}, Skip: 1},
		hubtest.Fault{On: hubtest.Resolve, Status: 502, Skip: 2},
		hubtest.Fault{On: hubtest.ResolveCache, Cut: true, CutAfter: 20, Times: 2},
		hubtest.Fault{On: hubtest.ResolveCache, Chunked: true, Times: -1},
	)
	for i, w := range weights {
		o.hub.Inject(
			hubtest.Fault{On: hubtest.CDN, Path: w, Cut: true, CutAfter: 3000, Times: 1},
			hubtest.Fault{On: hubtest.CDN, Path: w, Status: 403, Skip: 1},
			hubtest.Fault{On: hubtest.CDN, Path: w, Cut: true, CutAfter: 100_000, Skip: 1, Times: 2},
			hubtest.Fault{On: hubtest.CDN, Path: w, Status: 503},
			hubtest.Fault{On: hubtest.CDN, Path: w, Chunked: true, Drop: 500, Skip: i},
		)
	}
}

func storagePaths(files map[string][]byte) []string {
	var out []string
	for name := range files {
		if path.Ext(name) == ".safetensors" {
			out = append(out, name)
		}
	}
	return out
}

// TestAcceptanceOverHTTP builds every acceptance recipe from a hub that does all
// it can to be in the way.
func TestAcceptanceOverHTTP(t *testing.T) {
	for _, c := range []struct {
		recipe, model string
		dropped       []string
	}{
		{"kmcu-stories", "stories260k", nil},
		{"kmcu-tied", "stories-wide", []string{"lm_head.weight"}},
		{"gguf-q8", "stories-wide", nil},
		{"gguf-moe-q8", "stories-moe", nil},
		{"gguf-moe-q4", "stories-moe", nil},
	} {
		t.Run(c.recipe, func(t *testing.T) {
			o := goOnline(t, c.model, hubtest.Options{PageSize: 3, LinkHost: "https://huggingface.co", AbsoluteRename: true,
				SignedUses: 3, Tokens: map[string][]string{"good": nil}})
			o.hub.Rename("former/"+c.model, o.ref())
			o.alias = "former/" + c.model
			misbehave(o, storagePaths(o.files)...)
			res := o.build(c.recipe, func(h *hub.Options) { h.Token = "good" })
			o.same(res, o.fromDir(c.recipe))
			o.frugal(res, o.needed(res, c.dropped...))
			if res.Sources[0].Commit != o.commit {
				t.Errorf("commit %q, want %s", res.Sources[0].Commit, o.commit)
			}
			if o.said(hub.EventPause) == 0 || o.said(hub.EventRetry) == 0 {
				t.Error("the hub did not misbehave")
			}
			for _, name := range c.dropped {
				o.notSent(name)
			}

			// The same again sends nothing over the network, and no weights
			// are read; nor does a build without a store's results.
			o.hub.ResetLog()
			again := o.build(c.recipe, func(h *hub.Options) { h.Offline = true })
			o.same(again, res)
			if n := again.Stats.SourceBytes; n != 0 || !again.Outputs[0].Cached {
				t.Errorf("%d bytes of weights read, cached %v", n, again.Outputs[0].Cached)
			}
			opt := o.options()
			opt.NoCache, opt.OutDir = true, t.TempDir()
			again, err := o.try(t.Context(), c.recipe, opt, func(h *hub.Options) { h.Offline = true })
			if err != nil {
				t.Fatal(err)
			}
			o.same(again, res)
			if n := len(o.hub.Requests()); n != 0 {
				t.Errorf("offline builds sent %d requests", n)
			}
		})
	}
}

// notSent fails if the server sent a middle part of a tensor: its ends may lie
// in ranges that were fetched for their neighbours.
func (o *online) notSent(name string) {
	o.t.Helper()
	file, lo, hi := o.find(name)
	for _, r := range o.hub.Requests() {
		var a, b int64
		if r.Kind != hubtest.CDN || r.Path != file || r.Status >= 400 {
			continue
		}
		if _, err := fmt.Sscanf(r.Range, "bytes=%d-%d", &a, &b); err != nil {
			o.t.Errorf("%s was asked for by %q", file, r.Range)
		}
		if over := min(b+1, hi) - max(a, lo); over > (hi-lo)/10 {
			o.t.Errorf("%d of %d bytes of %s were asked for: %s", over, hi-lo, name, r.Range)
		}
	}
}

// TestSecondBuildFetchesNothing: with a connection it asks for the commit, and
// no more.
func TestSecondBuildFetchesNothing(t *testing.T) {
	o := goOnline(t, "stories-wide", hubtest.Options{})
	first := o.build("gguf-q8")
	o.hub.ResetLog()
	again := o.build("gguf-q8")
	o.same(again, first)
	if sent := o.hub.Sent(""); sent != 0 || again.Stats.Fetch["base"].Fetched != 0 || !again.Outputs[0].Cached {
		t.Errorf("%d bytes sent, stats %+v, cached %v", sent, again.Stats.Fetch["base"], again.Outputs[0].Cached)
	}
	// Another recipe over the same weights takes them from the spool.
	res := o.build("kmcu-tied")
	o.same(res, o.fromDir("kmcu-tied"))
	if sent := o.hub.Sent(""); sent != 0 {
		t.Errorf("%d bytes sent for weights that are there", sent)
	}
	for _, r := range o.hub.Requests() {
		if r.Kind != hubtest.Info && r.Kind != hubtest.Tree {
			t.Errorf("%s %s", r.Method, r.URL)
		}
	}
}

// TestKeysOfContent: a tensor is the same thing wherever its file was found, so
// a build from a folder finds what one from the hub has made, and the reverse.
func TestKeysOfContent(t *testing.T) {
	for _, model := range []string{"stories-wide", "stories-moe"} {
		for _, dirFirst := range []bool{false, true} {
			o := goOnline(t, model, hubtest.Options{})
			dir := func() *pipeline.Result {
				res, err := build1(t.Context(), t, hubRecipe, o.env(), o.options(), "sources.base.dir="+folder(t, model))
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			first, second := func() *pipeline.Result { return o.build(hubRecipe) }, dir
			if dirFirst {
				first, second = second, first
			}
			a, b := first(), second()
			o.same(b, a)
			if !b.Outputs[0].Cached || b.Outputs[0].Made != 0 {
				t.Errorf("%s, folder first %v: the second build made %d of %d tensors", model, dirFirst, b.Outputs[0].Made, b.Outputs[0].Tensors)
			}
		}
	}
}

const hubRecipe = `version: 1
name: fromhub
sources:
  base: {hf: org/model}
steps:
  - quantize: {type: Q8_0, fallback: F16}
outputs:
  - {format: gguf, file: out.gguf}
`

// readAll reads an output.
func readAll(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

package all_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"quern/formats/gguf"
	"quern/formats/safetensors"
	"quern/hub"
	"quern/hub/hubtest"
	"quern/internal/digest"
	"quern/internal/testmodel"
	"quern/pipeline"
	"quern/stages/source"
	"quern/tensor"
)

// fileServer serves one file and counts.
type fileServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests int
	sent     int64
	data     []byte
	etag     string
	damage   func(p []byte) // of what is sent
}

type countingWriter struct {
	http.ResponseWriter
	s *fileServer
}

func (w countingWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	w.s.sent += int64(len(p))
	w.s.mu.Unlock()
	return w.ResponseWriter.Write(p)
}

func serveFile(t *testing.T, data []byte) *fileServer {
	s := &fileServer{data: data, etag: `"one"`}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests++
		w.Header().Set("ETag", s.etag)
		data := s.data
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(countingWriter{w, s}, r, "", modTime, strings.NewReader(string(data)))
	}))
	t.Cleanup(s.Close)
	return s
}

// counts gives requests and bytes since the last call.
func (s *fileServer) counts() (requests int, sent int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests, sent = s.requests, s.sent
	s.requests, s.sent = 0, 0
	return requests, sent
}

// ggufOf makes a GGUF file of a test model.
func ggufOf(t *testing.T, model string) (path string, data []byte) {
	t.Helper()
	text := strings.Replace(hubRecipe, "  - quantize: {type: Q8_0, fallback: F16}\n", "  - convert: {outtype: f16}\n", 1)
	out := t.TempDir()
	res, err := build1(t.Context(), t, text, sourceEnv(), pipeline.BuildOptions{OutDir: out}, "sources.base.dir="+folder(t, model))
	if err != nil {
		t.Fatal(err)
	}
	return res.Outputs[0].Path, readAll(t, res.Outputs[0].Path)
}

// TestURLSource quantizes a GGUF file at an address, with its digest and
// without.
func TestURLSource(t *testing.T) {
	local, data := ggufOf(t, "stories-wide")
	want, err := build1(t.Context(), t, hubRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.gguf="+local)
	if err != nil {
		t.Fatal(err)
	}
	sum := digest.Of(data).Hex()
	size := int64(len(data))
	for name, c := range map[string]struct {
		sha   bool
		kept  bool
		first int64
	}{
		"digest":                          {true, true, 0},
		"no digest":                       {false, true, 0},
		"no digest, hashed while written": {false, true, -1},
		"digest, no store":                {true, false, 0},
		"no digest, no store":             {false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveFile(t, data)
			o := goOnline(t, "stories260k", hubtest.Options{})
			if !c.kept {
				o.store = nil
			}
			set := []string{"sources.base.url=" + s.URL + "/files/model.gguf"}
			if c.sha {
				set = append(set, "sources.base.sha256="+sum)
			}
			opt := o.options()
			opt.HashFirst = c.first
			build := func() *pipeline.Result {
				t.Helper()
				res, err := build1(t.Context(), t, hubRecipe, o.env(), opt, set...)
				if err != nil {
					t.Fatal(err)
				}
				o.same(res, want)
				return res
			}
			res := build()
			if _, sent := s.counts(); sent > size+size/100 {
				t.Errorf("%d bytes sent of a file of %d", sent, size)
			}
			if f := res.Sources[0].Files[0]; f.Path != "model.gguf" || f.Size != size || (f.SHA256 == sum) != (c.sha || c.kept) {
				t.Errorf("recorded as %+v", f)
			}
			if told := strings.Contains(strings.Join(res.Warnings, "\n"), "no sha256 is given"); told != (!c.sha && !c.kept) {
				t.Errorf("warnings %v", res.Warnings)
			}
			if !c.kept {
				return
			}
			// Again: nothing but the question whether the file is the same.
			opt.HashFirst = 0
			again := build()
			if n, sent := s.counts(); sent > 1 || c.sha && n > 0 || n > 1 || !again.Outputs[0].Cached {
				t.Errorf("%d requests, %d bytes, cached %v", n, sent, again.Outputs[0].Cached)
			}
			// The tensors are those of the file, wherever it is.
			res, err := build1(t.Context(), t, hubRecipe, o.env(), opt, "sources.base.gguf="+local)
			if err != nil || !res.Outputs[0].Cached {
				t.Errorf("from the file itself: %v, cached %v", err, err == nil && res.Outputs[0].Cached)
			}
			// A new version on the server is another file, and refused where the
			// digest is given.
			changed := append([]byte(nil), data...)
			changed[len(changed)-100] ^= 1
			s.mu.Lock()
			s.data, s.etag = changed, `"two"`
			s.mu.Unlock()
			opt.NoCache, opt.OutDir = true, t.TempDir()
			o.store = newStore(t)
			opt.Store = o.options().Store
			res, err = build1(t.Context(), t, hubRecipe, o.env(), opt, set...)
			if c.sha {
				if !errors.Is(err, hub.ErrDigest) || !errors.Is(err, pipeline.ErrSource) {
					t.Errorf("another file under the address: %v", err)
				}
				leftovers(t, opt.OutDir)
			} else if err != nil || res.Outputs[0].SHA256 == want.Outputs[0].SHA256 {
				t.Errorf("another file under the address: %v", err)
			}
		})
	}
}

// TestURLRefusals: what is no GGUF file, and what is only a part of one.
func TestURLRefusals(t *testing.T) {
	o := goOnline(t, "stories260k", hubtest.Options{})
	build := func(url string) error {
		_, err := build1(t.Context(), t, hubRecipe, o.env(), o.options(), "sources.base.url="+url)
		return err
	}
	page := serveFile(t, []byte("<!DOCTYPE html><html><body>Please sign in</body></html>"))
	if err := build(page.URL + "/model.gguf"); !errors.Is(err, hub.ErrHTML) || !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("a page: %v", err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	if err := build(gone.URL + "/model.gguf?token=secret"); !errors.Is(err, pipeline.ErrSource) || strings.Contains(err.Error(), "secret") {
		t.Errorf("not there: %v", err)
	}
	_, data := ggufOf(t, "stories260k")
	cut := serveFile(t, data[:len(data)-1])
	if err := build(cut.URL + "/model.gguf"); !errors.Is(err, gguf.ErrTruncated) || !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("cut short: %v", err)
	}
	leftovers(t, o.out)
}

// TestRepositoryOfGGUF: the repository's only GGUF file is its model, also
// beside a config.json, and all shards of one are.
func TestRepositoryOfGGUF(t *testing.T) {
	local, data := ggufOf(t, "stories-wide")
	want, err := build1(t.Context(), t, hubRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.gguf="+local)
	if err != nil {
		t.Fatal(err)
	}
	shards := splitGGUF(t, data)
	for name, files := range map[string]map[string][]byte{
		"alone":         {"model-f16.gguf": data, "README.md": []byte("# A model\n")},
		"with a config": {"model-f16.gguf": data, "config.json": []byte(`{"architectures":["LlamaForCausalLM"],"model_type":"llama"}`)},
		"in a folder":   {"gguf/model-f16.gguf": data},
		"split":         shards,
	} {
		t.Run(name, func(t *testing.T) {
			o := serve(t, "some-gguf", files, hubtest.Options{})
			res := o.build(hubRecipe)
			o.same(res, want)
			o.frugal(res, o.needed(res))
			o.hub.ResetLog()
			o.same(o.build(hubRecipe, func(h *hub.Options) { h.Offline = true }), want)
			// The same shards in a folder are the same tensors.
			file := "model-f16.gguf"
			if name == "split" {
				file = gguf.SplitName("model", 0, 3)
			} else if name == "in a folder" {
				file = "gguf/" + file
			}
			res, err := build1(t.Context(), t, hubRecipe, o.env(), o.options(), "sources.base.gguf="+filepath.Join(o.dir(), filepath.FromSlash(file)))
			if err != nil || !res.Outputs[0].Cached {
				t.Errorf("from a folder: %v, cached %v", err, err == nil && res.Outputs[0].Cached)
			}
		})
	}
	o := serve(t, "some-gguf", map[string][]byte{"a.gguf": data, "b.gguf": data}, hubtest.Options{})
	if _, err := o.try(t.Context(), hubRecipe, o.options()); !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), "a.gguf, b.gguf") || !strings.Contains(err.Error(), "path") {
		t.Errorf("two files: %v", err)
	}
	delete(shards, gguf.SplitName("model", 1, 3))
	o = serve(t, "some-gguf", shards, hubtest.Options{})
	if _, err := o.try(t.Context(), hubRecipe, o.options()); !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), "model-00002-of-00003.gguf") {
		t.Errorf("a shard is missing: %v", err)
	}
	// A folder of such a kind has no checkpoint; the message says what there is.
	dir := t.TempDir()
	for name, b := range map[string][]byte{"model-f16.gguf": data, "config.json": []byte(`{"architectures":["LlamaForCausalLM"],"model_type":"llama"}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := build1(t.Context(), t, hubRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.dir="+dir); !errors.Is(err, safetensors.ErrNoWeights) || !strings.Contains(err.Error(), "model-f16.gguf") {
		t.Errorf("a folder with a GGUF file: %v", err)
	}
}

// splitGGUF cuts a file into three shards.
func splitGGUF(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	set, err := gguf.OpenSet(t.Context(), "whole.gguf", func(context.Context, string) (tensor.Blob, error) {
		return blobOf(data), nil
	}, gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := set.All()
	if err != nil {
		t.Fatal(err)
	}
	var specs []gguf.TensorSpec
	for _, x := range tensors {
		specs = append(specs, gguf.TensorSpec{Name: x.Name, Type: x.Type, Shape: x.Shape})
	}
	shards, _, err := gguf.PlanSplit("model", set.Meta, specs, gguf.SplitOptions{MaxTensors: (len(specs) + 2) / 3}, gguf.LayoutOptions{})
	if err != nil || len(shards) != 3 {
		t.Fatalf("%d shards, %v", len(shards), err)
	}
	out := map[string][]byte{}
	for _, sh := range shards {
		var b bytes.Buffer
		if err := sh.Layout.WriteTo(t.Context(), &b, tensors[sh.First:sh.First+len(sh.Layout.Tensors)]); err != nil {
			t.Fatal(err)
		}
		out[sh.Name] = b.Bytes()
	}
	return out
}

func blobOf(b []byte) tensor.Blob { return tensor.BytesBlob("bytes", b) }

// optionsOfTest are a well-behaved hub's.
var optionsOfTest = hubtest.Options{}

func openGGUF(t *testing.T, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(t.Context(), path, blobOf(readAll(t, path)), gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// sourceEnv is that of a build without network and store.
func sourceEnv() source.Env { return source.Env{} }

var modTime = time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)

// Two outputs of one recipe, and what no store can help with.
const twoOutputs = `version: 1
name: two
sources:
  base: {hf: org/model}
outputs:
  - {format: gguf, file: f16.gguf, outtype: f16}
  - {format: gguf, file: q8.gguf, outtype: q8_0}
`

// TestTwoOutputs: weights that two outputs need are fetched once.
func TestTwoOutputs(t *testing.T) {
	o := goOnline(t, "stories-wide", hubtest.Options{})
	res := o.build(twoOutputs)
	o.same(res, o.fromDir(twoOutputs))
	o.frugal(res, o.needed(res))
}

// TestWithoutStore: in memory only, the build is as frugal where each byte is
// read once, and right in any case.
func TestWithoutStore(t *testing.T) {
	for _, c := range []struct {
		recipe, model string
		dropped       []string
	}{{"kmcu-stories", "stories260k", nil}, {"kmcu-tied", "stories-wide", []string{"lm_head.weight"}}, {"gguf-q8", "stories-wide", nil}, {"gguf-moe-q4", "stories-moe", nil}} {
		for _, x := range []struct {
			memory int64
			jobs   int
		}{{64 << 20, 2}, {1 << 20, 1}, {1 << 20, 2}} {
			o := goOnline(t, c.model, hubtest.Options{SignedUses: 2})
			o.store = nil
			opt := o.options()
			opt.Jobs = x.jobs
			res, err := o.try(t.Context(), c.recipe, opt, func(h *hub.Options) { h.Memory = x.memory })
			if err != nil {
				t.Fatal(err)
			}
			o.same(res, o.fromDir(c.recipe))
			// Two readers take such little room from each other and fetch
			// again; one reads in the order that was declared.
			if x.memory > 1<<20 || x.jobs == 1 {
				o.frugal(res, o.needed(res, c.dropped...))
			}
		}
	}
	o := goOnline(t, "stories-wide", hubtest.Options{})
	o.store = nil
	o.same(o.build(twoOutputs), o.fromDir(twoOutputs))
}

// TestRangeIgnored: a server without ranges costs the whole file, once, and
// nothing else.
func TestRangeIgnored(t *testing.T) {
	for _, kept := range []bool{true, false} {
		o := goOnline(t, "stories-wide", hubtest.Options{})
		o.hub.Inject(hubtest.Fault{On: hubtest.CDN, IgnoreRange: true, Times: -1})
		if !kept {
			o.store = nil
		}
		res := o.build("kmcu-tied")
		o.same(res, o.fromDir("kmcu-tied"))
		if got, all := res.Stats.Fetch["base"].Fetched, o.needed(res); got > 2*all {
			t.Errorf("store %v: fetched %d bytes of files of %d", kept, got, all)
		}
	}
	// Files that are larger than the memory cannot be had in this way.
	o := goOnline(t, "stories-wide", hubtest.Options{})
	o.hub.Inject(hubtest.Fault{On: hubtest.CDN, IgnoreRange: true, Times: -1})
	o.store = nil
	_, err := o.try(t.Context(), "kmcu-tied", o.options(), func(h *hub.Options) { h.Memory = 1 << 20 })
	if !errors.Is(err, hub.ErrNoRange) || !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("without memory for it: %v", err)
	}
	leftovers(t, o.out)
}

// TestETagChanges: one change of a tag is taken for another storage host's, and
// the file is fetched again; a tag that keeps changing ends the build.
func TestETagChanges(t *testing.T) {
	o := goOnline(t, "stories-wide", hubtest.Options{})
	o.hub.Inject(hubtest.Fault{On: hubtest.CDN, Path: shard1, Skip: 1, Times: 1, ETag: "another"})
	res := o.build("gguf-q8")
	o.same(res, o.fromDir("gguf-q8"))
	o = goOnline(t, "stories-wide", hubtest.Options{})
	o.hub.Inject(hubtest.Fault{On: hubtest.CDN, Path: shard1, Skip: 1, Times: 3, Cut: true, CutAfter: 300_000})
	n := 0
	tr := &acting{after: func(r *http.Response) {
		if n++; strings.HasPrefix(r.Request.URL.Path, "/xet-bridge-us/") {
			r.Header.Set("ETag", fmt.Sprintf("\"tag %d\"", n))
		}
	}}
	_, err := o.try(t.Context(), "gguf-q8", o.options(), func(h *hub.Options) { h.Transport = tr })
	if !errors.Is(err, hub.ErrChanged) || !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("%v", err)
	}
	leftovers(t, o.out)
}

// TestMirror: one that has no trees and does not know sizes.
func TestMirror(t *testing.T) {
	files, err := testmodel.Build("stories-wide")
	if err != nil {
		t.Fatal(err)
	}
	sealed := hubFiles(files)
	zero := int64(0)
	for _, f := range sealed {
		f.ListedSize = &zero
	}
	o := serve(t, "stories-wide", files, hubtest.Options{NoTree: true, DirectGit: true, NoXet: true})
	o.repo.Commit(sealed)
	res := o.build("gguf-q8")
	o.same(res, o.fromDir("gguf-q8"))
	o.frugal(res, o.needed(res))
}

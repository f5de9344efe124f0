package all_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/hub/hubtest"
	"quern/pipeline"
	"quern/stages/source"
)

// TestAcceptanceGates builds the recipe whose file has to meet three gates, the
// same for any number of workers; made too strict, one of them stops it.
func TestAcceptanceGates(t *testing.T) {
	const name = "gguf-q4km-imatrix"
	recipe := filepath.Join(testdata, "acceptance", name+".yaml")
	store, err := local.Open(t.Context(), t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var first *pipeline.Result
	for _, jobs := range []int{2, 1, 7} {
		opt := pipeline.BuildOptions{Jobs: jobs}
		if first == nil {
			opt.Store = pipeline.Keep(store, artifacts.Tool{Name: "quern", Version: "test"})
		}
		_, res := build(t, recipe, opt)
		if len(res.Gates) != 3 {
			t.Fatalf("%+v", res.Gates)
		}
		for i, g := range res.Gates {
			if !g.Pass || g.Output != "stories-wide-q4_k_m.gguf" {
				t.Errorf("%+v", g)
			}
			if first != nil && g != first.Gates[i] {
				t.Errorf("jobs %d: %+v, was %+v", jobs, g, first.Gates[i])
			}
		}
		if first == nil {
			first = res
		}
		if res.Outputs[0].SHA256 != first.Outputs[0].SHA256 {
			t.Errorf("jobs %d: other bytes", jobs)
		}
	}
	// The store has the file: it is judged all the same, and stays.
	out := t.TempDir()
	for set, says := range map[string]string{
		"gates.0.perplexity.max=4.8":       "perplexity of stories-wide-q4_k_m.gguf is 4.8",
		"gates.1.bits-per-byte.max=1":      "bits-per-byte of stories-wide-q4_k_m.gguf is 1.0",
		"gates.tensors.min-snr-db=30":      "beyond the limit of 30 dB",
		"gates.perplexity.max-increase=0%": " % above the 4.8",
	} {
		opt := pipeline.BuildOptions{OutDir: out, Store: pipeline.Keep(store, artifacts.Tool{Name: "quern", Version: "test"})}
		res, err := build1(t.Context(), t, name, source.Env{Digests: digests}, opt, set)
		if !errors.Is(err, pipeline.ErrGate) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), name+".yaml:1") {
			t.Errorf("%s: %v", set, err)
			continue
		}
		failed := 0
		for _, g := range res.Gates {
			if !g.Pass {
				failed++
			}
		}
		if left, err := os.ReadDir(out); failed != 1 || len(left) > 0 || err != nil {
			t.Errorf("%s: %d results failed, left %v, %v", set, failed, left, err)
		}
	}
}

// TestGatesOverHTTP: the text and the model that gates read come from a hub that
// is in the way, and the results are those of local files.
func TestGatesOverHTTP(t *testing.T) {
	text, err := filepath.Abs(filepath.Join(testdata, "text", "eval-stories.txt"))
	if err != nil {
		t.Fatal(err)
	}
	recipe := fmt.Sprintf(`version: 1
name: x
sources:
  base: {dir: nowhere}
  text: {file: %q}
steps:
  - quantize: {type: Q4_0, fallback: F16}
outputs:
  - {format: gguf, file: x.gguf}
gates:
  - perplexity: {text: text, context: 64, chunks: 4, max: 100, max-increase: 50%%}
  - kl-divergence: {text: text, context: 64, chunks: 4, max: 1}
  - tokenizer: {}
  - tensors: {min-snr-db: 10}
`, text)
	o := goOnline(t, "stories260k", hubtest.Options{PageSize: 3, SignedUses: 3})
	misbehave(o, storagePaths(o.files)...)
	got, want := o.build(recipe), o.fromDir(recipe)
	o.same(got, want)
	if len(got.Gates) != 5 {
		t.Fatalf("%+v", got.Gates)
	}
	for i, g := range got.Gates {
		if g != want.Gates[i] || !g.Pass {
			t.Errorf("%+v, want %+v", g, want.Gates[i])
		}
	}
}

package all_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/source"
)

// bench is a store and a folder that several builds share.
type bench struct {
	t     *testing.T
	store *local.Store
	out   string
	dir   string // of the model
}

func newBench(t *testing.T) *bench {
	st, err := local.Open(context.Background(), filepath.Join(t.TempDir(), "store"), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, store: st, out: t.TempDir(), dir: folder(t, "stories-wide")}
}

func (b *bench) env() source.Env {
	return source.Env{Digests: &source.Digests{Keeper: b.store}, Artifacts: source.FromStore(b.store)}
}

func (b *bench) options() pipeline.BuildOptions {
	return pipeline.BuildOptions{OutDir: b.out, Store: pipeline.Keep(b.store, artifacts.Tool{Name: "quern", Version: "test"})}
}

func (b *bench) try(text string, opt pipeline.BuildOptions) (*pipeline.Result, error) {
	b.t.Helper()
	text = strings.ReplaceAll(text, "DIR", b.dir)
	r, err := recipes.Parse(filepath.Join(b.t.TempDir(), "r.yaml"), []byte(text), recipes.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	prj, err := all.Project(r, b.env())
	if err != nil {
		return nil, err
	}
	return pipeline.Build(context.Background(), prj, opt)
}

func (b *bench) build(text string) *pipeline.Result {
	b.t.Helper()
	res, err := b.try(text, b.options())
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

const mixed = `version: 1
name: mixed
sources:
  base: {dir: "DIR"}
steps:
  - quantize: {type: Q8_0, rules: [{match: 'ffn_down', type: Q4_0}]}
outputs:
  - {format: gguf, file: mixed.gguf}
`

func TestUnchangedBuildReadsNoWeights(t *testing.T) {
	b := newBench(t)
	first := b.build(mixed)
	if first.Stats.SourceBytes == 0 || first.Outputs[0].Cached {
		t.Fatalf("the first build read %d bytes, cached %v", first.Stats.SourceBytes, first.Outputs[0].Cached)
	}
	again := b.build(mixed)
	if again.Stats.SourceBytes != 0 || !again.Outputs[0].Cached {
		t.Errorf("the second build read %d bytes of weights, cached %v", again.Stats.SourceBytes, again.Outputs[0].Cached)
	}
	if again.Outputs[0].SHA256 != first.Outputs[0].SHA256 {
		t.Error("the second build gave another file")
	}
	// A missing or damaged output is put back from the store, without weights.
	path := filepath.Join(b.out, "mixed.gguf")
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	res := b.build(mixed)
	if res.Stats.SourceBytes != 0 {
		t.Errorf("restoring read %d bytes of weights", res.Stats.SourceBytes)
	}
	if got, ok := fileDigest(t, path); !ok || got != first.Outputs[0].SHA256 {
		t.Error("the output was not restored")
	}
}

func TestChangedRuleRecomputesWhatItTouches(t *testing.T) {
	b := newBench(t)
	b.build(mixed)
	changed := strings.ReplaceAll(mixed, "type: Q4_0", "type: Q5_0")
	res := b.build(changed)
	// Five layers, one ffn_down each, [256, 256] of bfloat16.
	if want := int64(5 * 256 * 256 * 2); res.Stats.SourceBytes != want {
		t.Errorf("read %d bytes of weights, the rule touches %d", res.Stats.SourceBytes, want)
	}
	if res.Outputs[0].Made != 5 {
		t.Errorf("made %d tensors, the rule touches 5", res.Outputs[0].Made)
	}
	fresh := b.options()
	fresh.Store = nil
	fresh.OutDir = t.TempDir()
	plain, err := b.try(changed, fresh)
	if err != nil {
		t.Fatal(err)
	}
	if plain.Outputs[0].SHA256 != res.Outputs[0].SHA256 {
		t.Error("tensors out of the store gave another file than fresh ones")
	}
}

func TestNoCacheMakesEverything(t *testing.T) {
	b := newBench(t)
	first := b.build(mixed)
	opt := b.options()
	opt.NoCache = true
	res, err := b.try(mixed, opt)
	if err != nil {
		t.Fatal(err)
	}
	if res.Outputs[0].Cached || res.Outputs[0].Made != first.Outputs[0].Tensors {
		t.Errorf("made %d of %d tensors, cached %v", res.Outputs[0].Made, first.Outputs[0].Tensors, res.Outputs[0].Cached)
	}
}

// TestDamagedStoreIsNotTrusted flips a byte of a kept file: whatever takes from
// it finds out and makes the tensor again.
func TestDamagedStoreIsNotTrusted(t *testing.T) {
	b := newBench(t)
	first := b.build(mixed)
	hex := first.Outputs[0].SHA256.Hex()
	blob := filepath.Join(b.store.Dir(), "blobs", "sha256", hex)
	data, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(data) / 2; i < len(data); i += 4096 {
		data[i] ^= 1
	}
	if err := os.Chmod(blob, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(blob, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(b.out, "mixed.gguf")); err != nil {
		t.Fatal(err)
	}
	res := b.build(mixed)
	if res.Outputs[0].SHA256 != first.Outputs[0].SHA256 {
		t.Error("a damaged store changed the result")
	}
	got, ok := fileDigest(t, filepath.Join(b.out, "mixed.gguf"))
	if !ok || got != first.Outputs[0].SHA256 {
		t.Error("the file on disk is not the right one")
	}
	res = b.build(strings.ReplaceAll(mixed, "type: Q4_0", "type: Q5_0"))
	fresh := b.options()
	fresh.Store, fresh.OutDir = nil, t.TempDir()
	plain, err := b.try(strings.ReplaceAll(mixed, "type: Q4_0", "type: Q5_0"), fresh)
	if err != nil {
		t.Fatal(err)
	}
	if plain.Outputs[0].SHA256 != res.Outputs[0].SHA256 {
		t.Error("damaged tensors went into a new file")
	}
}

func TestArtifactSource(t *testing.T) {
	b := newBench(t)
	first := b.build(strings.ReplaceAll(mixed, "  - quantize: {type: Q8_0, rules: [{match: 'ffn_down', type: Q4_0}]}\n", "  - convert: {outtype: f16}\n"))
	res := b.build(`version: 1
name: again
sources:
  base: {artifact: mixed}
outputs:
  - {format: gguf, file: again.gguf}
`)
	if res.Outputs[0].SHA256 != first.Outputs[0].SHA256 {
		t.Error("a GGUF artifact written again is another file")
	}
}

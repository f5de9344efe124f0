package all_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/source"
)

// TestHashedWhileWritten: files too large to be hashed first get their digests
// beside the build, and its results the keys that go with them.
func TestHashedWhileWritten(t *testing.T) {
	b := newBench(t)
	env := b.env()
	build := func(first int64) *pipeline.Result {
		t.Helper()
		opt := b.options()
		opt.HashFirst = first
		res, err := build1(t.Context(), t, mixed, env, opt, "sources.base.dir="+b.dir)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	first := build(-1)
	for _, f := range first.Sources[0].Files {
		if f.SHA256 == "" {
			t.Errorf("%s has no digest", f.Path)
		}
	}
	if first.Stats.Hashed == 0 || first.Outputs[0].Cached {
		t.Errorf("%+v", first.Stats)
	}
	again := build(-1)
	if !again.Outputs[0].Cached || again.Stats.SourceBytes != 0 {
		t.Errorf("made %d tensors again, read %d bytes", again.Outputs[0].Made, again.Stats.SourceBytes)
	}
	if again.Outputs[0].SHA256 != first.Outputs[0].SHA256 {
		t.Error("another file")
	}
}

// TestSourceChangesDuringBuild: the output would be of two versions, so there
// is none.
func TestSourceChangesDuringBuild(t *testing.T) {
	for _, first := range []int64{0, -1} {
		for _, file := range []string{shard2, "tokenizer.model"} {
			b := newBench(t)
			var once sync.Once
			opt := b.options()
			opt.HashFirst = first
			opt.Events = pipeline.EventFunc(func(e pipeline.Event) {
				if e.Kind == pipeline.EventTensor {
					once.Do(func() {
						path := filepath.Join(b.dir, file)
						data := readAll(t, path)
						data[len(data)-1] ^= 1
						if err := os.WriteFile(path, data, 0o644); err != nil {
							t.Error(err)
						}
					})
				}
			})
			_, err := b.try(mixed, opt)
			if !errors.Is(err, pipeline.ErrSource) || !errors.Is(err, source.ErrChanged) || !strings.Contains(err.Error(), file) {
				t.Errorf("%s, hashed first up to %d: %v", file, first, err)
			}
			leftovers(t, b.out)
			names, err := b.store.Names(t.Context())
			if err != nil || len(names) != 0 {
				t.Errorf("%v are in the store, %v", names, err)
			}
		}
	}
}

const fromArtifact = `version: 1
name: again
sources:
  base: {artifact: mixed}
steps:
  - quantize: {type: Q4_0, fallback: F16}
outputs:
  - {format: gguf, file: again.gguf}
`

// TestDamagedArtifactSource: what the store has is hashed before anything that
// is made of it is kept.
func TestDamagedArtifactSource(t *testing.T) {
	for _, first := range []int64{0, -1} {
		b := newBench(t)
		made := b.build(strings.Replace(mixed, "  - quantize: {type: Q8_0, rules: [{match: 'ffn_down', type: Q4_0}]}\n", "  - convert: {outtype: f16}\n", 1))
		opt := b.options()
		opt.HashFirst, opt.NoCache = first, true
		good, err := b.try(fromArtifact, opt)
		if err != nil {
			t.Fatal(err)
		}
		if f := good.Sources[0].Files[0]; f.SHA256 != made.Outputs[0].SHA256.Hex() {
			t.Errorf("recorded as %+v", f)
		}
		hex := made.Outputs[0].SHA256.Hex()
		blob := filepath.Join(b.store.Dir(), "blobs", "sha256", hex)
		data := readAll(t, blob)
		data[len(data)-1000] ^= 1
		if err := os.Chmod(blob, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(blob, data, 0o644); err != nil {
			t.Fatal(err)
		}
		opt.OutDir = t.TempDir()
		_, err = b.try(fromArtifact, opt)
		if !errors.Is(err, pipeline.ErrSource) || !errors.Is(err, source.ErrDamaged) || !strings.Contains(err.Error(), hex) {
			t.Errorf("hashed first up to %d: %v", first, err)
		}
		leftovers(t, opt.OutDir)
	}
}

// TestArtifactMovesDuringBuild: the name is another build's by the end; the
// record says what was read.
func TestArtifactMovesDuringBuild(t *testing.T) {
	b := newBench(t)
	convert := func(outtype string) string {
		return strings.Replace(mixed, "  - quantize: {type: Q8_0, rules: [{match: 'ffn_down', type: Q4_0}]}\n", "  - convert: {outtype: "+outtype+"}\n", 1)
	}
	old := b.build(convert("f16"))
	r, err := recipes.Parse(filepath.Join(t.TempDir(), "r.yaml"), []byte(fromArtifact), recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, b.env())
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	opt := b.options()
	opt.HashFirst = -1 // so that it plans once more at the end
	opt.Events = pipeline.EventFunc(func(e pipeline.Event) {
		if e.Kind == pipeline.EventTensor {
			once.Do(func() { b.build(convert("bf16")) })
		}
	})
	res, err := pipeline.Build(t.Context(), prj, opt)
	if err != nil {
		t.Fatal(err)
	}
	if s := res.Sources[0]; s.Commit != old.Manifest.Hex() || s.Files[0].SHA256 != old.Outputs[0].SHA256.Hex() {
		t.Errorf("recorded as %+v, read was %s", s, old.Manifest.Hex())
	}
	after := b.build(fromArtifact)
	if after.Sources[0].Commit == old.Manifest.Hex() {
		t.Error("the name still stands for the old build")
	}
}

// TestArtifactOutput: one of several outputs is named behind the build's name or
// digest, however its file is called; an archive serves as base and as the source of a
// tokenizer.
func TestArtifactOutput(t *testing.T) {
	path := func(name string) string {
		p, err := filepath.Abs(filepath.Join(testdata, "cact", name))
		if err != nil {
			t.Fatal(err)
		}
		return "file: '" + p + "'"
	}
	b := newBench(t)
	b.build(needleText(t, path("needle3-b.safetensors"), "") + "  - {format: cact, file: In a folder/B (3).cact}\n")
	named, err := b.store.Resolve(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	again := func(base, tokenizer string) (*pipeline.Result, error) {
		return b.try("version: 1\nname: again\nsources:\n  base: {"+base+"}\n"+tokenizer+"outputs:\n  - {format: cact, file: again.cact}\n", b.options())
	}
	const file = "/In a folder/B (3).cact'"
	for _, base := range []string{"artifact: 'x" + file, "artifact: '" + named.Digest.String() + file, "artifact: x/x.cact"} {
		if _, err := again(base, ""); err != nil {
			t.Fatalf("%s: %v", base, err)
		}
		if !bytes.Equal(mustRead(t, filepath.Join(b.out, "again.cact")), cactFile(t, "needle3-b.cact")) {
			t.Errorf("%s: another archive", base)
		}
	}
	if _, err := again(path("needle3-b.pkl"), "  tokenizer: {artifact: 'x"+file+"}\n"); err != nil {
		t.Fatal(err)
	}
	sameArchive(t, mustRead(t, filepath.Join(b.out, "again.cact")), cactFile(t, "needle3-b.cact"))
	for base, text := range map[string]string{
		"artifact: x":           "name one as NAME/FILE",
		"artifact: x/none.cact": "it has x.cact, In a folder/B (3).cact",
		"artifact: y/x.cact":    "not in the store",
		"artifact: 'y" + file:   "not in the store",
	} {
		if _, err := again(base, ""); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", base, err, text)
		}
	}
}

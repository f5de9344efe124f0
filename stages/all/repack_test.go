package all_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/formats/repacked"
	"quern/internal/digest"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/emit"
	"quern/stages/source"
	"quern/tensor"
	"quern/verify"
)

const repackRecipe = `version: 1
name: repack
sources:
  base: {dir: .}
steps:
  - pad: {ffn: 32}
  - quantize:
      type: Q8_0
      rules:
        - {match: 'ffn_(gate|up|down)_exps', type: Q4_0}
  - reorder: {experts: last, align: 16KiB}
outputs:
  - {format: gguf, file: out.gguf, repack: [q4_0_4x4, q8_0_4x8]}
gates:
  - tensors: {min-snr-db: 18}
`

// TestRepackCache writes caches beside a file and holds every matrix in them, with
// its rows put back in order, against the file. The header has the digest of
// the very file, and a second build takes everything from the store.
func TestRepackCache(t *testing.T) {
	dir := "sources.base.dir=" + folder(t, "stories-moe")
	opt := pipeline.BuildOptions{OutDir: t.TempDir()}
	res, err := build1(t.Context(), t, repackRecipe, sourceEnv(), opt, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Outputs) != 3 || len(res.Gates) == 0 {
		t.Fatalf("%d outputs, %d gates", len(res.Outputs), len(res.Gates))
	}
	for _, g := range res.Gates {
		if g.Output != "out.gguf" {
			t.Errorf("a gate looked at %s", g.Output)
		}
	}
	data := readAll(t, res.Outputs[0].Path)
	file, err := gguf.Open(t.Context(), "f", blobOf(data), gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plain := map[string]gguf.Info{}
	for _, x := range file.Tensors {
		plain[x.Name] = x
	}
	for i, c := range []struct {
		layout string
		typ    tensor.Type
	}{{"q4_0_4x4", tensor.Q4_0}, {"q8_0_4x8", tensor.Q8_0}} {
		out := res.Outputs[i+1]
		if want := "out.gguf." + c.layout + ".repack"; filepath.Base(out.Path) != want {
			t.Errorf("%s, want %s", out.Path, want)
		}
		b := readAll(t, out.Path)
		cache, err := repacked.Open(t.Context(), "c", blobOf(b), repacked.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := cache.Of(digest.Of(data)); err != nil || cache.GGUFSize != int64(len(data)) {
			t.Errorf("%s: %v, of %d bytes", c.layout, err, cache.GGUFSize)
		}
		wanted := 0
		for _, x := range file.Tensors {
			if x.TypeName() == c.typ.String() { // the embedding too, which is the head here
				wanted++
			}
		}
		if len(cache.Entries) != wanted || wanted == 0 {
			t.Errorf("%s: %d tensors, the file has %d", c.layout, len(cache.Entries), wanted)
		}
		for i := range cache.Entries {
			e := &cache.Entries[i]
			p, err := cache.Plain(e)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, p.Bytes())
			if err := p.ReadRows(t.Context(), got, 0, p.Rows()); err != nil {
				t.Fatal(err)
			}
			x := plain[e.Name]
			if want := data[x.Offset:][:x.Bytes]; !bytes.Equal(got, want) {
				t.Errorf("%s: tensor %s is not that of the file", c.layout, e.Name)
			} else if bytes.Equal(b[e.Offset:][:e.Bytes], want) {
				t.Errorf("%s: tensor %s is not interleaved", c.layout, e.Name)
			}
		}
		if f, ts, err := verify.Tensors(t.Context(), "c", blobOf(b)); err != nil || f != verify.Repacked || len(ts) != wanted || ts[0].Type != c.typ {
			t.Errorf("%s: verify reads %s, %d tensors, %v", c.layout, f, len(ts), err)
		}
	}
	// Nothing of that depends on how it was made.
	opt = pipeline.BuildOptions{OutDir: t.TempDir(), Jobs: 3, Memory: 1 << 20}
	again, err := build1(t.Context(), t, repackRecipe, sourceEnv(), opt, dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range res.Outputs {
		if again.Outputs[i].SHA256 != res.Outputs[i].SHA256 {
			t.Errorf("%s: other bytes with 3 workers", again.Outputs[i].Path)
		}
	}
}

// TestRepackLeavesOut: an embedding beside a head of its own is looked up row by row
// and stays plain; the head is multiplied with.
func TestRepackLeavesOut(t *testing.T) {
	text := `version: 1
name: wide
sources:
  base: {dir: .}
steps:
  - quantize: {type: Q8_0, fallback: F16}
outputs:
  - {format: gguf, file: out.gguf, repack: [q8_0_4x4]}
`
	res, err := build1(t.Context(), t, text, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.dir="+folder(t, "stories-wide"))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := repacked.Open(t.Context(), "c", blobOf(readAll(t, res.Outputs[1].Path)), repacked.Options{})
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, e := range cache.Entries {
		has[e.Name] = true
	}
	if has["token_embd.weight"] || !has["output.weight"] || !has["blk.0.attn_q.weight"] {
		t.Errorf("tensors %v", has)
	}
}

// TestRepackFromStore: a cache whose GGUF file is in the store is made of what the
// store has, a cache that the store has is taken from there, and both are the same
// bytes as without a store.
func TestRepackFromStore(t *testing.T) {
	b := newBench(t)
	text := `version: 1
name: wide
sources:
  base: {dir: "DIR"}
steps:
  - quantize: {type: Q8_0, fallback: F16}
outputs:
  - {format: gguf, file: out.gguf}
`
	b.build(text)
	text = strings.Replace(text, "out.gguf}", "out.gguf, repack: [q8_0_4x8]}", 1)
	opt := b.options()
	opt.Store, opt.OutDir = nil, t.TempDir()
	want, err := b.try(text, opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"", "out.gguf", "out.gguf.q8_0_4x8.repack"} {
		if gone != "" {
			if err := os.Remove(filepath.Join(b.out, gone)); err != nil {
				t.Fatal(err)
			}
		}
		got := b.build(text)
		for i := range want.Outputs {
			if got.Outputs[i].SHA256 != want.Outputs[i].SHA256 {
				t.Errorf("without %q: %s is another file than without a store", gone, got.Outputs[i].File)
			}
			if data := readAll(t, got.Outputs[i].Path); digest.Of(data) != want.Outputs[i].SHA256 {
				t.Errorf("without %q: %s does not have its digest", gone, got.Outputs[i].File)
			}
		}
	}
}

// TestRepackedSource: rows that are interleaved are never taken for plain ones,
// neither out of a cache nor out of a file of the types that ggml once had.
func TestRepackedSource(t *testing.T) {
	dir := "sources.base.dir=" + folder(t, "stories-moe")
	out := t.TempDir()
	if _, err := build1(t.Context(), t, repackRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: out}, dir); err != nil {
		t.Fatal(err)
	}
	again := strings.NewReplacer("{dir: .}", "{gguf: x}", "  - pad: {ffn: 32}\n", "", ", repack: [q4_0_4x4, q8_0_4x8]", "",
		"type: Q8_0", "preset: Q4_0\n      allow-requantize: true").Replace(repackRecipe)
	cache := filepath.Join(out, "out.gguf.q4_0_4x4.repack")
	_, err := build1(t.Context(), t, again, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.gguf="+cache)
	if !errors.Is(err, gguf.ErrNotGGUF) || !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), "repack cache") || !strings.Contains(err.Error(), "GGUF file that it was made of") {
		t.Errorf("a cache as source: %v", err)
	}
	_, err = build1(t.Context(), t, again, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.file="+cache)
	if !errors.Is(err, source.ErrKind) || !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), "q4_0_4x4") || !strings.Contains(err.Error(), digest.Of(readAll(t, filepath.Join(out, "out.gguf"))).Hex()) {
		t.Errorf("a cache as a plain file: %v", err)
	}
	// The file itself will do.
	if _, err := build1(t.Context(), t, again, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.gguf="+filepath.Join(out, "out.gguf")); err != nil {
		t.Errorf("the GGUF file as source: %v", err)
	}
	// A file of the time when types of their own said so.
	old := readAll(t, filepath.Join(out, "out.gguf"))
	name := []byte("blk.0.ffn_up_exps.weight")
	at := bytes.Index(old, name) + len(name) + 4 + 3*8
	if old[at] != 2 {
		t.Fatalf("the type is %d, not Q4_0's", old[at])
	}
	old[at] = 31
	path := filepath.Join(t.TempDir(), "old.gguf")
	if err := os.WriteFile(path, old, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = build1(t.Context(), t, again, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.gguf="+path)
	if !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), "Q4_0_4_4") || !strings.Contains(err.Error(), "interleaved") {
		t.Errorf("an interleaved type as source: %v", err)
	}
}

// TestRepackRefuses: a layout that no matrix can have is an error before anything
// is written.
func TestRepackRefuses(t *testing.T) {
	dir := "sources.base.dir=" + folder(t, "stories-moe")
	out := t.TempDir()
	text := strings.Replace(repackRecipe, "q8_0_4x8", "q4_K_8x8", 1)
	_, err := build1(t.Context(), t, text, sourceEnv(), pipeline.BuildOptions{OutDir: out}, dir)
	if !errors.Is(err, emit.ErrRepack) || !strings.Contains(err.Error(), "q4_K_8x8") {
		t.Errorf("a layout without matrices: %v", err)
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

// TestOwnLayouts writes caches in quern's own layouts. All but the one that merges
// scales give back the file's bytes; that one keeps every code.
func TestOwnLayouts(t *testing.T) {
	for typ, layouts := range map[string][]string{
		"Q2_0": {"q2_0_8x4", "q2_0_8x4_base3", "q2_0_8x4_merged128"},
		"Q1_0": {"q1_0_8x4_planes", "q1_0_32_lut"},
		"Q2_K": {"q2_K_8x4", "q2_K_32_lut"},
	} {
		text := "version: 1\nname: own\nsources:\n  base: {dir: .}\nsteps:\n  - quantize: {type: " + typ + ", fallback: F16}\n" +
			"outputs:\n  - {format: gguf, file: out.gguf, repack: [" + strings.Join(layouts, ", ") + "]}\n"
		res, err := build1(t.Context(), t, text, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.dir="+folder(t, "stories-wide"))
		if err != nil {
			t.Fatal(err)
		}
		data := readAll(t, res.Outputs[0].Path)
		file, err := gguf.Open(t.Context(), "f", blobOf(data), gguf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range layouts {
			b := readAll(t, res.Outputs[i+1].Path)
			cache, err := repacked.Open(t.Context(), "c", blobOf(b), repacked.Options{})
			if err != nil || cache.Layout.String() != name || cache.Of(digest.Of(data)) != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for j := range cache.Entries {
				e := &cache.Entries[j]
				p, err := cache.Plain(e)
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, p.Bytes())
				if err := p.ReadRows(t.Context(), got, 0, p.Rows()); err != nil {
					t.Fatal(err)
				}
				x := file.Find(e.Name)
				want := bytes.Clone(data[x.Offset:][:x.Bytes])
				if cache.Layout.Lossy() {
					if bytes.Equal(got, want) {
						t.Errorf("%s: tensor %s was not rounded: the test shows nothing", name, e.Name)
					}
					for at := 0; at < len(got); at += 18 {
						copy(want[at:at+2], got[at:])
					}
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s: tensor %s is not that of the file", name, e.Name)
				}
			}
		}
	}
}

// TestRepackSaysWhatStaysPlain: a matrix whose rows do not divide into groups is left
// out of the cache, and the plan says which and why.
func TestRepackSaysWhatStaysPlain(t *testing.T) {
	text := `version: 1
name: plain
sources:
  base: {dir: "DIR"}
steps:
  - pad: {ffn: 32, vocab: 12}
  - quantize: {type: Q8_0}
outputs:
  - {format: gguf, file: out.gguf, repack: [q8_0_4x8]}
`
	// 516 rows of the embedding, which is the head too, are groups of 4 and not of 8.
	text = strings.Replace(text, "DIR", folder(t, "stories260k"), 1)
	res, err := build1(t.Context(), t, text, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := repacked.Open(t.Context(), "c", blobOf(readAll(t, res.Outputs[1].Path)), repacked.Options{})
	if err != nil || cache.Entries[0].Name != "token_embd.weight" || cache.Entries[0].Shape[0] != 516 {
		t.Fatalf("%+v, %v", cache.Entries[0].Spec, err)
	}
	r, err := recipes.Parse("r.yaml", []byte(strings.NewReplacer("q8_0_4x8", "q4_0_8x8", "{type: Q8_0}", "{type: Q4_0}").Replace(text)), recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, sourceEnv())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pipeline.NewPlan(t.Context(), prj, pipeline.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	notes := strings.Join(plan.Layouts[1].Notes, "\n")
	if !strings.Contains(notes, "token_embd.weight stays out") || !strings.Contains(notes, "groups of 8, 516 rows") {
		t.Errorf("the plan says %q", notes)
	}
	for _, it := range plan.Layouts[1].Items {
		if it.Tensor.Name == "token_embd.weight" {
			t.Error("it is in the cache all the same")
		}
	}
}

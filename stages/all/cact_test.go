package all_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/formats/cact"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/source"
	"quern/tensor"
)

// openCact opens an archive that lies in memory.
func openCact(t *testing.T, b []byte) *cact.File {
	t.Helper()
	f, err := cact.Open(context.Background(), "x.cact", tensor.BytesBlob("x.cact", b), cact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func stored(t *testing.T, x *tensor.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(context.Background(), b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	return b
}

// sameArchive holds an archive against the exporter's: everything but indices must
// be equal, and of a million indices one may differ.
func sameArchive(t *testing.T, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	if len(got) != len(want) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
	f := openCact(t, want)
	differs, total := 0, 0
	rest := bytes.Clone(got)
	for _, e := range f.Entries {
		if e.Kind != cact.CQ {
			continue
		}
		n := e.Tensor.Bytes()
		total += int(e.Tensor.Shape[0] * e.Tensor.Shape[1])
		bits := e.Width.IndexBits()
		a, b := got[e.Offset:e.Offset+n], want[e.Offset:e.Offset+n]
		for k := 0; k < len(a)*8/bits; k++ {
			if index(a, k, bits) != index(b, k, bits) {
				differs++
			}
		}
		copy(rest[e.Offset:e.Offset+n], b)
	}
	if differs > 0 {
		t.Logf("%d of %d indices differ", differs, total)
	}
	if differs > total/1_000_000+1 {
		t.Errorf("%d of %d indices differ", differs, total)
	}
	for i := range rest {
		if rest[i] != want[i] {
			t.Errorf("byte %d is %#02x, want %#02x", i, rest[i], want[i])
			return
		}
	}
}

// index reads the k-th number of so many bits.
func index(b []byte, k, bits int) int {
	v := 0
	for i := range bits {
		at := k*bits + i
		v |= int(b[at/8]>>(at%8)&1) << i
	}
	return v
}

// needleSource points the base of an acceptance recipe to the checkpoint's place
// in this repository.
func needleSource(t *testing.T, name string) string {
	t.Helper()
	abs, err := filepath.Abs(filepath.Join(testdata, "cact", name))
	if err != nil {
		t.Fatal(err)
	}
	return "sources.base.file=" + abs
}

func TestAcceptanceCact(t *testing.T) {
	for _, c := range []struct{ recipe, base, file, golden string }{
		{"needle2", "needle2-a", "needle2-a.cact", "needle2-a-w4.cact"},
		{"needle2-mixed", "needle2-a", "needle2-a-mixed.cact", "needle2-a-mixed.cact"},
		{"needle2", "needle2-b", "needle2-a.cact", "needle2-b-w4.cact"}, // with heads
	} {
		t.Run(c.golden, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(testdata, "cact", c.golden))
			if err != nil {
				t.Fatal(err)
			}
			var first []byte
			for _, jobs := range []int{1, 2, 7} {
				out, _ := build(t, filepath.Join(testdata, "acceptance", c.recipe+".yaml"), pipeline.BuildOptions{Jobs: jobs, Memory: 4 << 20}, needleSource(t, c.base+".safetensors"))
				got, err := os.ReadFile(filepath.Join(out, c.file))
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = got
					sameArchive(t, got, want)
				} else if !bytes.Equal(got, first) {
					t.Errorf("%d jobs give other bytes", jobs)
				}
			}
		})
	}
}

// TestCactGeneration3 builds what the exporter of generation 3 built, from the same
// checkpoints.
func TestCactGeneration3(t *testing.T) {
	for _, c := range []struct{ golden, base, tokenizer, adapter, steps string }{
		{"needle3-a", "needle3-a.safetensors", "needle3-dummy.model", "", ""},
		{"needle3-a-lora", "needle3-a.safetensors", "needle3-dummy.model", "needle3-a-lora.safetensors", "lora: {adapter: tuned}"},
		{"needle3-a-layers3", "needle3-a.safetensors", "needle3-dummy.model", "", "layers: 3"},
		{"needle3-b", "needle3-b.safetensors", "needle3-plain.model", "", ""},
		{"needle3-b", "needle3-b.pkl", "needle3-plain.model", "", ""},
		{"needle3-b-lora", "needle3-b.safetensors", "needle3-plain.model", "needle3-b-lora.pkl", "lora: {adapter: tuned}"},
		{"needle3-b-lora", "needle3-b.pkl", "needle3-plain.model", "needle3-b-lora.pkl", "lora: {adapter: tuned}"},
		{"needle3-b-width32", "needle3-b.safetensors", "needle3-plain.model", "", "width: 32"},
		{"needle3-c", "needle3-c.safetensors", "needle3-plain.model", "", ""},
		{"needle3-c-layers5", "needle3-c.safetensors", "needle3-plain.model", "", "layers: 5"},
		{"needle3-c-layers5", "needle3-c.cact", "", "", "layers: 5"}, // of the archive
		{"needle3-a-layers3", "needle3-a.cact", "", "", "layers: 3"},
		{"needle3-b", "needle3-b.safetensors", "needle3-b.cact", "", ""}, // the tokenizer of an archive
		{"whistle", "whistle.safetensors", "needle3-dummy.model", "", ""},
		{"whistle", "whistle.safetensors", "whistle.cact", "", ""},
		{"whistle", "whistle.cact", "", "", ""},
		{"whistle-lora", "whistle.safetensors", "needle3-dummy.model", "whistle-lora.safetensors", "lora: {adapter: tuned}"},
		{"whistle-lora", "whistle.safetensors", "whistle.cact", "whistle-lora.safetensors", "lora: {adapter: tuned}"},
		{"whistle-layers2", "whistle.safetensors", "needle3-dummy.model", "", "layers: 2"},
		{"whistle-layers2", "whistle.cact", "", "", "layers: 2"},
	} {
		t.Run(c.golden+" of "+c.base, func(t *testing.T) {
			abs := func(name string) string {
				p, err := filepath.Abs(filepath.Join(testdata, "cact", name))
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			text := "version: 1\nname: needle3\nsources:\n  base: {file: '" + abs(c.base) + "'}\n"
			if c.tokenizer != "" {
				text += "  tokenizer: {file: '" + abs(c.tokenizer) + "'}\n"
			}
			if c.adapter != "" {
				text += "  tuned: {file: '" + abs(c.adapter) + "'}\n"
			}
			if c.steps != "" {
				text += "steps:\n  - " + c.steps + "\n"
			}
			text += "outputs:\n  - {format: cact, generation: 3, file: out.cact}\n"
			recipe := filepath.Join(t.TempDir(), "needle3.yaml")
			if err := os.WriteFile(recipe, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(abs(c.golden + ".cact"))
			if err != nil {
				t.Fatal(err)
			}
			out, _ := build(t, recipe, pipeline.BuildOptions{})
			got, err := os.ReadFile(filepath.Join(out, "out.cact"))
			if err != nil {
				t.Fatal(err)
			}
			sameArchive(t, got, want)
		})
	}
}

// cactRecipe writes a recipe with the checkpoint of generation 2 as its base.
func cactRecipe(t *testing.T, steps, rest string) string {
	t.Helper()
	abs := func(parts ...string) string {
		p, err := filepath.Abs(filepath.Join(append([]string{testdata}, parts...)...))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	text := "version: 1\nname: x\nsources:\n  base: {file: '" + abs("cact", "needle2-b.safetensors") + "'}\n  tokenizer: {file: '" + abs("models", "stories260k", "tokenizer.model") + "'}\n"
	if steps != "" {
		text += "steps:\n" + steps
	}
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte(text+"outputs:\n  - {format: cact, file: x.cact}\n"+rest), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestCactGate: the gate reads the written archive and compares it with the float
// source; one made too strict fails.
func TestCactGate(t *testing.T) {
	_, res := build(t, cactRecipe(t, "", "gates:\n  - tensors: {min-snr-db: 18}\n"), pipeline.BuildOptions{})
	if len(res.Gates) != 1 || !res.Gates[0].Pass || res.Gates[0].Value < 18 || res.Gates[0].Value > 22 {
		t.Errorf("%+v", res.Gates)
	}
	r, err := recipes.ReadFile(cactRecipe(t, "  - quantize: {type: CQ2}\n", "gates:\n  - tensors: {min-snr-db: 18}\n"), recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, source.Env{Digests: digests})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pipeline.Build(context.Background(), prj, pipeline.BuildOptions{OutDir: t.TempDir()}); !errors.Is(err, pipeline.ErrGate) {
		t.Errorf("at 2 bits: %v", err)
	}
}

// TestCactKeys: each key of the recipe that says something of an archive, changed
// alone, changes its digest.
func TestCactKeys(t *testing.T) {
	sums := map[string]string{}
	for _, steps := range []string{
		"", "  - quantize: {type: CQ3}\n", "  - quantize: {type: CQ2}\n", "  - quantize: {type: CQ1.58}\n", "  - quantize: {type: CQ4, group: 64}\n",
		"  - quantize: {bits: 'default=4,embedding=2'}\n", "  - quantize: {bits: 'default=4,attn.q_proj=2'}\n", "  - quantize: {bits: 'default=4,engram1=2'}\n",
	} {
		_, res := build(t, cactRecipe(t, steps, ""), pipeline.BuildOptions{})
		sum := res.Outputs[0].SHA256.Hex()
		if other, ok := sums[sum]; ok {
			t.Errorf("%q and %q give the same archive", steps, other)
		}
		sums[sum] = steps
	}
	_, res := build(t, cactRecipe(t, "  - quantize: {bits: 'default=4', group: 128}\n", ""), pipeline.BuildOptions{})
	if steps, ok := sums[res.Outputs[0].SHA256.Hex()]; !ok || steps != "" {
		t.Error("what is done without a quantize step is not 4 bits in groups of 128")
	}
}

// TestCactRefuses: what cannot become an archive fails in the plan, and says why.
func TestCactRefuses(t *testing.T) {
	cactFile, err := filepath.Abs(filepath.Join(testdata, "cact", "needle2-a-w4.cact"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, steps, set, text string }{
		{"other generation", "", "outputs.0.generation=3", "generation 3 is asked for"},
		{"an archive again", "  - quantize: {type: CQ2}\n", "sources.base.file=" + cactFile, "quantized already"},
		{"1 bit in generation 2", "  - quantize: {type: CQ1}\n", "", "1 bit"},
		{"a type of GGUF", "  - quantize: {type: Q8_0}\n", "", "form"},
		{"a misspelt name", "  - quantize: {bits: 'default=4,atn.=2'}\n", "", "atn."},
		{"no default", "  - quantize: {bits: 'embedding=2'}\n", "", "default"},
		{"too many layers", "  - layers: 3\n", "", "it has 2"},
		{"half of generation 2", "  - width: 96\n", "", "generation 2"},
		{"GGUF of it", "", "outputs=[{format: gguf, file: x.gguf}]", "form"},
		{"tied", "  - tie-head: {force: true}\n", "", "form"},
		{"padded", "  - pad: {vocab: 64}\n", "", "form"},
		{"converted", "  - convert: {}\n", "", "form"},
		{"a tokenizer with more pieces than rows", "", "sources={base: {file: '" + strings.Replace(cactFile, "needle2-a-w4.cact", "needle3-b.safetensors", 1) + "'}, tokenizer: {file: '" + cactFile + "'}}", "512 pieces"},
		{"KMCU of it", "", "outputs=[{format: kmcu, file: x.kmcu}]", "form"},
		{"another model's tokenizer", "", "sources.tokenizer={dir: " + filepath.ToSlash(filepath.Join(testdata, "models", "stories260k")) + "}", "tokenizer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var set []string
			if c.set != "" {
				set = append(set, c.set)
			}
			r, err := recipes.ReadFile(cactRecipe(t, c.steps, ""), recipes.Options{Set: set})
			if err == nil {
				var prj *pipeline.Project
				if prj, err = all.Project(r, source.Env{Digests: digests}); err == nil {
					_, err = pipeline.Build(context.Background(), prj, pipeline.BuildOptions{OutDir: t.TempDir()})
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %q", err, c.text)
			}
		})
	}
}

// TestCactCodebook: codebooks fitted to the weights go into the header, and lose
// less than the standard ones do on weights that are not normal.
func TestCactCodebook(t *testing.T) {
	worst := func(steps string) float64 {
		t.Helper()
		_, res := build(t, cactRecipe(t, steps, "gates:\n  - tensors: {min-snr-db: 1}\n"), pipeline.BuildOptions{})
		return res.Gates[0].Value
	}
	plain := worst("  - quantize: {type: CQ2}\n")
	fitted := worst("  - codebook: {id: books, bits: [2], samples: 200000}\n  - quantize: {type: CQ2, codebook: books}\n")
	if fitted <= plain-0.05 {
		t.Errorf("worst ratio %v dB, %v with the standard codebook", fitted, plain)
	}
	var first []byte
	for _, jobs := range []int{1, 7} {
		out, _ := build(t, cactRecipe(t, "  - codebook: {id: books}\n  - quantize: {type: CQ4, codebook: books}\n", ""), pipeline.BuildOptions{Jobs: jobs})
		got, err := os.ReadFile(filepath.Join(out, "x.cact"))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		} else if !bytes.Equal(first, got) {
			t.Errorf("%d jobs give other bytes", jobs)
		}
	}
	f := openCact(t, first)
	standard := openCact(t, mustRead(t, filepath.Join(testdata, "cact", "needle2-b-w4.cact")))
	for i, v := range f.Codebooks {
		if v == standard.Codebooks[i] || v < standard.Codebooks[i]-0.05 || v > standard.Codebooks[i]+0.05 {
			t.Errorf("entry %d is %v, the standard one %v", i, v, standard.Codebooks[i])
		}
	}
	r, err := recipes.ReadFile(cactRecipe(t, "  - codebook: {id: books, group: 64}\n  - quantize: {type: CQ4, codebook: books}\n", ""), recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, source.Env{Digests: digests})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pipeline.Build(context.Background(), prj, pipeline.BuildOptions{OutDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "groups of 64") {
		t.Errorf("another group: %v", err)
	}
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

package all_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"quern/formats/cact"
	"quern/pipeline"
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

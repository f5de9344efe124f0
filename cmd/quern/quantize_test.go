package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/internal/digest"
	"quern/internal/testmodel"
	"quern/tensor"
)

// commandGoldens is testdata/convert/commands.json: command lines of the real
// llama-quantize and the SHA-256 of what they wrote. interop/make_commands.py
// makes it.
type commandGoldens struct {
	Inputs   map[string]string
	Types    string
	Prepared map[string]string
	Commands []struct {
		Args    []string
		Outputs map[string]string // nil for a command that failed
	}
}

// quantizeBench is a folder with the inputs of the goldens, and the working
// folder: the real tool writes paths as they are given into files.
func quantizeBench(t *testing.T) (*bench, *commandGoldens) {
	var g commandGoldens
	check(t, json.Unmarshal(mustRead(t, filepath.Join(testmodel.Root(), "convert/commands.json")), &g))
	b := newBench(t)
	t.Chdir(b.dir)
	for _, m := range []string{"stories-wide", "stories-moe"} {
		r := "{version: 1, name: in, sources: {base: {dir: '" + filepath.ToSlash(filepath.Join(testmodel.Root(), "models", m)) + "'}}, steps: [{convert: {outtype: f16}}]," +
			"outputs: [{format: gguf, file: " + m + ".f16.gguf}, {format: gguf, file: " + m + ".gguf, split-max-tensors: 10}]}"
		check(t, os.WriteFile("in.yaml", []byte(r), 0o644))
		b.ok("build", "in.yaml", "--no-store", "--progress", "none")
	}
	for name, want := range g.Inputs {
		if got := digest.Of(mustRead(t, name)).Hex(); got != want {
			t.Fatalf("%s is %s, convert_hf_to_gguf.py gives %s", name, got, want)
		}
	}
	matrix := "stories-wide.imatrix.gguf"
	check(t, os.WriteFile(matrix, mustRead(t, filepath.Join(testmodel.Root(), "convert/presets", matrix)), 0o644))
	check(t, os.WriteFile("types.txt", []byte(g.Types), 0o644))
	for name, kind := range g.Prepared {
		b.ok("quantize", "--imatrix", matrix, "stories-wide.f16.gguf", name+".gguf", kind)
	}
	return b, &g
}

// TestCommandsOfLlamaQuantize gives quern quantize the real tool's own command
// lines: the same files must come out, and the same ones must fail.
func TestCommandsOfLlamaQuantize(t *testing.T) {
	b, g := quantizeBench(t)
	before := filesIn(t, ".")
	for _, c := range g.Commands {
		line := strings.Join(c.Args, " ")
		r := b.run(append([]string{"quantize"}, c.Args...)...)
		made := map[string]string{}
		for _, f := range filesIn(t, ".") {
			if !slices.Contains(before, f) {
				made[f] = digest.Of(mustRead(t, f)).Hex()
				check(t, os.Remove(f))
			}
		}
		if c.Outputs == nil {
			if r.code == exitDone || len(made) > 0 {
				t.Errorf("%s: the real tool fails, this gives exit code %d and %v", line, r.code, made)
			}
			continue
		}
		if r.code != exitDone {
			t.Errorf("%s: exit code %d: %s", line, r.code, r.err)
			continue
		}
		for f, want := range c.Outputs {
			if made[f] != want {
				t.Errorf("%s: %s is %s, llama-quantize wrote %s", line, f, made[f], want)
			}
		}
		if len(made) != len(c.Outputs) {
			t.Errorf("%s: wrote %v, llama-quantize %v", line, made, c.Outputs)
		}
	}
	if len(g.Commands) < 50 {
		t.Errorf("only %d commands", len(g.Commands))
	}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	var out []string
	for _, e := range entries {
		if !e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// smallModel writes a llama model of one layer to a GGUF file.
func smallModel(t *testing.T, file string, change func(name string, values []float32)) {
	t.Helper()
	meta := gguf.NewMetadata()
	meta.Set("general.architecture", gguf.Scalar("llama"))
	meta.Set("llama.block_count", gguf.Scalar(uint32(1)))
	meta.Set("llama.attention.head_count", gguf.Scalar(uint32(2)))
	var specs []gguf.TensorSpec
	var ts []*tensor.Tensor
	for _, name := range []string{"token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.0.ffn_down.weight"} {
		shape := tensor.Shape{4, 256}
		if strings.Contains(name, "norm") {
			shape = tensor.Shape{256}
		}
		n, err := shape.Values()
		check(t, err)
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(i%17) - 8
		}
		if change != nil {
			change(name, values)
		}
		specs = append(specs, gguf.TensorSpec{Name: name, Type: tensor.F32, Shape: shape})
		raw := make([]byte, 4*len(values))
		for i, v := range values {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
		}
		blob := tensor.BytesBlob(name, raw)
		ts = append(ts, &tensor.Tensor{Name: name, Type: tensor.F32, Shape: shape, Src: tensor.SourceFunc(func(ctx context.Context, dst []byte, first, n int64) error {
			return blob.ReadAt(ctx, dst, first*shape.RowLen()*4)
		})})
	}
	l, err := gguf.NewLayout(meta, specs, gguf.LayoutOptions{})
	check(t, err)
	f, err := os.Create(file)
	check(t, err)
	defer f.Close()
	check(t, l.WriteTo(t.Context(), f, ts))
}

// TestQuantizeFaults holds each mistake to its exit code and to a message that
// says what and where, and sees that nothing is left behind.
func TestQuantizeFaults(t *testing.T) {
	b := newBench(t)
	t.Chdir(b.dir)
	smallModel(t, "good.gguf", nil)
	smallModel(t, "nan.gguf", func(name string, v []float32) {
		if name == "blk.0.attn_q.weight" {
			v[300] = float32(math.NaN())
		}
	})
	// A tensor that is only copied must not bring one in either.
	smallModel(t, "inf.gguf", func(name string, v []float32) {
		if name == "output_norm.weight" {
			v[7] = float32(math.Inf(1))
		}
	})
	check(t, os.WriteFile("notes.txt", []byte("attn_q=nothing"), 0o644))
	before := filesIn(t, ".")
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"good.gguf", exitUsage, []string{"TYPE"}},
		{"good.gguf out.gguf", exitUsage, []string{"TYPE is missing"}},
		{"good.gguf out.gguf Q9_K", exitUsage, []string{"Q9_K", "Q4_K_M"}},
		{"good.gguf out.gguf 99", exitUsage, []string{"99"}},
		{"good.gguf out.gguf Q4_0 many", exitUsage, []string{"many"}},
		{"good.gguf out.gguf Q4_0 2 3", exitUsage, []string{"too many"}},
		{"absent.gguf out.gguf Q4_0", exitUsage, []string{"absent.gguf"}},
		{"notes.txt out.gguf Q4_0", exitUsage, []string{"model"}},
		{"good.gguf good.gguf Q4_0", exitUsage, []string{"good.gguf"}},
		{"good.gguf ./GOOD.gguf Q4_0", exitUsage, []string{"good.gguf"}},
		{"nan.gguf out.gguf Q4_K", exitSource, []string{"blk.0.attn_q.weight", "row 1", "NaN"}},
		{"nan.gguf out.gguf COPY", exitSource, []string{"blk.0.attn_q.weight", "NaN"}},
		{"inf.gguf out.gguf Q8_0", exitSource, []string{"output_norm.weight", "Inf"}},
		{"good.gguf out.gguf Q4_0 --rule nothing=Q8_0", exitUsage, []string{"nothing"}},
		{"good.gguf out.gguf Q4_0 --rule attn_q", exitUsage, []string{"REGEX=TYPE"}},
		{"good.gguf out.gguf Q4_0 --rule attn_q=Q99", exitUsage, []string{"Q99"}},
		{"good.gguf out.gguf Q4_0 --tensor-type (=Q8_0", exitUsage, []string{"tensor-type", "("}},
		{"good.gguf out.gguf Q4_0 --tensor-type-file absent.txt", exitUsage, []string{"absent.txt"}},
		{"good.gguf out.gguf Q4_0 --tensor-type-file notes.txt", exitUsage, []string{"nothing"}},
		{"good.gguf out.gguf Q4_0 --output-tensor-type Q99", exitUsage, []string{"output-tensor-type", "Q99"}},
		{"good.gguf out.gguf Q4_0 --override-kv a=b", exitUsage, []string{"int:"}},
		{"good.gguf out.gguf Q4_0 --override-kv a=int:x", exitUsage, []string{"integer"}},
		{"good.gguf out.gguf Q4_0 --override-kv a=int:5000000000", exitUsage, []string{"u32"}},
		{"good.gguf out.gguf Q4_0 --override-kv a=bool:1", exitUsage, []string{"true"}},
		{"good.gguf out.gguf Q4_0 --prune-layers x", exitUsage, []string{"layer"}},
		{"good.gguf out.gguf Q4_0 --prune-layers 5", exitUsage, []string{"5", "no layer"}},
		{"good.gguf out.gguf Q4_0 --prune-layers 0", exitUsage, []string{"no layer would be left"}},
		{"good.gguf out.gguf IQ2_XS", exitUsage, []string{"importance matrix", "--imatrix"}},
		{"good.gguf out.gguf Q4_0 --imatrix notes.txt", exitSource, []string{"notes.txt"}},
		{"good.gguf out.gguf Q4_0 --max-buffer-size 0", exitUsage, []string{"max-buffer-size"}},
	} {
		r := b.run(append([]string{"quantize"}, strings.Fields(c.args)...)...)
		if r.code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s", c.args, r.code, c.code, r.err)
		}
		for _, w := range c.want {
			if !strings.Contains(r.err, w) {
				t.Errorf("%s: the error does not say %q: %s", c.args, w, r.err)
			}
		}
		if after := filesIn(t, "."); !slices.Equal(before, after) {
			t.Fatalf("%s: left %v", c.args, after)
		}
	}
}

// TestQuantizeDryRun sees that a dry run plans the size to the byte, writes
// nothing, and plans what a real run would refuse.
func TestQuantizeDryRun(t *testing.T) {
	b := newBench(t)
	t.Chdir(b.dir)
	smallModel(t, "good.gguf", nil)
	r := b.ok("quantize", "--dry-run", "--json", "good.gguf", "out.gguf", "Q4_K_M")
	var plan struct{ Outputs []struct{ Size int64 } }
	check(t, json.Unmarshal([]byte(r.out), &plan))
	if len(filesIn(t, ".")) != 1 {
		t.Errorf("a dry run wrote %v", filesIn(t, "."))
	}
	b.ok("quantize", "good.gguf", "out.gguf", "Q4_K_M")
	st, err := os.Stat("out.gguf")
	check(t, err)
	if len(plan.Outputs) != 1 || plan.Outputs[0].Size != st.Size() {
		t.Errorf("planned %v, wrote %d", plan.Outputs, st.Size())
	}
	if r := b.ok("quantize", "--dry-run", "good.gguf", "IQ2_XS"); !strings.Contains(r.out, "importance matrix") {
		t.Errorf("the plan does not say that an importance matrix is needed: %s", r.out)
	}
}

package all_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/digest"
	"quern/model"
	"quern/model/order"
	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/load"
	"quern/stages/quantize"
	"quern/stages/reorder"
	"quern/stages/stagetest"
	"quern/tensor"
	"quern/verify"
)

const useRecipe = `version: 1
name: use
sources:
  base: {dir: "DIR"}
  use: {file: "USE"}
steps:
  - quantize: {type: Q8_0, fallback: F16}
  - reorder: {experts: last, by: use}
outputs:
  - {format: gguf, file: out.gguf}
gates:
  - tensors: {min-snr-db: 30}
`

// traceOf writes a trace of stories-moe, 5 layers of 8 experts, in which layer l uses
// expert (3*l+k)%8 more often the larger k is.
func traceOf(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("quern-expert-trace 1\nexperts 8\nused 2\nlayers 0-4\n\n")
	for token := range 35 {
		for l := range 5 {
			k := int(math.Sqrt(float64(token + 1)))
			fmt.Fprintf(&b, "%d\t%d\t%d,%d\n", token, l, (3*l+k)%8, (3*l+k+1)%8)
		}
	}
	return b.String()
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func logitsOf(t *testing.T, path string, act infer.Act) []byte {
	t.Helper()
	m, err := load.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSession(infer.SessionOptions{Act: act})
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, id := range []int32{1, 403, 407, 261, 378, 432, 383, 286} {
		row, err := infer.Last(t.Context(), s, []int32{id}, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = fmt.Appendf(out, "%x", row)
	}
	return out
}

// TestReorderByUse: expert e of the new file is expert from[e] of the old, to the
// byte, router rows with it; everything else is as it was. The file computes what
// the old one does to the last bit, verify finds nothing changed, and the way back
// gives the old file.
func TestReorderByUse(t *testing.T) {
	dir := folder(t, "stories-moe")
	matrix, err := filepath.Abs(filepath.Join(testdata, "convert/presets/stories-moe.imatrix.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	make1 := func(text string) (*pipeline.Result, []byte) {
		t.Helper()
		res, err := build1(t.Context(), t, text, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return res, readAll(t, res.Outputs[0].Path)
	}
	plain := strings.NewReplacer("DIR", dir, "  use: {file: \"USE\"}\n", "", ", by: use", "").Replace(useRecipe)
	old, oldBytes := make1(plain)
	oldFile := openGGUF(t, old.Outputs[0].Path)
	for name, use := range map[string]string{"a trace": file(t, "x.trace", traceOf(t)), "an importance matrix": matrix} {
		res, data := make1(strings.NewReplacer("DIR", dir, "USE", use).Replace(useRecipe))
		f := openGGUF(t, res.Outputs[0].Path)
		from, experts, err := order.From(f.Meta)
		if err != nil || experts != 8 || len(from) != 40 {
			t.Fatalf("%s: %v of %d experts, %v", name, from, experts, err)
		}
		moved := 0
		for i := range f.Tensors {
			x, o := &f.Tensors[i], &oldFile.Tensors[i]
			if x.Name != o.Name || x.Bytes != o.Bytes {
				t.Fatalf("%s: tensor %d is %s, was %s", name, i, x.Name, o.Name)
			}
			slices, block := 1, 0
			if strings.Contains(x.Name, "_exps") || strings.Contains(x.Name, "ffn_gate_inp") {
				slices = experts
				if _, err := fmt.Sscanf(x.Name, "blk.%d.", &block); err != nil {
					t.Fatal(err)
				}
			}
			size := x.Bytes / int64(slices)
			for e := range slices {
				was := e
				if slices > 1 {
					was = int(from[8*block+e])
				}
				if was != e {
					moved++
				}
				if digest.Of(data[x.Offset+int64(e)*size:][:size]) != digest.Of(oldBytes[o.Offset+int64(was)*size:][:size]) {
					t.Errorf("%s: slice %d of tensor %s is not slice %d of the old file's", name, e, x.Name, was)
				}
			}
		}
		if moved < 40 {
			t.Errorf("%s: only %d slices moved", name, moved)
		}
		for _, act := range []infer.Act{infer.Exact, infer.Q8} {
			if !bytes.Equal(logitsOf(t, res.Outputs[0].Path, act), logitsOf(t, old.Outputs[0].Path, act)) {
				t.Errorf("%s, %v: other logits", name, act)
			}
		}
		_, got, err := verify.Tensors(t.Context(), "new", blobOf(data))
		if err != nil {
			t.Fatal(err)
		}
		_, want, err := verify.Tensors(t.Context(), "old", blobOf(oldBytes))
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := verify.Compare(t.Context(), got, want, verify.Options{}); err != nil || rep.Worst() != nil {
			t.Errorf("%s: verify: %+v, %v", name, rep.Worst(), err)
		}
		_, back := make1("version: 1\nname: back\nsources:\n  base: {gguf: \"" + res.Outputs[0].Path + "\"}\nsteps:\n  - reorder: {experts: restore}\n  - reorder: {experts: last}\n" +
			"outputs:\n  - {format: gguf, file: out.gguf}\n")
		if !bytes.Equal(back, oldBytes) {
			t.Errorf("%s: restored it is another file", name)
		}
	}
	// The hottest expert of layer 1 in the trace comes first.
	res, _ := make1(strings.NewReplacer("DIR", dir, "USE", file(t, "x.trace", traceOf(t))).Replace(useRecipe))
	from, _, err := order.From(openGGUF(t, res.Outputs[0].Path).Meta)
	if err != nil || from[8] != (3+5)%8 && from[8] != (3+6)%8 {
		t.Errorf("%v, %v", from, err)
	}
	// Shards are compared by the numbers of the whole.
	text := strings.NewReplacer("DIR", dir, "USE", matrix, "file: out.gguf}\ngates:\n  - tensors: {min-snr-db: 30}\n", "file: out.gguf, split-max-tensors: 20}\n").Replace(useRecipe)
	if res, _ := make1(text); len(res.Outputs) < 2 {
		t.Error("not split")
	} else if !bytes.Equal(logitsOf(t, res.Outputs[0].Path, infer.Exact), logitsOf(t, old.Outputs[0].Path, infer.Exact)) {
		t.Error("shards give other logits")
	}
}

// sourced is a step with its sources at hand.
type sourced struct {
	step    pipeline.SourceReader
	sources []*pipeline.Source
}

func (b sourced) Name() string { return b.step.Name() }

func (b sourced) Plan(ctx context.Context, in *model.Model) (*model.Model, error) {
	return b.step.PlanWith(ctx, in, b.sources)
}

// TestReorderByUseStage holds the step against the suite of all stages.
func TestReorderByUseStage(t *testing.T) {
	by := func(text string) func() (pipeline.Stage, error) {
		return func() (pipeline.Stage, error) {
			s, ok := reorder.New(recipes.Reorder{Experts: "last", By: "use"}).(pipeline.SourceReader)
			if !ok {
				return nil, errors.New("the step reads no sources")
			}
			return sourced{s, []*pipeline.Source{{Name: "use", Content: tensor.BytesBlob("use", []byte(text))}}}, nil
		}
	}
	trace := traceOf(t)
	stagetest.Run(t, stagetest.Case{New: by(trace), Other: by(strings.ReplaceAll(trace, "\t1\t4,5\n", "\t1\t6,7\n")), Model: "stories-moe", Changes: true})
}

func TestReorderByUseRefuses(t *testing.T) {
	dir := folder(t, "stories-moe")
	presets := filepath.Join(testdata, "convert/presets")
	legacy, err := filepath.Abs(presets + "/stories-moe.imatrix.dat")
	if err != nil {
		t.Fatal(err)
	}
	good, err := filepath.Abs(presets + "/stories-moe.imatrix.gguf")
	if err != nil {
		t.Fatal(err)
	}
	trace := traceOf(t)
	for name, c := range map[string]struct {
		use  string
		edit [2]string
		want error
		say  string
	}{
		"the older format":        {legacy, [2]string{}, reorder.ErrUse, "GGUF format"},
		"a trace of another":      {file(t, "a", strings.Replace(trace, "experts 8", "experts 9", 1)), [2]string{}, order.ErrOrder, "9 counts"},
		"a trace of more layers":  {file(t, "b", strings.NewReplacer("layers 0-4", "layers 1-5", "\t0\t", "\t5\t").Replace(trace)), [2]string{}, nil, "source"},
		"no trace":                {file(t, "c", "hello, world"), [2]string{}, nil, "use"},
		"a matrix for quantizing": {good, [2]string{"  - reorder: {experts: last, by: use}\n", "  - convert: {outtype: f16}\n  - reorder: {experts: last, by: use}\n  - quantize: {type: Q8_0, imatrix: use, fallback: F16}\n"}, quantize.ErrImatrixFit, "put reorder behind quantize"},
	} {
		text := useRecipe
		if c.edit[0] != "" {
			text = strings.Replace(text, "  - quantize: {type: Q8_0, fallback: F16}\n", "", 1)
			text = strings.Replace(text, c.edit[0], c.edit[1], 1)
		}
		_, err := build1(t.Context(), t, strings.NewReplacer("DIR", dir, "USE", c.use).Replace(text), sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()})
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

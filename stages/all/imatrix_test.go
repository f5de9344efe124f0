package all_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/hub"
	"quern/model"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/quantize"
	"quern/stages/source"
	"quern/stages/stagetest"
	"quern/tensor"
)

// bound is a stage with its sources at hand.
type bound struct {
	*quantize.Stage
	sources []*pipeline.Source
}

func (b bound) Plan(ctx context.Context, in *model.Model) (*model.Model, error) {
	return b.PlanWith(ctx, in, nil)
}

func (b bound) PlanWith(ctx context.Context, in *model.Model, _ []*pipeline.Source) (*model.Model, error) {
	return b.Stage.PlanWith(ctx, in, b.sources)
}

// TestImatrixStage holds the weighted step against the suite of all stages.
func TestImatrixStage(t *testing.T) {
	matrix := func(change int) func() (pipeline.Stage, error) {
		return func() (pipeline.Stage, error) {
			b, err := os.ReadFile(testdata + "/convert/presets/stories-moe.imatrix.dat")
			if err != nil {
				return nil, err
			}
			// Values of the first entry, blk.0.attn_k.weight.
			at := 4 + 4 + len("blk.0.attn_k.weight") + 8
			for i := range change {
				copy(b[at+4*i:], []byte{0, 0, 0, 0x44}) // 512
			}
			s, err := quantize.New(recipes.Quantize{Type: "Q4_0", Fallback: "F16", Imatrix: "im"})
			return bound{s, []*pipeline.Source{{Name: "im", Content: tensor.BytesBlob("im", b)}}}, err
		}
	}
	stagetest.Run(t, stagetest.Case{New: matrix(0), Other: matrix(20), Model: "stories-moe", Changes: true})
}

// TestImatrixSources reads a matrix from each kind of source and gets the file
// that llama-quantize wrote; what was read is on record.
func TestImatrixSources(t *testing.T) {
	dir := folder(t, "stories-moe")
	presets, err := filepath.Abs(filepath.Join(testdata, "convert/presets"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(presets)))
	defer server.Close()
	want := map[string]string{}
	for _, r := range presetRuns(t, "stories-moe") {
		if r.FType == "Q4_K_M" && r.Imatrix != "" {
			want[r.Imatrix] = r.SHA256
		}
	}
	const name = "stories-moe.imatrix"
	for _, c := range []struct{ source, file string }{
		{fmt.Sprintf("{file: %q}", presets+"/"+name+".gguf"), name + ".gguf"},
		{fmt.Sprintf("{file: %q}", presets+"/"+name+".dat"), name + ".dat"},
		{fmt.Sprintf("{gguf: %q}", presets+"/"+name+".gguf"), name + ".gguf"},
		{fmt.Sprintf("{url: %s/%s.gguf}", server.URL, name), name + ".gguf"},
		{fmt.Sprintf("{url: %s/%s.dat}", server.URL, name), name + ".dat"},
	} {
		sum, ok := fileDigest(t, filepath.Join(presets, c.file))
		if !ok || want[c.file] == "" {
			t.Fatalf("no golden of %s", c.file)
		}
		for _, pin := range []string{"", sum.Hex()} {
			src := c.source
			if pin != "" {
				src = strings.TrimSuffix(src, "}") + ", sha256: " + pin + "}"
			}
			res, err := tryImatrix(t, dir, src, "preset: Q4_K_M, imatrix: im")
			if err != nil {
				t.Errorf("%s: %v", src, err)
				continue
			}
			if got := res.Outputs[0].SHA256.Hex(); got != want[c.file] {
				t.Errorf("%s: got %s, the real tool wrote %s", src, got, want[c.file])
			}
			rec := res.Sources[1]
			if rec.Name != "im" || len(rec.Files) != 1 || rec.Files[0].Path != c.file {
				t.Errorf("%s: recorded as %+v", src, rec)
			} else if got := rec.Files[0].SHA256; got != sum.Hex() && (pin != "" || !strings.Contains(src, "url")) {
				t.Errorf("%s: recorded with digest %q", src, got)
			}
		}
		if _, err := tryImatrix(t, dir, strings.TrimSuffix(c.source, "}")+", sha256: "+strings.Repeat("0f", 32)+"}", "preset: Q4_K_M, imatrix: im"); !errors.Is(err, pipeline.ErrSource) {
			t.Errorf("%s with another digest: %v", c.source, err)
		}
	}
}

// TestImatrixFaults: whose fault it is, and where.
func TestImatrixFaults(t *testing.T) {
	dir := folder(t, "stories-moe")
	presets := testdata + "/convert/presets/"
	bad := filepath.Join(t.TempDir(), "bad.dat")
	if err := os.WriteFile(bad, []byte("no matrix at all"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		source, step string
		err          error
		says         string
	}{
		"of another model": {fmt.Sprintf("{file: %q}", presets+"stories-wide.imatrix.gguf"), "preset: Q4_K_M, imatrix: im", pipeline.ErrRecipe, "recipe.yaml:7:5: quantize: "},
		"no matrix":        {fmt.Sprintf("{file: %q}", bad), "preset: Q4_K_M, imatrix: im", pipeline.ErrSource, "bad.dat"},
		"a model":          {fmt.Sprintf("{dir: %q}", dir), "preset: Q4_K_M, imatrix: im", pipeline.ErrRecipe, "source im is a model"},
		"the base":         {"", "preset: Q4_K_M, imatrix: base", pipeline.ErrRecipe, "source base is a model"},
	} {
		_, err := tryImatrix(t, dir, c.source, c.step)
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, c.err, c.says)
		}
	}
}

// tryImatrix builds a model with a source called im and one quantize step.
func tryImatrix(t *testing.T, dir, src, step string) (*pipeline.Result, error) {
	t.Helper()
	text := fmt.Sprintf("version: 1\nname: x\nsources:\n  base: {dir: %q}\n", dir)
	if src != "" {
		text += "  im: " + src + "\n"
	}
	text += "steps:\n  - quantize: {" + step + "}\noutputs:\n  - {format: gguf, file: out.gguf}\n"
	r, err := recipes.Parse("recipe.yaml", []byte(text), recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := hub.New(hub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, source.Env{Hub: source.FromHub(client, nil)})
	if err != nil {
		t.Fatal(err)
	}
	return pipeline.Build(context.Background(), prj, pipeline.BuildOptions{OutDir: t.TempDir()})
}

// TestImatrixInTheStore: a build whose matrix is the same reads no weights; one
// whose matrix changed in one entry makes one tensor.
func TestImatrixInTheStore(t *testing.T) {
	b := newBench(t)
	matrix, err := os.ReadFile(testdata + "/convert/presets/stories-wide.imatrix.dat")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "x.dat")
	write := func() {
		if err := os.WriteFile(file, matrix, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	text := strings.Replace(mixed, "sources:\n", fmt.Sprintf("sources:\n  im: {file: %q}\n", file), 1)
	text = strings.Replace(text, "type: Q8_0", "type: Q4_0, imatrix: im", 1)
	first := b.build(text)
	if again := b.build(text); again.Stats.SourceBytes != 0 || again.Outputs[0].SHA256 != first.Outputs[0].SHA256 {
		t.Errorf("the second build read %d bytes of weights", again.Stats.SourceBytes)
	}
	// The first value of the first entry, blk.0.attn_k.weight.
	matrix[4+4+len("blk.0.attn_k.weight")+8+3] ^= 1
	write()
	res := b.build(text)
	if res.Outputs[0].Made != 1 || res.Outputs[0].SHA256 == first.Outputs[0].SHA256 {
		t.Errorf("one entry changed: %d tensors made", res.Outputs[0].Made)
	}
}

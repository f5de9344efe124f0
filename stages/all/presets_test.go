package all_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/source"
)

// presetRun is what the real llama-quantize made of a model for a file type,
// with or without an importance matrix.
type presetRun struct {
	FType   string
	Imatrix string
	SHA256  string
	Error   string
}

func presetRuns(t *testing.T, model string) []presetRun {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testdata, "convert/presets", model+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Runs []presetRun }
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Runs
}

// recipe is the text of a recipe for a run; the real ones started from convert_hf_to_gguf.py
// --outtype f16, in the matrix's own folder.
func (r presetRun) recipe(dir string) string {
	text := fmt.Sprintf("version: 1\nname: golden\nsources:\n  base: {dir: %q}\n", dir)
	step := "preset: " + r.FType
	if r.Imatrix != "" {
		text += fmt.Sprintf("  im: {file: %q}\n", testdata+"/convert/presets/"+r.Imatrix)
		step += ", imatrix: im"
	}
	return text + fmt.Sprintf("steps:\n  - convert: {outtype: f16}\n  - quantize: {%s}\noutputs:\n  - {format: gguf, file: out.gguf}\n", step)
}

// tryText builds a recipe whose paths start at this package's folder.
func tryText(t *testing.T, text string, opt pipeline.BuildOptions) (*pipeline.Result, error) {
	t.Helper()
	r, err := recipes.Parse("recipe.yaml", []byte(text), recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, source.Env{})
	if err != nil {
		t.Fatal(err)
	}
	opt.OutDir = t.TempDir()
	return pipeline.Build(context.Background(), prj, opt)
}

// TestPresets builds what the real llama-quantize wrote for every preset, plain
// and with an importance matrix of either format, and compares whole files.
// Where the real tool fails, this one must.
func TestPresets(t *testing.T) {
	for _, model := range []string{"stories-wide", "stories-moe"} {
		dir := folder(t, model)
		plain, weighted := 0, 0
		for _, r := range presetRuns(t, model) {
			if !slices.Contains(recipes.Presets(), r.FType) {
				t.Errorf("%s is no preset here", r.FType)
				continue
			}
			switch {
			case r.Error != "":
			case r.Imatrix == "":
				plain++
			default:
				weighted++
			}
			t.Run(strings.TrimSpace(fmt.Sprint(model, " ", r.FType, " ", r.Imatrix)), func(t *testing.T) {
				t.Parallel()
				res, err := tryText(t, r.recipe(dir), pipeline.BuildOptions{})
				if r.Error != "" {
					if err == nil {
						t.Errorf("the real tool says %q, this one builds", r.Error)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := res.Outputs[0].SHA256.Hex(); got != r.SHA256 {
					t.Errorf("got %s, the real tool wrote %s", got, r.SHA256)
				}
			})
		}
		if plain < 25 || weighted < 36 {
			t.Errorf("%s: only %d presets compared, and %d with an importance matrix", model, plain, weighted)
		}
	}
}

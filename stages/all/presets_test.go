package all_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"quern/pipeline"
	"quern/recipes"
)

// TestPresets builds what the real llama-quantize wrote for every preset that
// needs no importance matrix and compares whole files.
func TestPresets(t *testing.T) {
	for _, model := range []string{"stories-wide", "stories-moe"} {
		dir := folder(t, model)
		b, err := os.ReadFile(filepath.Join(testdata, "convert/presets", model+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Runs []struct {
				FType   string
				Imatrix string
				SHA256  string
				Error   string
			}
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		done := map[string]bool{}
		for _, r := range doc.Runs {
			if r.Imatrix != "" || r.Error != "" || !slices.Contains(recipes.Presets(), r.FType) {
				continue
			}
			done[r.FType] = true
			t.Run(model+" "+r.FType, func(t *testing.T) {
				path := recipeFor(t, dir, run{Tool: "llama-quantize", Args: []string{r.FType}})
				_, res := build(t, path, pipeline.BuildOptions{})
				if got := res.Outputs[0].SHA256.Hex(); got != r.SHA256 {
					t.Errorf("got %s, the real tool wrote %s", got, r.SHA256)
				}
			})
		}
		if len(done) < 25 {
			t.Errorf("%s: only %d presets compared: %s", model, len(done), fmt.Sprint(done))
		}
	}
}

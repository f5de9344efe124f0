package all_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/pipeline"
	infer "quern/runtime"
	"quern/runtime/load"
)

// TestCactGroups: with every group size the archives are the exporter's, to the byte.
func TestCactGroups(t *testing.T) {
	var want map[string]string
	if err := json.Unmarshal(cactFile(t, "groups.json"), &want); err != nil || len(want) != 8 {
		t.Fatal(err, len(want))
	}
	for key, sum := range want {
		name, group, _ := strings.Cut(key, " ")
		tokenizer := map[string]string{"needle3-a": "needle3-dummy.model", "needle3-b": "needle3-plain.model"}[name]
		recipe := groupRecipe(t, name, tokenizer, fmt.Sprintf("{type: CQ4, group: %s}", group))
		_, res := build(t, recipe, pipeline.BuildOptions{})
		if got := res.Outputs[0].SHA256.Hex(); got != sum {
			t.Errorf("%s: %s, want %s", key, got, sum)
		}
	}
}

// TestCactWidths: an archive of every width and group runs, and a finer width is
// nearer to the checkpoint.
func TestCactWidths(t *testing.T) {
	tokens := []int32{2, 5, 100, 9, 33, 200}
	float := lastLogits(t, filepath.Join(testdata, "cact", "needle3-a.safetensors"), tokens)
	for _, group := range []int{32, 64, 128, 256} {
		last := 1e9
		for _, width := range []string{"1", "1.58", "2", "3", "4"} {
			recipe := groupRecipe(t, "needle3-a", "needle3-dummy.model", fmt.Sprintf("{type: CQ%s, group: %d}", width, group))
			out, _ := build(t, recipe, pipeline.BuildOptions{})
			got := lastLogits(t, filepath.Join(out, "x.cact"), tokens)
			var far, all float64
			for i, v := range float {
				if v > -1e30 {
					far += float64(v-got[i]) * float64(v-got[i])
					all += float64(v) * float64(v)
				}
			}
			if far == 0 || (width == "4" || width == "3") && far >= last {
				t.Errorf("%s bits in groups of %d: off by %.3g of %.3g, %.3g with less", width, group, far, all, last)
			}
			last = far
		}
	}
}

func groupRecipe(t *testing.T, base, tokenizer, quantize string) string {
	t.Helper()
	abs := func(name string) string {
		p, err := filepath.Abs(filepath.Join(testdata, "cact", name))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	text := "version: 1\nname: x\nsources:\n  base: {file: '" + abs(base+".safetensors") + "'}\n  tokenizer: {file: '" + abs(tokenizer) + "'}\n" +
		"steps:\n  - quantize: " + quantize + "\noutputs:\n  - {format: cact, generation: 3, file: x.cact}\n"
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func lastLogits(t *testing.T, file string, tokens []int32) []float32 {
	t.Helper()
	m, err := load.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSession(infer.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := infer.Last(context.Background(), s, tokens, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), out...)
}

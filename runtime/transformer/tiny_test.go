package transformer_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"quern/internal/testmodel"
	"quern/model"
	"quern/model/modeltest"
	infer "quern/runtime"
	"quern/runtime/transformer"
)

// scaled is modeltest.Scaled.
func scaled(t *testing.T, name string, changes map[string]json.RawMessage, cut int) *modeltest.Files {
	t.Helper()
	files, err := modeltest.Scaled(t.Context(), name, changes, cut)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestTinyModelsGiveTheirPeersLogits compares every architecture with
// transformers and llama.cpp.
func TestTinyModelsGiveTheirPeersLogits(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(testmodel.Root(), "golden/runtime/tiny-logits.json"))
	if err != nil {
		t.Fatal(err)
	}
	var goldens map[string]modeltest.Golden
	if err := json.Unmarshal(b, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens) < 15 {
		t.Fatalf("only %d goldens", len(goldens))
	}
	for name, g := range goldens {
		files := scaled(t, g.Model, g.Config, 0)
		if g.IDs[len(g.IDs)-1] > 100000 {
			// Large tokenizers take long to read, and ids are all that is needed.
			delete(files.Files, "tokenizer.json")
		}
		h, err := model.LoadHF(t.Context(), files, model.HFOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := transformer.FromHF(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.NewSession(infer.SessionOptions{Context: 64})
		if err != nil {
			t.Fatal(err)
		}
		var hf, cpp float64
		row := 0
		err = s.Eval(t.Context(), g.Tokens, g.Places, func(_ int, l []float32) error {
			for j, id := range g.IDs {
				hf = math.Max(hf, math.Abs(float64(l[id])-float64(g.Transformers[row][j])))
				cpp = math.Max(cpp, math.Abs(float64(l[id])-float64(g.Llama[row][j])))
			}
			row++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: transformers %.2g, llama.cpp %.2g of the largest logit", name, hf/g.Largest, cpp/g.Largest)
		if !(hf/g.Largest <= 1e-4 && cpp/g.Largest <= 1e-4) || row != len(g.Places) {
			t.Errorf("%s: logits differ by %g from transformers and %g from llama.cpp, over a largest of %g", name, hf, cpp, g.Largest)
		}
	}
}

package transformer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"quern/internal/testmodel"
	"quern/model"
	"quern/model/modeltest"
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
		hf, cpp := apartFrom(t, g, m, g.Transformers), apartFrom(t, g, m, g.Llama)
		t.Logf("%s: transformers %.2g, llama.cpp %.2g of the largest logit", name, hf, cpp)
		if !(hf <= peerDistance && cpp <= llamaDistance(g)) {
			t.Errorf("%s: logits are %.2g of the largest from those of transformers, %.2g from those of llama.cpp", name, hf, cpp)
		}
	}
}

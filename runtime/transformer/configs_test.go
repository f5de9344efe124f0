package transformer_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/internal/testmodel"
	"quern/model"
	"quern/model/convert"
	"quern/model/modeltest"
	infer "quern/runtime"
	"quern/runtime/transformer"
	"quern/tensor"
)

// TestSettingsGiveTheirPeersLogits compares unusual settings of a config with
// transformers, run as a folder, and with llama.cpp, run as a file, where GGUF can
// say them (interop/make_configs.py).
func TestSettingsGiveTheirPeersLogits(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(testmodel.Root(), "golden/runtime/configs.json"))
	if err != nil {
		t.Fatal(err)
	}
	var goldens map[string]modeltest.Golden
	if err := json.Unmarshal(b, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens) < 81 {
		t.Fatalf("only %d goldens", len(goldens))
	}
	files := 0
	for name, g := range goldens {
		h := ofGolden(t, g)
		m, err := transformer.FromHF(t.Context(), h)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := apartFrom(t, g, m, g.Transformers); !(d <= peerDistance) {
			t.Errorf("%s: the folder's logits are %.2g of the largest from those of transformers", name, d)
		}
		if g.Llama == nil {
			continue
		}
		files++
		f, err := convert.ToGGUF(t.Context(), h, convert.Options{OutType: "f32", WithoutTokenizer: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if strings.HasPrefix(name, "longrope") {
			f = withFactors(t, f, g)
		}
		if m, err = transformer.FromGGUF(t.Context(), f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := apartFrom(t, g, m, g.Llama); !(d <= llamaDistance(g)) {
			t.Errorf("%s: the file's logits are %.2g of the largest from those of llama.cpp", name, d)
		}
	}
	if files < 20 {
		t.Errorf("only %d files", files)
	}
}

// ofGolden is the folder that a golden was made of, without a tokenizer.
func ofGolden(t *testing.T, g modeltest.Golden) *model.Model {
	t.Helper()
	files := scaled(t, g.Model, g.Config, g.Cut)
	for name := range files.Files {
		if strings.HasPrefix(name, "token") || name == "added_tokens.json" {
			delete(files.Files, name)
		}
	}
	h, err := model.LoadHF(t.Context(), files, model.HFOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// peerDistance is how far logits may be from a peer's, as a part of the largest.
const peerDistance = 1e-5

// llamaDistance is that from llama.cpp, which takes GELU from a table of halves.
func llamaDistance(g modeltest.Golden) float64 {
	if strings.HasPrefix(g.Model, "tiny-gemma") {
		return 1e-4
	}
	return peerDistance
}

// apartFrom is the largest difference of the logits that a model gives from rows of a
// golden, as a part of the largest logit.
func apartFrom(t *testing.T, g modeltest.Golden, m *transformer.Model, want [][]float32) float64 {
	t.Helper()
	// What goes by the context goes by the text.
	s, err := m.NewSession(infer.SessionOptions{Context: len(g.Tokens)})
	if err != nil {
		t.Fatal(err)
	}
	d, row := 0.0, 0
	err = s.Eval(t.Context(), g.Tokens, g.Places, func(_ int, l []float32) error {
		for j, id := range g.IDs {
			d = math.Max(d, math.Abs(float64(l[id])-float64(want[row][j])))
		}
		row++
		return nil
	})
	if err != nil || row != len(g.Places) {
		t.Fatalf("%d rows, %v", row, err)
	}
	return d / g.Largest
}

// withFactors adds the factors of longrope as files for llama.cpp have them.
func withFactors(t *testing.T, f *model.Model, g modeltest.Golden) *model.Model {
	t.Helper()
	var scaling struct {
		Long  []float32 `json:"long_factor"`
		Short []float32 `json:"short_factor"`
	}
	var original, longest float64
	for key, to := range map[string]any{"rope_scaling": &scaling, "original_max_position_embeddings": &original, "max_position_embeddings": &longest} {
		if err := json.Unmarshal(g.Config[key], to); err != nil {
			t.Fatal(err)
		}
	}
	tensors := f.Tensors
	for name, v := range map[string][]float32{"long": scaling.Long, "short": scaling.Short} {
		x := &tensor.Tensor{Name: "rope_factors_" + name + ".weight", Type: tensor.F32, Shape: tensor.Shape{int64(len(v))}}
		x.Src = &tensor.Section{Blob: tensor.BytesBlob(name, modeltest.Float32s(v)), RowBytes: x.RowBytes()}
		tensors = append(tensors, x)
	}
	meta := f.Meta.Clone()
	meta.Set("llama.rope.scaling.original_context_length", gguf.Scalar(uint32(original)))
	meta.Set("llama.rope.scaling.attn_factor", gguf.Scalar(float32(math.Sqrt(1+math.Log(longest/original)/math.Log(original)))))
	return f.WithTensors(tensors).WithMeta(meta)
}

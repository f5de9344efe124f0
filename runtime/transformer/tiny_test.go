package transformer_test

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/formats/safetensors"
	"quern/internal/testmodel"
	"quern/model"
	"quern/model/modeltest"
	infer "quern/runtime"
	"quern/runtime/transformer"
	"quern/tensor"
)

// tinyGolden is an entry of testdata/golden/runtime/tiny-logits.json, see
// interop/make_logits.py.
type tinyGolden struct {
	Model        string                     `json:"model"`
	Config       map[string]json.RawMessage `json:"config"`
	Tokens       []int32                    `json:"tokens"`
	Places       []int                      `json:"places"`
	IDs          []int                      `json:"ids"`
	Largest      float64                    `json:"largest"`
	Transformers [][]float32                `json:"transformers"`
	Llama        [][]float32                `json:"llama.cpp"`
}

// scaled is a tiny model as the goldens have it: every weight is float32 and 8
// times what its description says, and settings of its config are changed.
func scaled(t *testing.T, name string, changes map[string]json.RawMessage) *modeltest.Files {
	t.Helper()
	files, err := modeltest.Build(name)
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range files.Files {
		if !strings.HasSuffix(file, ".safetensors") {
			continue
		}
		f, err := safetensors.Open(t.Context(), file, tensor.BytesBlob(file, b), safetensors.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var list []testmodel.Tensor
		for _, x := range f.Tensors {
			n, err := x.Shape.Values()
			if err != nil {
				t.Fatal(err)
			}
			v := testmodel.Values(x.Name, int(n))
			data := make([]byte, 0, 4*len(v))
			for _, w := range v {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(8*w))
			}
			list = append(list, testmodel.Tensor{Name: x.Name, DType: "F32", Shape: x.Shape, Data: data})
		}
		if files.Files[file], err = testmodel.Safetensors(list); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(files.Files["config.json"], &all); err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, changes)
	if files.Files["config.json"], err = json.Marshal(all); err != nil {
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
	var goldens map[string]tinyGolden
	if err := json.Unmarshal(b, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens) < 15 {
		t.Fatalf("only %d goldens", len(goldens))
	}
	for name, g := range goldens {
		files := scaled(t, g.Model, g.Config)
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

package transformer_test

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	Cut          int                        `json:"cut"` // rows of the vocabulary that are left; 0 for all
}

var models sync.Map // of files by name

// built is modeltest.Build, which is slow for large vocabularies, once for each
// name. The files may be replaced, not changed.
func built(name string) (*modeltest.Files, error) {
	if m, ok := models.Load(name); ok {
		return modeltest.New(name, maps.Clone(m.(map[string][]byte))), nil
	}
	f, err := modeltest.Build(name)
	if err == nil {
		models.Store(name, maps.Clone(f.Files))
	}
	return f, err
}

// scaled is a tiny model as the goldens have it: every weight is float32 and 8
// times what its description says, settings of its config are changed, and of a
// large vocabulary only cut rows are left; 0 for all.
func scaled(t *testing.T, name string, changes map[string]json.RawMessage, cut int) *modeltest.Files {
	t.Helper()
	files, err := built(name)
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
			shape := slices.Clone(x.Shape)
			if cut > 0 && shape[0] > 100000 {
				shape[0] = int64(cut)
			}
			n, err := shape.Values()
			if err != nil {
				t.Fatal(err)
			}
			v := testmodel.Values(x.Name, int(n))
			for i := range v {
				v[i] *= 8
			}
			list = append(list, testmodel.Tensor{Name: x.Name, DType: "F32", Shape: shape, Data: f32Bytes(v)})
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
	if cut > 0 {
		all["vocab_size"] = json.RawMessage(strconv.Itoa(cut))
	}
	if files.Files["config.json"], err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	return files
}

func f32Bytes(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(w))
	}
	return b
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

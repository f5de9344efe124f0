package modeltest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"quern/formats/safetensors"
	"quern/internal/testmodel"
	"quern/tensor"
)

// Golden is an entry of testdata/golden/runtime/tiny-logits.json or configs.json, see
// interop/make_logits.py and interop/make_configs.py.
type Golden struct {
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

// Scaled is a tiny model as the goldens have it: every weight is float32 and 8
// times what its description says, settings of its config are changed, and of a
// large vocabulary only cut rows are left; 0 for all.
func Scaled(ctx context.Context, name string, changes map[string]json.RawMessage, cut int) (*Files, error) {
	files, err := built(name)
	if err != nil {
		return nil, err
	}
	for file, b := range files.Files {
		if strings.HasSuffix(file, ".safetensors") {
			if files.Files[file], err = scaled(ctx, file, b, cut); err != nil {
				return nil, err
			}
		}
	}
	set := maps.Clone(changes)
	if cut > 0 {
		if set == nil {
			set = map[string]json.RawMessage{}
		}
		set["vocab_size"] = json.RawMessage(strconv.Itoa(cut))
	}
	files.Files["config.json"], err = changed(files.Files["config.json"], set)
	return files, err
}

// changed sets keys of a config, or of the text model's part of it.
func changed(config []byte, set map[string]json.RawMessage) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, err
	}
	if text, ok := all["text_config"]; ok {
		text, err := changed(text, set)
		if err != nil {
			return nil, err
		}
		all["text_config"] = text
	} else {
		maps.Copy(all, set)
	}
	return json.Marshal(all)
}

// scaled makes a file of weights anew.
func scaled(ctx context.Context, file string, b []byte, cut int) ([]byte, error) {
	f, err := safetensors.Open(ctx, file, tensor.BytesBlob(file, b), safetensors.Options{})
	if err != nil {
		return nil, err
	}
	var list []testmodel.Tensor
	for _, x := range f.Tensors {
		shape := slices.Clone(x.Shape)
		if cut > 0 && shape[0] > 100000 {
			shape[0] = int64(cut)
		}
		n, err := shape.Values()
		if err != nil {
			return nil, err
		}
		v := testmodel.Values(x.Name, int(n))
		for i := range v {
			v[i] = float32(v[i] * 8)
		}
		list = append(list, testmodel.Tensor{Name: x.Name, DType: "F32", Shape: shape, Data: Float32s(v)})
	}
	return testmodel.Safetensors(list)
}

// Float32s are the bytes of float32 values as files have them.
func Float32s(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(w))
	}
	return b
}

var models sync.Map // of files by name

// built is Build, which is slow for large vocabularies, once for each name. The
// files may be replaced, not changed.
func built(name string) (*Files, error) {
	if m, ok := models.Load(name); ok {
		return New(name, maps.Clone(m.(map[string][]byte))), nil
	}
	f, err := Build(name)
	if err == nil {
		models.Store(name, maps.Clone(f.Files))
	}
	return f, err
}

package convert

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/internal/testmodel"
	"quern/model"
	"quern/model/modeltest"
	"quern/tensor"
	"quern/tokenizer"
)

// toy is a small model that tests bend out of shape: hidden 16, two heads of 8,
// one KV head, feed-forward 24, one layer, the 512 tokens of the stories.
type toy struct {
	config  map[string]any
	tensors []testmodel.Tensor
	files   map[string][]byte
	family  model.Family // set when the toy borrows another family's tokenizer
}

func newToy(t *testing.T) *toy {
	t.Helper()
	spm, err := os.ReadFile(filepath.Join(testmodel.Root(), "convert", "tokenizers", "stories.model"))
	if err != nil {
		t.Fatal(err)
	}
	m := &toy{files: map[string][]byte{"tokenizer.model": spm}, config: map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": 16, "intermediate_size": 24,
		"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 512,
		"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
	}}
	m.add("model.embed_tokens.weight", 512, 16)
	m.add("model.norm.weight", 16)
	l := "model.layers.0."
	m.add(l+"input_layernorm.weight", 16)
	m.add(l+"post_attention_layernorm.weight", 16)
	m.add(l+"self_attn.q_proj.weight", 16, 16)
	m.add(l+"self_attn.k_proj.weight", 8, 16)
	m.add(l+"self_attn.v_proj.weight", 8, 16)
	m.add(l+"self_attn.o_proj.weight", 16, 16)
	m.add(l+"mlp.gate_proj.weight", 24, 16)
	m.add(l+"mlp.up_proj.weight", 24, 16)
	m.add(l+"mlp.down_proj.weight", 16, 24)
	return m
}

func (m *toy) add(name string, shape ...int64) *testmodel.Tensor {
	m.tensors = append(m.tensors, testmodel.Tensor{Name: name, DType: "F32", Shape: shape})
	return &m.tensors[len(m.tensors)-1]
}

func (m *toy) at(t *testing.T, name string) *testmodel.Tensor {
	t.Helper()
	for i := range m.tensors {
		if m.tensors[i].Name == name {
			return &m.tensors[i]
		}
	}
	t.Fatalf("the toy has no %s", name)
	return nil
}

func (m *toy) drop(part string) {
	m.tensors = slices.DeleteFunc(m.tensors, func(x testmodel.Tensor) bool { return strings.Contains(x.Name, part) })
}

func (m *toy) build(t *testing.T) *modeltest.Files {
	t.Helper()
	var err error
	if m.files["config.json"] == nil {
		if m.files["config.json"], err = json.Marshal(m.config); err != nil {
			t.Fatal(err)
		}
	}
	if m.files["model.safetensors"], err = testmodel.Safetensors(m.tensors); err != nil {
		t.Fatal(err)
	}
	return modeltest.New("toy", m.files)
}

// convert loads and converts, with the error of either.
func (m *toy) convert(t *testing.T, opt Options) (*model.Model, error) {
	t.Helper()
	hf, err := model.LoadHF(t.Context(), m.build(t), model.HFOptions{})
	if err != nil {
		return nil, err
	}
	if m.family == "" {
		return ToGGUF(t.Context(), hf, opt)
	}
	// The family's own tokenizers are large; any will do here.
	cfg := tokenizerConfig(hf.Config)
	cfg.Architecture = "LlamaForCausalLM"
	vocab, err := tokenizer.Load(t.Context(), hf.Files, cfg, tokenizer.LoadOptions{})
	if err != nil {
		return nil, err
	}
	out, err := resolveOutType(opt.OutType, m.family, hf.Tensors)
	if err != nil {
		return nil, err
	}
	return assemble(t.Context(), hf, m.family, out, opt, vocab)
}

func (m *toy) mustConvert(t *testing.T, outType string) *model.Model {
	t.Helper()
	g, err := m.convert(t, Options{OutType: outType})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// f32s writes values for a Tensor's Data.
func f32s(x ...float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// values reads an F32 tensor.
func values(t *testing.T, x *tensor.Tensor) []float32 {
	t.Helper()
	if x == nil || x.Type != tensor.F32 {
		t.Fatalf("no F32 tensor: %v", x)
	}
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(t.Context(), b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// wantError fails unless err wraps the sentinel and says all of the words.
func wantError(t *testing.T, err, sentinel error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v with %q", sentinel, words)
	}
	if !errors.Is(err, sentinel) {
		t.Errorf("error %v does not wrap %v", err, sentinel)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func hasNote(m *model.Model, words ...string) error {
	for _, n := range m.Notes {
		all := true
		for _, w := range words {
			all = all && strings.Contains(n.String(), w)
		}
		if all {
			return nil
		}
	}
	return fmt.Errorf("no note says %q: %v", words, m.Notes)
}

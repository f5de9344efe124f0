package emit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"quern/formats/kmcu"
	"quern/model"
	"quern/recipes"
	"quern/stages/tie"
	"quern/tensor"
	"quern/tensor/view"
)

// minueza is the config of Felladrin/Minueza-32M-Base, as far as it matters.
const minueza = `{"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 312, "num_hidden_layers": 10,
"num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 1092, "vocab_size": 32002, "max_position_embeddings": 2048,
"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 32000,
"tie_word_embeddings": false, "torch_dtype": "float32"}`

// shaped makes a model of a config whose tensors have the right shapes and no
// data.
func shaped(t *testing.T, config string) *model.Model {
	t.Helper()
	cfg, err := model.ParseConfig("config.json", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	get := func(key string) int64 {
		n, err := cfg.Int(key)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	dim, ffn, vocab := get("hidden_size"), get("intermediate_size"), get("vocab_size")
	hd := dim / get("num_attention_heads")
	kv := get("num_key_value_heads") * hd
	var ts []*tensor.Tensor
	add := func(name string, shape ...int64) {
		ts = append(ts, &tensor.Tensor{Name: name + ".weight", Type: tensor.F32, Shape: shape,
			Src: tensor.SourceFunc(func(_ context.Context, dst []byte, _, _ int64) error { clear(dst); return nil })})
	}
	add("lm_head", vocab, dim)
	add("model.embed_tokens", vocab, dim)
	for i := range get("num_hidden_layers") {
		p := fmt.Sprintf("model.layers.%d.", i)
		add(p+"input_layernorm", dim)
		add(p+"mlp.down_proj", dim, ffn)
		add(p+"mlp.gate_proj", ffn, dim)
		add(p+"mlp.up_proj", ffn, dim)
		add(p+"post_attention_layernorm", dim)
		add(p+"self_attn.k_proj", kv, dim)
		add(p+"self_attn.o_proj", dim, dim)
		add(p+"self_attn.q_proj", dim, dim)
		add(p+"self_attn.v_proj", kv, dim)
	}
	add("model.norm", dim)
	return &model.Model{Form: model.HF, Name: "shaped", Config: cfg, Tensors: ts}
}

func TestMinueza(t *testing.T) {
	m := shaped(t, minueza)
	e := NewKMCU(recipes.Output{Format: "kmcu", File: "m.kmcu"})
	untied, err := e.Plan(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	forced, err := tie.New(recipes.TieHead{Force: true}).Plan(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	tied, err := e.Plan(context.Background(), forced)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		size int64
		mib  float64
	}{{"as it stands", untied.Size, 18.07}, {"tied", tied.Size, 12.58}} {
		if got := math.Round(float64(float64(c.size)/(1<<20)*100)) / 100; got != c.mib {
			t.Errorf("%s: %.2f MiB, want %.2f", c.name, got, c.mib)
		}
	}
	// A 16 MiB partition holds the second only, and the error says by how much.
	flash := NewKMCU(recipes.Output{Format: "kmcu", File: "m.kmcu", Flash: 16 << 20})
	_, err = flash.Plan(context.Background(), m)
	if !errors.Is(err, kmcu.ErrPartition) || !strings.Contains(err.Error(), fmt.Sprint(untied.Size-16<<20)) {
		t.Errorf("untied into 16 MiB: %v", err)
	}
	if _, err := flash.Plan(context.Background(), forced); err != nil {
		t.Errorf("tied into 16 MiB: %v", err)
	}
	if _, err := tie.New(recipes.TieHead{}).Plan(context.Background(), m); !errors.Is(err, tie.ErrTrained) {
		t.Errorf("tie-head without force: %v", err)
	}
}

func TestKMCURefuses(t *testing.T) {
	e := NewKMCU(recipes.Output{Format: "kmcu", File: "m.kmcu"})
	for _, c := range []struct {
		name   string
		config func(string) string
		model  func(*model.Model) *model.Model
		want   string
	}{
		{"another architecture", func(s string) string {
			return strings.NewReplacer("MistralForCausalLM", "Qwen2ForCausalLM", `"mistral"`, `"qwen2"`).Replace(s)
		}, nil, "Qwen2ForCausalLM"},
		{"another activation", func(s string) string { return strings.Replace(s, `"silu"`, `"gelu"`, 1) }, nil, "gelu"},
		{"EOS past the vocabulary", func(s string) string {
			return strings.Replace(s, `"eos_token_id": 32000`, `"eos_token_id": 4294967295`, 1)
		}, nil, "eos_token_id"},
		{"a bias", nil, func(m *model.Model) *model.Model {
			b := *m.Tensors[2]
			b.Name = "model.layers.0.self_attn.q_proj.bias"
			return m.WithTensors(append(append([]*tensor.Tensor(nil), m.Tensors...), &b))
		}, "self_attn.q_proj.bias"},
		{"a missing matrix", nil, func(m *model.Model) *model.Model { return m.WithTensors(m.Tensors[:len(m.Tensors)-2]) }, "L9.v"},
		{"a layer too many", nil, func(m *model.Model) *model.Model {
			x := *m.Tensors[3]
			x.Name = "model.layers.99.mlp.down_proj.weight"
			return m.WithTensors(append(append([]*tensor.Tensor(nil), m.Tensors...), &x))
		}, "model.layers.99"},
		{"GGUF form", nil, func(m *model.Model) *model.Model { c := *m; c.Form = model.GGUF; return &c }, "GGUF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := minueza
			if c.config != nil {
				cfg = c.config(cfg)
			}
			m := shaped(t, cfg)
			if c.model != nil {
				m = c.model(m)
			}
			_, err := e.Plan(context.Background(), m)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestKMCUWindow: a window that texts can be longer than is said to be lost.
func TestKMCUWindow(t *testing.T) {
	for _, c := range []struct {
		window string
		seq    int
		says   bool
	}{{"8", 16, true}, {"16", 16, false}, {"null", 16, false}, {"0", 16, false}} {
		m := shaped(t, strings.Replace(minueza, "{", `{"sliding_window": `+c.window+`, `, 1))
		out, err := NewKMCU(recipes.Output{Format: "kmcu", File: "m.kmcu", MaxSeq: int64(c.seq)}).Plan(context.Background(), m)
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(strings.Join(out.Notes, "\n"), "no sliding windows"); said != c.says {
			t.Errorf("window %s, max-seq %d: notes %q", c.window, c.seq, out.Notes)
		}
	}
}

// TestKMCUHeadOnly: a tied pair may be stored under either name; an untied head
// must be there.
func TestKMCUHeadOnly(t *testing.T) {
	e := NewKMCU(recipes.Output{Format: "kmcu", File: "m.kmcu"})
	without := func(m *model.Model, name string) *model.Model {
		return m.WithTensors(slices.DeleteFunc(slices.Clone(m.Tensors), func(t *tensor.Tensor) bool { return t.Name == name }))
	}
	tied := shaped(t, strings.Replace(minueza, `"tie_word_embeddings": false`, `"tie_word_embeddings": true`, 1))
	usual, err := e.Plan(context.Background(), without(tied, "lm_head.weight"))
	if err != nil {
		t.Fatal(err)
	}
	head, err := e.Plan(context.Background(), without(tied, "model.embed_tokens.weight"))
	if err != nil {
		t.Fatal(err)
	}
	if head.Size != usual.Size || string(head.Header) != string(usual.Header) || len(head.Notes) != 1 || !strings.Contains(head.Notes[0], "taken as the embedding") || len(usual.Notes) != 0 {
		t.Errorf("sizes %d and %d, notes %v and %v", head.Size, usual.Size, head.Notes, usual.Notes)
	}
	m := shaped(t, minueza)
	for _, name := range []string{"lm_head.weight", "model.embed_tokens.weight"} {
		if _, err := e.Plan(context.Background(), without(m, name)); !errors.Is(err, model.ErrTensors) {
			t.Errorf("untied, without %s: %v", name, err)
		}
	}
}

// TestOverflowingScale: a block whose scale does not fit fp16 is an error that
// names the tensor and the place, never an infinite scale.
func TestOverflowingScale(t *testing.T) {
	m := shaped(t, minueza)
	ts := append([]*tensor.Tensor(nil), m.Tensors...)
	down := 3 // model.layers.0.mlp.down_proj.weight
	ts[down] = ts[down].With(func(n *tensor.Tensor) {
		n.Src = tensor.SourceFunc(func(_ context.Context, dst []byte, first, rows int64) error {
			clear(dst)
			if first == 0 && len(dst) >= 8 {
				// 1e6 in float32: the block's scale is 125000, over fp16's 65504.
				copy(dst[4:8], []byte{0x00, 0x24, 0x74, 0x49})
			}
			return nil
		})
	})
	l, err := NewKMCU(recipes.Output{Format: "kmcu", File: "m.kmcu"}).Plan(context.Background(), m.WithTensors(ts))
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range l.Items {
		if it.Tensor.Name != "L0.down" {
			continue
		}
		buf := make([]byte, it.Tensor.RowBytes())
		err := it.Tensor.ReadRows(context.Background(), buf, 0, 1)
		if !errors.Is(err, view.ErrValue) || !strings.Contains(err.Error(), "row 0") {
			t.Errorf("got %v, want ErrValue with the row", err)
		}
		return
	}
	t.Error("there is no L0.down")
}

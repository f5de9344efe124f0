package all_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"quern/hub"
	"quern/hub/hubtest"
	"quern/pipeline"
	"quern/recipes"
	"quern/recipes/builtin"
	"quern/stages/all"
	"quern/stages/source"
)

// zeros is a file of nothing but zeros behind a header.
type zeros struct {
	head []byte
	size int64
}

func (z zeros) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), z.size-off))
	clear(p[:n])
	if off < int64(len(z.head)) {
		copy(p[:n], z.head[off:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestBuiltinSizes plans Minueza in its published shape: both files have the sizes
// that are told of them, and no weight is read.
func TestBuiltinSizes(t *testing.T) {
	const layers, dim, heads, kv, ffn, vocab = 10, 312, 12, 4, 1092, 32002
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header, at := map[string]entry{}, int64(0)
	add := func(name string, shape ...int64) {
		n := int64(4)
		for _, d := range shape {
			n *= d
		}
		header[name] = entry{"F32", shape, [2]int64{at, at + n}}
		at += n
	}
	add("model.embed_tokens.weight", vocab, dim)
	add("lm_head.weight", vocab, dim)
	add("model.norm.weight", dim)
	for i := range layers {
		l := fmt.Sprintf("model.layers.%d.", i)
		add(l+"input_layernorm.weight", dim)
		add(l+"post_attention_layernorm.weight", dim)
		add(l+"self_attn.q_proj.weight", dim, dim)
		add(l+"self_attn.k_proj.weight", dim/heads*kv, dim)
		add(l+"self_attn.v_proj.weight", dim/heads*kv, dim)
		add(l+"self_attn.o_proj.weight", dim, dim)
		add(l+"mlp.gate_proj.weight", ffn, dim)
		add(l+"mlp.up_proj.weight", ffn, dim)
		add(l+"mlp.down_proj.weight", dim, ffn)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	head := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	repo := hubtest.NewRepo("Felladrin/Minueza-32M-Base")
	repo.Commit(map[string]*hubtest.File{
		"config.json": hubtest.Git(`{"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 312, "num_hidden_layers": 10,
			"num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 1092, "vocab_size": 32002, "max_position_embeddings": 2048,
			"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 32000,
			"tie_word_embeddings": false, "torch_dtype": "float32"}`),
		"model.safetensors": hubtest.LFSReader(zeros{head, int64(len(head)) + at}, int64(len(head))+at),
	})
	h := hubtest.New(t, hubtest.Options{}, repo)
	client, err := hub.New(hub.Options{Endpoint: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"minueza-32m": "18.07", "minueza-32m-tied": "12.58"} {
		r, err := builtin.Parse(name, recipes.Options{})
		if err != nil {
			t.Fatal(err)
		}
		prj, err := all.Project(r, source.Env{Digests: &source.Digests{}, Hub: source.FromHub(client, nil)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := pipeline.NewPlan(t.Context(), prj, pipeline.PlanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		report, err := p.Report(t.Context(), nil, pipeline.EmitOptions{Jobs: 1})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%.2f", float64(report.Outputs[0].Size)/(1<<20)); got != want {
			t.Errorf("%s has %s MiB, want %s", name, got, want)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

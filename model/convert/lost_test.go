package convert

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"quern/model"
	"quern/model/modeltest"
)

// TestLostSettings: what a file will compute otherwise than its checkpoint is said.
func TestLostSettings(t *testing.T) {
	yarn := func(key string, v any) map[string]any {
		return map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, key: v}
	}
	for _, c := range []struct {
		class, kind string
		set         map[string]any
		want        string // empty for no note
	}{
		{"Llama", "llama", nil, ""},
		{"Llama", "llama", map[string]any{"hidden_act": "silu"}, ""},
		{"Llama", "llama", map[string]any{"hidden_act": "gelu"}, `hidden_act "gelu" is not carried over`},
		{"Llama", "llama", map[string]any{"sliding_window": 8}, ""},
		{"Mistral", "mistral", map[string]any{"sliding_window": 8}, "the sliding window of 8 is not carried over"},
		{"Mistral", "mistral", map[string]any{"sliding_window": nil}, ""},
		{"Mistral", "mistral", map[string]any{"sliding_window": 64}, ""},
		{"Qwen2", "qwen2", map[string]any{"sliding_window": 8}, ""},
		{"Qwen2", "qwen2", map[string]any{"sliding_window": 8, "use_sliding_window": true}, "the sliding window of 8"},
		{"Qwen2", "qwen2", map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}, `type "llama3" is not carried over`},
		{"Llama", "llama", map[string]any{"rope_scaling": yarn("beta_fast", 32.0)}, ""},
		{"Llama", "llama", map[string]any{"rope_scaling": yarn("beta_fast", 16.0)}, "YaRN's beta_fast is written, but llama.cpp takes 32"},
		{"Llama", "llama", map[string]any{"rope_scaling": yarn("beta_slow", 2.0)}, "YaRN's beta_slow is written, but llama.cpp takes 1"},
		{"Llama", "llama", map[string]any{"rope_scaling": yarn("attention_factor", 0.5)}, "YaRN's attention factor"},
		{"Llama", "llama", map[string]any{"rope_scaling": yarn("truncate", false)}, "YaRN's truncate"},
		{"Llama", "llama", map[string]any{"rope_scaling": yarn("truncate", true)}, ""},
	} {
		m := newToy(t)
		m.config["architectures"], m.config["model_type"], m.config["max_position_embeddings"] = []string{c.class + "ForCausalLM"}, c.kind, 64
		maps.Copy(m.config, c.set)
		var said []string
		for _, n := range m.mustConvert(t, "f32").Notes {
			if strings.Contains(n.Text, "not carried over") || strings.Contains(n.Text, "llama.cpp") {
				said = append(said, n.Text)
			}
		}
		if text := strings.Join(said, "\n"); (text == "") != (c.want == "") || !strings.Contains(text, c.want) || len(said) > 1 {
			t.Errorf("%s %v: notes %q, want %q", c.class, c.set, said, c.want)
		}
	}
}

// TestLostSettingsOfGemma3: kinds of layers and the scale of queries, which no key
// holds.
func TestLostSettingsOfGemma3(t *testing.T) {
	for _, c := range []struct {
		set  map[string]any
		want string
	}{
		{map[string]any{}, ""},
		{map[string]any{"sliding_window_pattern": 3}, "layer 2 is of kind \"full_attention\" by sliding_window_pattern"},
		{map[string]any{"layer_types": []string{"full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"}},
			"layer 0 is of kind \"full_attention\" by layer_types"},
		{map[string]any{"query_pre_attn_scalar": 64}, "query_pre_attn_scalar 64 is not carried over; the file will be run with 16"},
		{map[string]any{"query_pre_attn_scalar": nil}, "query_pre_attn_scalar 256"},
		{map[string]any{"hidden_activation": "gelu"}, `hidden_activation "gelu"`},
	} {
		g := convertTiny(t, "tiny-gemma3", c.set)
		var said []string
		for _, n := range g.Notes {
			if strings.Contains(n.Text, "not carried over") {
				said = append(said, n.Text)
			}
		}
		if text := strings.Join(said, "\n"); (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%v: notes %q, want %q", c.set, said, c.want)
		}
	}
	for _, c := range []struct {
		norm any
		note bool
	}{{true, false}, {false, true}, {nil, true}} {
		g := convertTiny(t, "tiny-qwen3moe", map[string]any{"norm_topk_prob": c.norm})
		if err := hasNote(g, "norm_topk_prob", "normalized"); (err == nil) != c.note {
			t.Errorf("norm_topk_prob %v: %v", c.norm, err)
		}
	}
}

// convertTiny converts a tiny model whose config is changed; a nil takes a key away.
func convertTiny(t *testing.T, name string, set map[string]any) *model.Model {
	t.Helper()
	files, err := modeltest.Build(name)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := json.Unmarshal(files.Files["config.json"], &config); err != nil {
		t.Fatal(err)
	}
	for k, v := range set {
		if config[k] = v; v == nil {
			delete(config, k)
		}
	}
	if files.Files["config.json"], err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	h, err := model.LoadHF(t.Context(), files, model.HFOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := ToGGUF(t.Context(), h, Options{WithoutTokenizer: true})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

package model

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"quern/internal/pyjson"
)

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := ParseConfig("config.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What transformers 4.57.6 fills in, from its classes: the values that a config
// without them converts with.
func TestClassDefaults(t *testing.T) {
	cases := []struct {
		modelType string
		want      map[string]string // effective value as shown; "absent" when there is no key
	}{
		{"llama", map[string]string{"num_hidden_layers": "32", "max_position_embeddings": "2048", "intermediate_size": "11008", "num_key_value_heads": "32", "head_dim": "128", "rms_norm_eps": "1e-6", "rope_theta": "10000.0", "vocab_size": "32000", "sliding_window": "absent", "tie_word_embeddings": "false"}},
		{"mistral", map[string]string{"num_key_value_heads": "8", "head_dim": "null", "max_position_embeddings": "131072", "sliding_window": "4096", "intermediate_size": "14336", "rope_theta": "10000.0", "rope_scaling": "absent"}},
		{"mixtral", map[string]string{"num_key_value_heads": "8", "head_dim": "null", "rms_norm_eps": "1e-5", "rope_theta": "1e6", "num_local_experts": "8", "num_experts_per_tok": "2", "sliding_window": "null"}},
		{"qwen2", map[string]string{"head_dim": "absent", "num_key_value_heads": "32", "vocab_size": "151936", "intermediate_size": "22016"}},
		{"qwen3", map[string]string{"head_dim": "128", "num_key_value_heads": "32", "max_position_embeddings": "32768"}},
		{"qwen3_moe", map[string]string{"head_dim": "absent", "hidden_size": "2048", "num_hidden_layers": "24", "num_experts": "128", "num_experts_per_tok": "8", "moe_intermediate_size": "768", "num_key_value_heads": "4"}},
		{"gemma3_text", map[string]string{"head_dim": "256", "num_attention_heads": "8", "num_key_value_heads": "4", "rope_theta": "1000000.0", "rope_local_base_freq": "10000.0", "sliding_window": "4096", "vocab_size": "262208", "tie_word_embeddings": "true", "sliding_window_pattern": "absent"}},
		{"gemma3", map[string]string{"head_dim": "256", "num_hidden_layers": "26", "hidden_size": "2304"}},
		{"no-such-class", map[string]string{"head_dim": "absent", "num_hidden_layers": "absent", "rope_theta": "absent"}},
	}
	for _, c := range cases {
		cfg := parse(t, `{"architectures":["X"],"model_type":"`+c.modelType+`"}`)
		for key, want := range c.want {
			got := "absent"
			if v, _, ok := cfg.Find(key); ok {
				got = pyjson.Show(v)
			}
			if got != want {
				t.Errorf("%s: %s is %s, want %s", c.modelType, key, got, want)
			}
		}
	}
}

// Nulls are values of their own, and classes treat them each in their way.
func TestNulls(t *testing.T) {
	for modelType, want := range map[string]string{"llama": "6", "mistral": "6", "qwen3": "6", "qwen3_moe": "null"} {
		c := parse(t, `{"model_type":"`+modelType+`","num_attention_heads":6,"num_key_value_heads":null}`)
		if v, _, _ := c.Find("num_key_value_heads"); pyjson.Show(v) != want {
			t.Errorf("%s: %s, want %s", modelType, pyjson.Show(v), want)
		}
	}
	c := parse(t, `{"model_type":"llama","hidden_size":70,"num_attention_heads":4,"head_dim":null}`)
	if n, err := c.Int("head_dim"); n != 17 || err != nil {
		t.Errorf("head_dim %d, %v, want 70 // 4", n, err)
	}
	// The first key that is present counts, even when it is null.
	if _, ok, err := parse(t, `{"a":null,"b":3}`).OptInt("a", "b"); ok || err != nil {
		t.Errorf("the null was passed over: %v %v", ok, err)
	}
}

// Configs that a class refuses are taken as they stand.
func TestRefusedConfigs(t *testing.T) {
	for _, more := range []string{
		`"rope_scaling":{"rope_type":"linear"}`,
		`"rope_scaling":{}`,
		`"rope_scaling":{"rope_type":"llama3","factor":8.0}`,
		`"rope_scaling":[1]`,
		`"num_attention_heads":0`,
		`"torch_dtype":"auto"`,
	} {
		c := parse(t, `{"model_type":"llama",`+more+`}`)
		if _, _, ok := c.Find("head_dim"); ok {
			t.Errorf("%s: class defaults were filled in", more)
		}
		if n := fmt.Sprint(c.Notes()); !strings.Contains(n, "refuses") {
			t.Errorf("%s: notes %s", more, n)
		}
	}
	for text, refused := range map[string]bool{
		`"num_hidden_layers":2,"layer_types":["full_attention"]`:                             true,
		`"num_hidden_layers":1,"layer_types":["sideways_attention"]`:                         true,
		`"num_hidden_layers":2,"layer_types":["full_attention","sliding_attention"]`:         false,
		`"rope_scaling":{"type":"yarn","factor":2.0},"max_position_embeddings":64`:           false,
		`"rope_scaling":{"rope_type":"made-up"},"torch_dtype":"bfloat16","dtype":"bfloat16"`: false,
	} {
		if _, _, ok := parse(t, `{"model_type":"qwen3",`+text+`}`).Find("head_dim"); ok == refused {
			t.Errorf("%s: refused %v, want %v", text, !ok, refused)
		}
	}
	for _, where := range []string{`"torch_dtype":"auto"`, `"text_config":{"torch_dtype":"auto"}`, `"vision_config":{"dtype":"auto"}`} {
		if _, _, ok := parse(t, `{"model_type":"gemma3",`+where+`}`).Find("head_dim"); ok {
			t.Errorf("%s: class defaults were filled in", where)
		}
	}
	// Gemma's class does not know the old key.
	if _, _, ok := parse(t, `{"model_type":"gemma3_text","rope_scaling":{"type":"linear","factor":8.0}}`).Find("head_dim"); ok {
		t.Error("gemma3_text takes rope_scaling.type")
	}
}

func TestTextConfig(t *testing.T) {
	c := parse(t, `{"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3","hidden_size":1,"extra":"root",
		"text_config":{"hidden_size":64,"num_attention_heads":2,"model_type":"gemma3_text"},"vision_config":{"hidden_size":9}}`)
	if n, _ := c.Int("hidden_size"); n != 64 {
		t.Errorf("hidden_size %d, want that of text_config", n)
	}
	if s, _, _ := c.OptString("extra"); s != "root" {
		t.Errorf("extra %q", s)
	}
	if c.Architecture() != "Gemma3ForConditionalGeneration" || c.ModelType() != "gemma3" {
		t.Errorf("%s %s", c.Architecture(), c.ModelType())
	}
	inner := parse(t, `{"architectures":["Outer"],"text_config":{"architectures":["Gemma3ForCausalLM"]}}`)
	if inner.Architecture() != "Gemma3ForCausalLM" {
		t.Errorf("architecture %s, want that of text_config", inner.Architecture())
	}
	d, err := c.With(Setting{"vocab_size", int64(100)}, Setting{"rms_norm_eps", 1e-5}, Setting{"tie", nil}, Setting{"name", "x"}, Setting{"flag", true})
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := d.Int("vocab_size"); n != 100 {
		t.Errorf("vocab_size %d after the change", n)
	}
	if n, _ := c.Int("vocab_size"); n != 262208 {
		t.Errorf("the original changed: %d", n)
	}
	if f, err := d.Float("rms_norm_eps"); f != 1e-5 || err != nil {
		t.Errorf("rms_norm_eps %g, %v", f, err)
	}
	if _, err := c.With(Setting{"x", struct{}{}}); !errors.Is(err, ErrConfig) {
		t.Errorf("a struct became JSON: %v", err)
	}
}

func TestSettings(t *testing.T) {
	for _, f := range []float64{0, 1, -2.5, 1e21, 1e-7, math.Inf(1), math.Inf(-1), math.NaN()} {
		c, err := parse(t, `{}`).With(Setting{"x", f})
		if err != nil {
			t.Fatal(err)
		}
		v, _ := c.Raw("x")
		n := v.(pyjson.Number)
		if n.IsInt() {
			t.Errorf("%g is spelled %s, a whole number", f, n)
		}
		if _, err := pyjson.Parse([]byte(n)); err != nil {
			t.Errorf("%g is spelled %s: %v", f, n, err)
		}
		if got := n.Float64(); got != f && !(math.IsNaN(got) && math.IsNaN(f)) {
			t.Errorf("%g comes back as %g", f, got)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for text, words := range map[string]string{
		`[]`:                        "want an object",
		`{"a":}`:                    "1:6",
		`{"architectures":"Llama"}`: "architectures is a string",
		`{"architectures":[1]}`:     "architectures holds a whole number",
		`{"text_config":[]}`:        "text_config is a list",
		"\xff":                      "UTF-8",
	} {
		_, err := ParseConfig("some/config.json", []byte(text))
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), words) || !strings.HasPrefix(err.Error(), "some/config.json: ") {
			t.Errorf("%s: error %v, want %q", text, err, words)
		}
	}
	c := parse(t, `{"s":"8","f":8.0,"neg":-1,"list":[1],"n":null,"b":1}`)
	check := func(err error, words string) {
		t.Helper()
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), words) {
			t.Errorf("error %v, want %q", err, words)
		}
	}
	_, err := c.Int("s")
	check(err, `config.json: bad model config: s is "8" (a string), want a whole number`)
	_, err = c.Int("f")
	check(err, "f is 8.0 (a number), want a whole number")
	_, err = c.Int("gone")
	check(err, "gone is missing")
	_, err = c.Int("gone", "lost")
	check(err, "none of gone, lost is there")
	_, err = c.Int("n")
	check(err, "n is missing")
	_, err = c.Size("neg")
	check(err, "neg is -1, want a number above 0")
	_, err = c.Float("list")
	check(err, "list is a list of 1")
	_, err = c.Bool("b", false)
	check(err, "want true or false")
	_, _, err = c.OptString("f")
	check(err, "want a string")
	_, err = c.Object("f")
	check(err, "want an object")
	if f, err := c.Float("f"); f != 8 || err != nil {
		t.Errorf("%g %v", f, err)
	}
}

func TestRope(t *testing.T) {
	cases := []struct {
		name, text         string
		theta, local       float64
		hasTheta, hasLocal bool
		typ                string
		factor             float64
	}{
		{"top", `"rope_theta":5.0`, 5, 0, true, false, "", 0},
		{"integer", `"rope_theta":5`, 5, 0, true, false, "", 0},
		{"old type", `"rope_theta":5.0,"rope_scaling":{"type":"linear","factor":2.0}`, 5, 0, true, false, "linear", 2},
		{"both types", `"rope_scaling":{"type":"linear","rope_type":"yarn","factor":2}`, 0, 0, false, false, "yarn", 2},
		{"nested wins", `"rope_theta":5.0,"rope_parameters":{"rope_theta":6.0,"rope_type":"default"}`, 6, 0, true, false, "default", 0},
		{"parameters before scaling", `"rope_scaling":{"type":"linear","factor":2.0},"rope_parameters":{"rope_theta":6.0}`, 6, 0, true, false, "", 0},
		{"null parameters", `"rope_theta":7.0,"rope_scaling":{"type":"linear"},"rope_parameters":null`, 7, 0, true, false, "", 0},
		{"layer types", `"rope_theta":9.0,"rope_parameters":{"full_attention":{"rope_theta":6.0,"rope_type":"linear","factor":8},"sliding_attention":{"rope_theta":3.0}}`, 6, 3, true, true, "linear", 8},
		{"local", `"rope_theta":5.0,"rope_local_base_freq":4.0`, 5, 4, true, true, "", 0},
		{"absent", `"x":1`, 0, 0, false, false, "", 0},
		{"other names", `"global_rope_theta":5.0,"swa_rope_theta":4.0`, 5, 4, true, true, "", 0},
	}
	for _, c := range cases {
		r, err := parse(t, `{`+c.text+`}`).Rope()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		f, _, _ := r.Float("factor")
		if r.Theta != c.theta || r.HasTheta != c.hasTheta || r.LocalTheta != c.local || r.HasLocalTheta != c.hasLocal || r.Type != c.typ || f != c.factor {
			t.Errorf("%s: %+v, factor %g", c.name, r, f)
		}
	}
	for _, bad := range []string{`"rope_theta":"x"`, `"rope_parameters":7`, `"rope_parameters":{"full_attention":1}`, `"rope_scaling":{"rope_type":3}`,
		`"rope_parameters":{"sliding_attention":[]}`, `"rope_parameters":{"sliding_attention":{"rope_theta":"x"}}`} {
		if _, err := parse(t, `{`+bad+`}`).Rope(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: error %v", bad, err)
		}
	}
	// In the class of Llama and Qwen the old key wins when both are there.
	r, err := parse(t, `{"model_type":"llama","rope_scaling":{"type":"linear","rope_type":"yarn","factor":2.0}}`).Rope()
	if err != nil || r.Type != "linear" {
		t.Errorf("%+v %v", r, err)
	}
}

func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"num_attention_heads":8,"rope_scaling":{"type":"linear","factor":2.0}}`,
		`{"model_type":"gemma3","text_config":{"layer_types":["full_attention"],"use_bidirectional_attention":true},"rope_parameters":{"full_attention":{}}}`,
		`{"model_type":"qwen3_moe","num_key_value_heads":null,"time_step_limit":[0.0,Infinity]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig("config.json", text)
		if err != nil {
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("error without ErrConfig: %v", err)
			}
			return
		}
		if _, err := c.Rope(); err != nil && !errors.Is(err, ErrConfig) {
			t.Fatalf("error without ErrConfig: %v", err)
		}
		m := &Model{Form: HF, Config: c}
		_, _ = m.Dims()
		if _, err := c.With(Setting{"vocab_size", 7}); err != nil {
			t.Fatal(err)
		}
	})
}

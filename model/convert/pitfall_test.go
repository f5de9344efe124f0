package convert

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/formats/safetensors"
	"quern/internal/pyjson"
	"quern/internal/testmodel"
	"quern/model"
	"quern/tensor"
	"quern/tokenizer"
)

// Rows of Q and K by the formula, in a case where heads, KV heads and their
// quotient all differ and in one where they hide the fault. Each row holds its
// own number.
func TestPermutedHeads(t *testing.T) {
	for _, c := range []struct{ heads, kv, dim int64 }{{8, 2, 4}, {4, 2, 4}, {2, 1, 8}} {
		m := newToy(t)
		m.config["num_attention_heads"], m.config["num_key_value_heads"], m.config["head_dim"] = c.heads, c.kv, c.dim
		m.config["attention_bias"] = true
		m.drop("self_attn")
		l := "model.layers.0.self_attn."
		m.add(l+"v_proj.weight", c.kv*c.dim, 16)
		m.add(l+"o_proj.weight", 16, c.heads*c.dim)
		for name, n := range map[string]int64{"q": c.heads, "k": c.kv} {
			var rows, bias []float32
			for r := range n * c.dim {
				bias = append(bias, float32(r))
				for range 16 {
					rows = append(rows, float32(r))
				}
			}
			m.add(l+name+"_proj.weight", n*c.dim, 16).Data = f32s(rows...)
			m.add(l+name+"_proj.bias", n*c.dim).Data = f32s(bias...)
		}
		g := m.mustConvert(t, "f32")
		for name, n := range map[string]int64{"q": c.heads, "k": c.kv} {
			w, b := values(t, g.Tensor("blk.0.attn_"+name+".weight")), values(t, g.Tensor("blk.0.attn_"+name+".bias"))
			for h := range n {
				for j := range c.dim / 2 {
					for s := range int64(2) {
						at, want := h*c.dim+2*j+s, float32(h*c.dim+s*c.dim/2+j)
						if w[at*16] != want || w[at*16+15] != want || b[at] != want {
							t.Errorf("%d/%d heads of %d: row %d of %s is %g, bias %g, want %g", c.heads, c.kv, c.dim, at, name, w[at*16], b[at], want)
						}
					}
				}
			}
		}
	}
}

// Families that rotate halves as checkpoints do keep their rows.
func TestNotPermuted(t *testing.T) {
	m := newToy(t)
	m.config["architectures"], m.config["model_type"] = []string{"Qwen2ForCausalLM"}, "qwen2"
	g := m.mustConvert(t, "f32")
	const name = "model.layers.0.self_attn.q_proj.weight"
	if !slices.Equal(values(t, g.Tensor("blk.0.attn_q.weight")), testmodel.Values(name, 256)) {
		t.Error("rows of a Qwen2 query were moved")
	}
}

// An extra constant of every layer is dropped by rule; an unknown tensor is an
// error that names all of them.
func TestExtraTensors(t *testing.T) {
	m := newToy(t)
	m.add("model.layers.0.self_attn.rotary_emb.inv_freq", 4)
	m.add("model.layers.0.self_attn.q_proj.input_scale", 1)
	g := m.mustConvert(t, "f32")
	if err := hasNote(g, "inv_freq", "left out"); err != nil {
		t.Error(err)
	}
	if err := hasNote(g, "input_scale", "left out"); err != nil {
		t.Error(err)
	}
	if len(g.Tensors) != 11 {
		t.Errorf("%d tensors", len(g.Tensors))
	}
	m.add("model.layers.0.self_attn.zoom.weight", 4)
	m.add("model.layers.1.mlp.up_proj.weight", 24, 16)
	m.add("adapter.weight", 4)
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrTensors, "3 tensors have no place in LlamaForCausalLM",
		"adapter.weight, model.layers.0.self_attn.zoom.weight, model.layers.1.mlp.up_proj.weight (the config has 1 layers)")
}

func TestMissingTensors(t *testing.T) {
	m := newToy(t)
	m.config["tie_word_embeddings"] = false
	m.drop("up_proj")
	m.drop("model.norm")
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrTensors, "3 tensors are missing: lm_head.weight, model.layers.0.mlp.up_proj.weight, model.norm.weight", "tie_word_embeddings is false")
}

func TestUnknownArchitecture(t *testing.T) {
	m := newToy(t)
	m.config["architectures"] = []string{"MadeUpForCausalLM"}
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrArchitecture, "MadeUpForCausalLM", "LlamaForCausalLM")
	delete(m.config, "architectures")
	m.files["config.json"] = nil
	_, err = m.convert(t, Options{})
	wantError(t, err, model.ErrArchitecture, "names none")
}

// A tied model that was saved with its head only.
func TestHeadOnly(t *testing.T) {
	m := newToy(t)
	m.drop("embed_tokens")
	m.add("lm_head.weight", 512, 16)
	g := m.mustConvert(t, "f32")
	if g.Tensor("output.weight") != nil || !slices.Equal(values(t, g.Tensor("token_embd.weight")), testmodel.Values("lm_head.weight", 512*16)) {
		t.Error("the embedding was not taken from the head")
	}
	if err := hasNote(g, "lm_head.weight", "embedding"); err != nil {
		t.Error(err)
	}
	m.config["tie_word_embeddings"] = false
	m.files["config.json"] = nil
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrTensors, "model.embed_tokens.weight")
}

// Where rope_theta may stand, and what happens when it stands nowhere.
func TestRopeTheta(t *testing.T) {
	for name, set := range map[string]func(c map[string]any){
		"top level": func(c map[string]any) { c["rope_theta"] = 250000.0 },
		"nested": func(c map[string]any) {
			c["rope_parameters"] = map[string]any{"rope_type": "default", "rope_theta": 250000.0}
		},
		"per layer type": func(c map[string]any) {
			c["rope_parameters"] = map[string]any{"full_attention": map[string]any{"rope_theta": 250000.0}}
		},
	} {
		m := newToy(t)
		delete(m.config, "rope_theta")
		set(m.config)
		g := m.mustConvert(t, "f32")
		if v, err := g.Meta.Float64("llama.rope.freq_base"); v != 250000 || err != nil {
			t.Errorf("%s: freq_base %g, %v", name, v, err)
		}
	}
	m := newToy(t)
	delete(m.config, "rope_theta")
	g := m.mustConvert(t, "f32")
	if v, _ := g.Meta.Float64("llama.rope.freq_base"); v != 10000 {
		t.Errorf("freq_base %g, want the class's default", v)
	}
	if err := hasNote(g, "rope_theta", "10000"); err != nil {
		t.Error(err)
	}
	m.config["model_type"] = "llama-like"
	m.files["config.json"] = nil
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrConfig, "rope_theta is missing", "llama-like")
}

func TestRopeScaling(t *testing.T) {
	m := newToy(t)
	m.config["rope_scaling"] = map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16.0, "attention_factor": 1.2}
	g := m.mustConvert(t, "f32")
	for key, want := range map[string]float64{"factor": 4, "original_context_length": 32, "yarn_beta_fast": 16, "yarn_attn_factor": float64(float32(1.2))} {
		if v, err := g.Meta.Float64("llama.rope.scaling." + key); v != want || err != nil {
			t.Errorf("%s: %g, %v", key, v, err)
		}
	}
	// The attention factor would come out differently.
	for _, key := range []string{"mscale", "mscale_all_dim", "zoom"} {
		m.config["rope_scaling"] = map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, key: 1.0}
		m.files["config.json"] = nil
		_, err := m.convert(t, Options{})
		wantError(t, err, model.ErrConfig, "YaRN parameter "+key)
	}
	m.config["rope_scaling"] = map[string]any{"rope_type": "dynamic", "factor": 4.0}
	m.files["config.json"] = nil
	if err := hasNote(m.mustConvert(t, "f32"), "dynamic", "not carried over"); err != nil {
		t.Error(err)
	}
}

// Shapes come from head_dim; hidden is never divided when it is given.
func TestHeadDim(t *testing.T) {
	m := newToy(t)
	m.config["hidden_size"], m.config["intermediate_size"] = 12, 10
	m.tensors = nil
	m.add("model.embed_tokens.weight", 512, 12)
	m.add("model.norm.weight", 12)
	l := "model.layers.0."
	m.add(l+"input_layernorm.weight", 12)
	m.add(l+"post_attention_layernorm.weight", 12)
	m.add(l+"self_attn.q_proj.weight", 16, 12)
	m.add(l+"self_attn.k_proj.weight", 8, 12)
	m.add(l+"self_attn.v_proj.weight", 8, 12)
	m.add(l+"self_attn.o_proj.weight", 12, 16)
	m.add(l+"mlp.gate_proj.weight", 10, 12)
	m.add(l+"mlp.up_proj.weight", 10, 12)
	m.add(l+"mlp.down_proj.weight", 12, 10)
	g := m.mustConvert(t, "f32")
	if v, _ := g.Meta.Int64("llama.rope.dimension_count"); v != 8 {
		t.Errorf("rope dimension %d, want 8", v)
	}
	m.config["head_dim"] = 6
	m.files["config.json"] = nil
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrTensors, "q_proj", "2 heads of head_dim 6")
}

// The norm of keys is as long as one head.
func TestKeyNormLength(t *testing.T) {
	m := newToy(t)
	m.config["architectures"], m.config["model_type"] = []string{"Qwen3ForCausalLM"}, "qwen3"
	m.config["num_attention_heads"], m.config["head_dim"] = 4, 4
	m.drop("k_proj")
	m.drop("v_proj")
	l := "model.layers.0.self_attn."
	m.add(l+"k_proj.weight", 4, 16)
	m.add(l+"v_proj.weight", 4, 16)
	m.add(l+"q_norm.weight", 4)
	m.add(l+"k_norm.weight", 4)
	m.mustConvert(t, "f32")
	m.at(t, l+"k_norm.weight").Shape = []int64{16}
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrTensors, "k_norm.weight has shape [16], the config asks for [4]")
}

func TestBareInfinity(t *testing.T) {
	m := newToy(t)
	m.config["time_step_limit"] = "LIMIT"
	files := m.build(t)
	text := strings.Replace(string(files.Files["config.json"]), `"LIMIT"`, `[0.0, Infinity, NaN]`, 1)
	files.Files["config.json"] = []byte(text)
	hf := load(t, files)
	if _, err := ToGGUF(t.Context(), hf, Options{}); err != nil {
		t.Error(err)
	}
	v, _ := hf.Config.Raw("time_step_limit")
	if list, ok := v.([]any); !ok || list[1] != pyjson.Number("Infinity") {
		t.Errorf("time_step_limit is %v", v)
	}
}

// moeToy has two experts of width 3 and a hidden size of 16.
func moeToy(t *testing.T) *toy {
	m := newToy(t)
	m.family = model.Qwen3MoE
	m.config["architectures"], m.config["model_type"] = []string{"Qwen3MoeForCausalLM"}, "qwen3_moe"
	m.config["num_experts"], m.config["num_experts_per_tok"], m.config["moe_intermediate_size"] = 2, 1, 3
	m.drop("mlp")
	l := "model.layers.0."
	m.add(l+"self_attn.q_norm.weight", 8)
	m.add(l+"self_attn.k_norm.weight", 8)
	m.add(l+"mlp.gate.weight", 2, 16)
	return m
}

// Fused experts: the orientation is that of the family, held against the sizes
// of the config and never guessed from which side is longer.
func TestFusedExperts(t *testing.T) {
	const gateUp, down = "model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.down_proj"
	m := moeToy(t)
	m.add(gateUp, 2, 6, 16)
	m.add(down, 2, 16, 3)
	g := m.mustConvert(t, "f32")
	src := testmodel.Values(gateUp, 2*6*16)
	for name, first := range map[string]int{"gate": 0, "up": 3 * 16} {
		x := g.Tensor("blk.0.ffn_" + name + "_exps.weight")
		got := values(t, x)
		var want []float32
		for e := range 2 {
			want = append(want, src[e*96+first:e*96+first+48]...)
		}
		if !slices.Equal(got, want) || !x.Shape.Equal(tensor.Shape{2, 3, 16}) {
			t.Errorf("%s: shape %v, values %v", name, x.Shape, got[:3])
		}
	}
	if x := g.Tensor("blk.0.ffn_down_exps.weight"); !slices.Equal(values(t, x), testmodel.Values(down, 96)) {
		t.Error("down projections were moved")
	}
	// One expert's product by hand: row 1 of expert 1's up projection times e0.
	up := values(t, g.Tensor("blk.0.ffn_up_exps.weight"))
	if up[(1*3+1)*16] != src[(1*6+3+1)*16] {
		t.Error("expert 1 uses rows of another expert")
	}

	m.at(t, gateUp).Shape = []int64{2, 16, 6}
	m.at(t, down).Shape = []int64{2, 3, 16}
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrTensors, "gate_up_proj has shape [2, 16, 6], the config asks for [2, 6, 16]", "transposed", "down_proj")
}

// A query of one expert or layer must not stand in for another.
func TestIncompleteExperts(t *testing.T) {
	m := moeToy(t)
	l := "model.layers.0.mlp.experts."
	for _, e := range []string{"0", "1"} {
		m.add(l+e+".gate_proj.weight", 3, 16)
		m.add(l+e+".up_proj.weight", 3, 16)
		m.add(l+e+".down_proj.weight", 16, 3)
	}
	g := m.mustConvert(t, "f32")
	want := append(testmodel.Values(l+"0.up_proj.weight", 48), testmodel.Values(l+"1.up_proj.weight", 48)...)
	if !slices.Equal(values(t, g.Tensor("blk.0.ffn_up_exps.weight")), want) {
		t.Error("experts are stacked in another order")
	}
	m.drop("experts.1.down_proj")
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrTensors, "1 tensors are missing: model.layers.0.mlp.experts.1.down_proj.weight")
	m.add(l+"2.down_proj.weight", 16, 3)
	_, err = m.convert(t, Options{})
	wantError(t, err, model.ErrTensors, "experts.2.down_proj.weight (the config has 2 experts)")
}

// Experts of mixed types are widened before they are stacked.
func TestMixedExperts(t *testing.T) {
	m := moeToy(t)
	l := "model.layers.0.mlp.experts."
	for _, e := range []string{"0", "1"} {
		m.add(l+e+".gate_proj.weight", 3, 16).DType = map[string]string{"0": "BF16", "1": "F32"}[e]
		m.add(l+e+".up_proj.weight", 3, 16)
		m.add(l+e+".down_proj.weight", 16, 3)
	}
	g := m.mustConvert(t, "f32")
	got := values(t, g.Tensor("blk.0.ffn_gate_exps.weight"))
	for i, v := range testmodel.Values(l+"0.gate_proj.weight", 48) {
		if math.Abs(float64(got[i]-v)) > 1e-3 {
			t.Fatalf("value %d: %g, want about %g", i, got[i], v)
		}
	}
	if !slices.Equal(got[48:], testmodel.Values(l+"1.gate_proj.weight", 48)) {
		t.Error("the float32 expert changed")
	}
}

// Values that F16 cannot hold: an error when asked for, nothing when not.
func TestOverflow(t *testing.T) {
	m := newToy(t)
	x := make([]float32, 24*16)
	x[5*16+3], x[7*16+1] = 1e5, -1e6
	name := "model.layers.0.mlp.up_proj.weight"
	w := m.at(t, name)
	w.DType = "BF16"
	for _, v := range x {
		bits := math.Float32bits(v)
		w.Data = append(w.Data, byte(bits>>16), byte(bits>>24))
	}
	read := func(out string, opt ...string) error {
		g, err := m.convert(t, Options{OutType: out, AllowNonFinite: opt})
		if err != nil {
			t.Fatal(err)
		}
		u := g.Tensor("blk.0.ffn_up.weight")
		return u.ReadRows(t.Context(), make([]byte, 20*u.RowBytes()), 4, 20)
	}
	for _, out := range []string{"bf16", "f32", "auto"} {
		if err := read(out); err != nil {
			t.Errorf("%s: %v", out, err)
		}
	}
	err := read("f16")
	wantError(t, err, ErrValue, "blk.0.ffn_up.weight", name, "row 5, column 3", "99840", "F16", "1 more")
	var v *ValueError
	if !errors.As(err, &v) || v.Row != 5 || v.Column != 3 || v.Count != 2 {
		t.Errorf("%+v", v)
	}
	if err := read("f16", "blk.0.ffn_up.weight"); err != nil {
		t.Errorf("allowed: %v", err)
	}
	if _, err := m.convert(t, Options{AllowNonFinite: []string{"blk.9.ffn_up.weight"}}); err == nil {
		t.Error("letting values of no tensor through passes")
	}
}

// NaN and Inf of the source, also where the type stays the same.
func TestNotFinite(t *testing.T) {
	for _, out := range []string{"f32", "bf16", "q8_0"} {
		m := newToy(t)
		x := make([]float32, 512*16)
		x[3*16+2] = float32(math.NaN())
		x[9*16+1] = float32(math.Inf(-1))
		m.config["hidden_size"] = 16
		m.at(t, "model.embed_tokens.weight").Data = f32s(x...)
		e := m.mustConvert(t, out).Tensor("token_embd.weight")
		b := make([]byte, 512*e.RowBytes())
		err := e.ReadRows(t.Context(), b, 0, 512)
		wantError(t, err, ErrValue, "token_embd.weight", "row 3, column 2", "not a number")
		err = e.ReadRows(t.Context(), b[:e.RowBytes()], 9, 1)
		wantError(t, err, ErrValue, "row 9, column 1", "not finite")
		if err := e.ReadRows(t.Context(), b[:e.RowBytes()], 10, 1); err != nil {
			t.Error(err)
		}
	}
}

// Integer weights and bare 8-bit floats have no meaning as they are.
func TestWeightTypes(t *testing.T) {
	for _, c := range []struct {
		dtype    string
		bytes    int
		sentinel error
		words    string
	}{{"I64", 8, ErrQuantized, "want a float type"}, {"F8_E4M3", 1, safetensors.ErrScale, "scale_inv is missing"}} {
		m := newToy(t)
		w := m.at(t, "model.layers.0.mlp.up_proj.weight")
		w.DType, w.Data = c.dtype, make([]byte, 24*16*c.bytes)
		_, err := m.convert(t, Options{})
		wantError(t, err, c.sentinel, "up_proj.weight", c.dtype, c.words)
	}
}

// Rows and tokens must agree.
func TestVocabularyRows(t *testing.T) {
	m := newToy(t)
	m.at(t, "model.embed_tokens.weight").Shape[0] = 520
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrTensors, "embed_tokens.weight has 520 rows", "vocab_size in config.json is 512")
	// Padding tokens fill the vocabulary up to the rows.
	m.config["vocab_size"] = 520
	m.files["config.json"] = nil
	g := m.mustConvert(t, "f32")
	v, err := gguf.ReadVocab(g.Meta)
	if err != nil || len(v.Tokens) != 520 || v.Types[519] != 5 || v.Tokens[519] != "[PAD519]" {
		t.Errorf("%v: %d tokens", err, len(v.Tokens))
	}
}

func TestWrongForm(t *testing.T) {
	_, err := ToGGUF(context.Background(), &model.Model{Form: model.GGUF}, Options{})
	wantError(t, err, model.ErrForm)
	m := newToy(t)
	_, err = m.convert(t, Options{OutType: "q4_0"})
	wantError(t, err, ErrOutType, "q4_0", "auto, f32, f16, bf16, q8_0")
}

// Tokens without rows are an error that lists them.
func TestTokensWithoutRows(t *testing.T) {
	m := newToy(t)
	m.config["vocab_size"] = 510
	m.at(t, "model.embed_tokens.weight").Shape[0] = 510
	_, err := m.convert(t, Options{})
	wantError(t, err, tokenizer.ErrVocabSize, "510", "511")
}

// Sizes from a hostile config must not decide how much is allocated.
func TestHugeSizes(t *testing.T) {
	for key, n := range map[string]int64{"num_hidden_layers": 1 << 30, "num_experts": 1 << 30, "moe_intermediate_size": 1 << 62, "hidden_size": 1 << 40,
		"head_dim": 1 << 30, "num_attention_heads": 1 << 31, "vocab_size": 1 << 40} {
		m := moeToy(t)
		m.add("model.layers.0.mlp.experts.0.up_proj.weight", 3, 16)
		m.config[key] = n
		if _, err := m.convert(t, Options{}); err == nil {
			t.Errorf("%s = %d passes", key, n)
		}
	}
	m := newToy(t)
	m.config["head_dim"] = int64(1 << 31)
	m.config["rope_scaling"] = map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
	_, err := m.convert(t, Options{})
	wantError(t, err, model.ErrConfig, "head_dim is 2147483648")
}

// A tensor without values has no place in GGUF, and is told apart from one that
// is not there.
func TestEmptyTensor(t *testing.T) {
	for name, shape := range map[string][]int64{"model.layers.0.mlp.up_proj.weight": {0, 16}, "model.norm.weight": {0}, "model.layers.0.self_attn.v_proj.weight": {8, 0}} {
		m := newToy(t)
		m.at(t, name).Shape = shape
		_, err := m.convert(t, Options{})
		wantError(t, err, model.ErrTensors, name, "0")
		if strings.Contains(err.Error(), "missing") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package model

import (
	"fmt"
	"slices"
	"strings"

	"quern/internal/pyjson"
)

// The converter reads a config through transformers 4.57.6, whose config
// classes fill in what the file leaves out. What a class fills in decides
// metadata (a Llama without head_dim gets one, a Mistral does not), so the
// parts that matter are stated here, one entry a model_type.
//
// When the class refuses the file, or no class has the name, the converter
// takes the file as it stands. So do we, with a note.

type class struct {
	defaults []pair
	// kvFromHeads: a null num_key_value_heads means num_attention_heads.
	kvFromHeads bool
	// headDim: a null head_dim means hidden_size // num_attention_heads.
	headDim bool
	// typeIsRopeType: rope_scaling's old key "type" overwrites "rope_type".
	typeIsRopeType bool
	// checksRope: rope_scaling must have the keys its type needs.
	checksRope bool
	// checksLayers: layer_types must fit num_hidden_layers.
	checksLayers bool
	gemma3       bool
}

type pair struct {
	key   string
	value any
}

func whole(n int) any { return pyjson.Number(fmt.Sprint(n)) }

func num(s string) any { return pyjson.Number(s) }

// dimensions writes the defaults that every class has.
func dimensions(vocab, hidden, ffn, layers, heads int, kv any, positions int, theta string, tie bool) []pair {
	return []pair{
		{"vocab_size", whole(vocab)}, {"hidden_size", whole(hidden)}, {"intermediate_size", whole(ffn)},
		{"num_hidden_layers", whole(layers)}, {"num_attention_heads", whole(heads)}, {"num_key_value_heads", kv},
		{"max_position_embeddings", whole(positions)}, {"rope_theta", num(theta)}, {"tie_word_embeddings", tie},
	}
}

// classOf gives the class of a model_type.
func classOf(modelType string) (class, bool) {
	eps6 := pair{"rms_norm_eps", num("1e-6")}
	switch modelType {
	case "llama":
		return class{
			defaults:    append(dimensions(32000, 4096, 11008, 32, 32, nil, 2048, "10000.0", false), eps6, pair{"head_dim", nil}, pair{"rope_scaling", nil}),
			kvFromHeads: true, headDim: true, typeIsRopeType: true, checksRope: true,
		}, true
	case "mistral":
		return class{
			defaults:    append(dimensions(32000, 4096, 14336, 32, 32, whole(8), 131072, "10000.0", false), eps6, pair{"head_dim", nil}, pair{"sliding_window", whole(4096)}),
			kvFromHeads: true,
		}, true
	case "mixtral":
		return class{
			defaults: append(dimensions(32000, 4096, 14336, 32, 32, whole(8), 131072, "1e6", false),
				pair{"rms_norm_eps", num("1e-5")}, pair{"head_dim", nil}, pair{"sliding_window", nil},
				pair{"num_experts_per_tok", whole(2)}, pair{"num_local_experts", whole(8)}),
			kvFromHeads: true,
		}, true
	case "qwen2":
		return class{
			defaults:    append(dimensions(151936, 4096, 22016, 32, 32, whole(32), 32768, "10000.0", false), eps6, pair{"rope_scaling", nil}),
			kvFromHeads: true, typeIsRopeType: true, checksRope: true, checksLayers: true,
		}, true
	case "qwen3":
		return class{
			defaults:    append(dimensions(151936, 4096, 22016, 32, 32, whole(32), 32768, "10000.0", false), eps6, pair{"head_dim", whole(128)}, pair{"rope_scaling", nil}),
			kvFromHeads: true, typeIsRopeType: true, checksRope: true, checksLayers: true,
		}, true
	case "qwen3_moe":
		return class{
			defaults: append(dimensions(151936, 2048, 6144, 24, 32, whole(4), 32768, "10000.0", false), eps6, pair{"rope_scaling", nil},
				pair{"moe_intermediate_size", whole(768)}, pair{"num_experts_per_tok", whole(8)}, pair{"num_experts", whole(128)}),
			typeIsRopeType: true, checksRope: true,
		}, true
	case "gemma3_text":
		return class{
			defaults: append(dimensions(262208, 2304, 9216, 26, 8, whole(4), 131072, "1000000.0", true), eps6, pair{"head_dim", whole(256)},
				pair{"sliding_window", whole(4096)}, pair{"final_logit_softcapping", nil}, pair{"attn_logit_softcapping", nil},
				pair{"rope_scaling", nil}, pair{"rope_local_base_freq", num("10000.0")}),
			checksRope: true, checksLayers: true, gemma3: true,
		}, true
	}
	return class{}, false
}

// effective merges class defaults and text_config into one flat object.
func effective(raw *pyjson.Object) (eff *pyjson.Object, notes []string, bare string, err error) {
	v, _ := raw.Get("model_type")
	modelType, _ := v.(string)
	root := raw.Clone()
	text, err := textConfig(root)
	if err != nil {
		return nil, nil, "", err
	}
	filled, bare := fill(root, text, modelType)
	if bare != "" {
		notes = append(notes, bare+": its values are taken as they stand, without class defaults")
		filled = root
	}
	given := hasTheta(raw, text)
	if text, err = textConfig(filled); err != nil {
		return nil, nil, "", err
	}
	out := filled.Clone()
	for _, k := range text.Keys() {
		v, _ := text.Get(k)
		out.Set(k, v)
	}
	if v, _ := out.Get("rope_theta"); v != nil && !given {
		notes = append(notes, fmt.Sprintf("rope_theta is not given: %s, the default of model_type %s, is used", pyjson.Show(v), modelType))
	}
	return out, notes, bare, nil
}

func textConfig(o *pyjson.Object) (*pyjson.Object, error) {
	v, _ := o.Get("text_config")
	if v == nil {
		return nil, nil
	}
	text, ok := v.(*pyjson.Object)
	if !ok {
		return nil, fmt.Errorf("%w: text_config is %s, want an object", ErrConfig, pyjson.Kind(v))
	}
	return text, nil
}

func hasTheta(objects ...*pyjson.Object) bool {
	for _, o := range objects {
		if o.Has("rope_theta") || o.Has("rope_parameters") {
			return true
		}
	}
	return false
}

// fill returns the object with the class's defaults, or says why the class does
// not apply.
func fill(root, text *pyjson.Object, modelType string) (*pyjson.Object, string) {
	switch {
	case modelType == "":
		return nil, "no model_type"
	case modelType == "gemma3":
		out := root.Clone()
		inner := &pyjson.Object{}
		if text != nil {
			inner = text.Clone()
		}
		c, _ := classOf("gemma3_text")
		if err := c.fill(inner); err != nil {
			return nil, fmt.Sprintf("transformers refuses text_config (%v)", err)
		}
		vision, _ := root.Get("vision_config")
		half, _ := vision.(*pyjson.Object)
		for _, o := range []*pyjson.Object{root, half} {
			if err := checkDType(o); err != nil {
				return nil, fmt.Sprintf("transformers refuses the config (%v)", err)
			}
		}
		out.Set("text_config", inner)
		return out, ""
	}
	c, ok := classOf(modelType)
	switch {
	case ok:
	case modelType == "qwen3_5" || modelType == "qwen3_5_text" || modelType == "bailing_moe" || modelType == "bailing_moe_v2":
		return nil, fmt.Sprintf("transformers 4.57.6, which the converter reads configs with, has no class for model_type %q", modelType)
	default:
		return nil, fmt.Sprintf("model_type %q is not one that quern knows", modelType)
	}
	out := root.Clone()
	if err := c.fill(out); err != nil {
		return nil, fmt.Sprintf("transformers refuses the config (%v)", err)
	}
	return out, ""
}

func (c class) fill(o *pyjson.Object) error {
	for _, d := range c.defaults {
		o.SetDefault(d.key, d.value)
	}
	if v, _ := o.Get("num_key_value_heads"); v == nil && c.kvFromHeads {
		heads, _ := o.Get("num_attention_heads")
		o.Set("num_key_value_heads", heads)
	}
	if v, _ := o.Get("head_dim"); v == nil && c.headDim {
		hidden, ok1 := intOf(o, "hidden_size")
		heads, ok2 := intOf(o, "num_attention_heads")
		if !ok1 || !ok2 || heads == 0 {
			return fmt.Errorf("hidden_size // num_attention_heads has no value")
		}
		o.Set("head_dim", pyjson.Number(fmt.Sprint(floorDiv(hidden, heads))))
	}
	if c.gemma3 {
		// The class keeps its own tie_word_embeddings from the base class.
		o.Set("tie_word_embeddings", true)
		if v, _ := o.Get("use_bidirectional_attention"); v == true {
			if w, ok := intOf(o, "sliding_window"); ok {
				o.Set("sliding_window", pyjson.Number(fmt.Sprint(floorDiv(w, 2)+1)))
			}
		}
	}
	if v, _ := o.Get("rope_scaling"); v != nil && (c.typeIsRopeType || c.checksRope) {
		rope, ok := v.(*pyjson.Object)
		if !ok {
			return fmt.Errorf("rope_scaling is %s", pyjson.Kind(v))
		}
		if t, ok := rope.Get("type"); ok && c.typeIsRopeType {
			rope.Set("rope_type", t)
		}
		if c.checksRope {
			if err := checkRope(rope); err != nil {
				return err
			}
		}
	}
	if v, _ := o.Get("layer_types"); v != nil && c.checksLayers {
		if err := checkLayerTypes(o, v); err != nil {
			return err
		}
	}
	return checkDType(o)
}

// checkRope asks for the keys that the class asks for; it only looks whether
// they are there.
func checkRope(rope *pyjson.Object) error {
	v, ok := rope.Get("rope_type")
	if !ok {
		if v, ok = rope.Get("type"); !ok {
			v = "default"
		}
	}
	need := map[string][]string{
		"default":  nil,
		"linear":   {"factor"},
		"dynamic":  {"factor"},
		"yarn":     {"factor"},
		"longrope": {"long_factor", "short_factor"},
		"llama3":   {"factor", "high_freq_factor", "low_freq_factor", "original_max_position_embeddings"},
	}
	name, _ := v.(string)
	keys, known := need[name]
	if !known {
		return nil
	}
	var missing []string
	for _, k := range append([]string{"rope_type"}, keys...) {
		if !rope.Has(k) {
			missing = append(missing, k)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("rope_scaling of type %s lacks %s", name, strings.Join(missing, ", "))
	}
	return nil
}

func checkLayerTypes(o *pyjson.Object, v any) error {
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("layer_types is %s", pyjson.Kind(v))
	}
	known := []string{"full_attention", "sliding_attention", "chunked_attention", "linear_attention"}
	for _, e := range list {
		if s, ok := e.(string); !ok || !slices.Contains(known, s) {
			return fmt.Errorf("layer_types holds %s", pyjson.Show(e))
		}
	}
	if n, ok := intOf(o, "num_hidden_layers"); ok && n != int64(len(list)) {
		return fmt.Errorf("%d layer_types for %d layers", len(list), n)
	}
	return nil
}

// checkDType refuses a dtype that PyTorch has no name for, such as "auto".
func checkDType(o *pyjson.Object) error {
	v, _ := o.Get("dtype")
	if v == nil {
		v, _ = o.Get("torch_dtype")
	}
	s, ok := v.(string)
	if !ok || s == "" {
		return nil
	}
	known := []string{"float16", "half", "bfloat16", "float32", "float", "float64", "double", "float8_e4m3fn", "float8_e5m2",
		"int8", "uint8", "int16", "int32", "int64", "bool"}
	if !slices.Contains(known, s) {
		return fmt.Errorf("dtype %q is not one of PyTorch's", s)
	}
	return nil
}

func intOf(o *pyjson.Object, key string) (int64, bool) {
	v, _ := o.Get(key)
	n, ok := v.(pyjson.Number)
	if !ok {
		return 0, false
	}
	return n.Int64()
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

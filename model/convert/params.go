package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"

	"quern/formats/gguf"
	"quern/internal/pyjson"
	"quern/model"
)

// paramWriter sets the keys of the architecture. Errors about a value name its
// key in config.json.
type paramWriter struct {
	kvWriter
	c    *model.Config
	d    *model.Dims
	arch string
	// runtime lets settings pass that have no place in GGUF.
	runtime bool
}

func (w *paramWriter) key(name string) string { return w.arch + "." + name }

// size sets a u32 from the first of keys that the config has; a null sets
// nothing and ends the search, as for the converter.
func (w *paramWriter) size(name string, keys ...string) {
	n, ok, err := w.c.OptInt(keys...)
	if err != nil {
		w.keep(err)
	} else if ok {
		w.u32(w.c.File(), w.key(name), n)
	}
}

func (w *paramWriter) float(name string, keys ...string) {
	f, ok, err := w.c.OptFloat(keys...)
	if err != nil {
		w.keep(err)
	} else if ok {
		w.f32(w.c.File(), w.key(name), f)
	}
}

func (w *paramWriter) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

// base sets the keys that every architecture has.
func (w *paramWriter) base(fileType int64) []model.Note {
	n, err := w.c.Size("n_layers", "num_hidden_layers", "n_layer", "num_layers")
	if err != nil {
		w.keep(err)
		return nil
	}
	w.u32(w.c.File(), w.key("block_count"), n+w.d.NextN)
	w.size("context_length", "max_position_embeddings", "n_ctx", "n_positions", "max_length", "max_sequence_length", "model_max_length")
	w.size("embedding_length", "hidden_size", "n_embd", "dim")
	w.size("feed_forward_length", "prefix_dense_intermediate_size", "dense_intermediate_size", "intermediate_size", "n_inner", "hidden_dim")
	w.size("attention.head_count", "num_attention_heads", "n_head", "n_heads")
	w.size("attention.head_count_kv", "num_key_value_heads", "n_kv_heads")
	if v, _, _ := w.c.Find("is_causal"); v == false {
		w.meta.Set(w.key("attention.causal"), gguf.Scalar(false))
	}
	notes := w.rope()
	w.float("attention.layer_norm_rms_epsilon", "rms_norm_eps", "norm_eps")
	w.float("attention.layer_norm_epsilon", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")
	w.size("expert_count", "num_local_experts", "num_experts", "n_routed_experts")
	w.size("expert_used_count", "num_experts_per_tok", "num_experts_per_token", "top_k_experts")
	w.size("expert_group_count", "n_group")
	w.size("expert_group_used_count", "topk_group")
	w.gating()
	w.size("attention.key_length", "head_dim")
	w.size("attention.value_length", "head_dim")
	w.u32(w.c.File(), "general.file_type", fileType)
	return notes
}

func (w *paramWriter) gating() {
	s, ok, err := w.c.OptString("score_function", "scoring_func", "score_func", "moe_router_activation", "moe_router_activation_func", "expert_selection_fn")
	if err != nil || !ok {
		w.keep(err)
		return
	}
	funcs := map[string]int64{"softmax": 1, "sigmoid": 2, "sqrtsoftplus": 4}
	n, ok := funcs[s]
	if !ok {
		w.keep(fmt.Errorf("%s: %w: expert score function %q is not one of softmax, sigmoid, sqrtsoftplus", w.c.File(), model.ErrConfig, s))
		return
	}
	w.u32(w.c.File(), w.key("expert_gating_func"), n)
}

// yarnKeys are the parameters of YaRN that have a meaning here; another one
// would be lost in silence.
var yarnKeys = []string{"type", "rope_type", "factor", "original_max_position_embeddings", "extrapolation_factor", "attention_factor",
	"attn_factor", "beta_fast", "beta_slow", "rope_theta", "partial_rotary_factor", "sliding_attention", "finetuned", "truncate",
	"mrope_section", "mrope_interleaved"}

func (w *paramWriter) rope() []model.Note {
	r, err := w.c.Rope()
	if err != nil {
		w.keep(err)
		return nil
	}
	var notes []model.Note
	factor, hasFactor, err := r.Float("factor")
	w.keep(err)
	switch {
	case r.Type == "linear" && hasFactor:
		w.str(w.c.File(), w.key("rope.scaling.type"), "linear")
		w.f32(w.c.File(), w.key("rope.scaling.factor"), factor)
	case r.Type == "yarn" && hasFactor:
		w.yarn(r, factor)
	case r.Type == "su" || r.Type == "longrope":
		w.str(w.c.File(), w.key("rope.scaling.type"), "longrope")
		notes = append(notes, model.Note{Subject: w.c.File(), Text: "the factors of longrope scaling are not carried over; llama.cpp will refuse or misread the file"})
	case r.Type == "" || r.Type == "default" || strings.EqualFold(r.Type, "llama3"):
	default:
		notes = append(notes, model.Note{Subject: w.c.File(), Text: fmt.Sprintf("rope scaling of type %q is not carried over; long texts will come out differently", r.Type)})
	}
	if v, ok := r.Params.Get("mrope_section"); ok {
		w.sections(v)
	}
	if !r.HasTheta {
		if w.arch != string(model.Gemma3) {
			w.keep(fmt.Errorf("%s: %w: rope_theta is missing (also as rope_parameters.rope_theta), and model_type %q states no default", w.c.File(), model.ErrConfig, w.c.ModelType()))
		}
	} else {
		w.f32(w.c.File(), w.key("rope.freq_base"), r.Theta)
	}
	if r.HasLocalTheta {
		w.f32(w.c.File(), w.key("rope.freq_base_swa"), r.LocalTheta)
	}
	return notes
}

func (w *paramWriter) yarn(r *model.Rope, factor float64) {
	for _, k := range r.Params.Keys() {
		if !slices.Contains(yarnKeys, k) && !(w.runtime && slices.Contains([]string{"mscale", "mscale_all_dim"}, k)) {
			w.keep(fmt.Errorf("%s: %w: YaRN parameter %s has no place in GGUF; those carried over are %s", w.c.File(), model.ErrConfig, k, strings.Join(yarnKeys[2:9], ", ")))
			return
		}
	}
	w.str(w.c.File(), w.key("rope.scaling.type"), "yarn")
	w.f32(w.c.File(), w.key("rope.scaling.factor"), factor)
	v, _ := r.Params.Get("original_max_position_embeddings")
	if n, ok := wholeNumber(v); ok {
		w.u32(w.c.File(), w.key("rope.scaling.original_context_length"), n)
	} else {
		w.keep(fmt.Errorf("%s: %w: YaRN needs original_max_position_embeddings as a whole number, found %s", w.c.File(), model.ErrConfig, pyjson.Show(v)))
	}
	opt := func(name string, keys ...string) {
		for _, k := range keys {
			if !r.Params.Has(k) {
				continue
			}
			f, ok, err := r.Float(k)
			w.keep(err)
			if ok {
				w.f32(w.c.File(), w.key(name), f)
			}
			return
		}
	}
	opt("rope.scaling.yarn_ext_factor", "extrapolation_factor")
	opt("rope.scaling.yarn_attn_factor", "attention_factor", "attn_factor")
	opt("rope.scaling.yarn_beta_fast", "beta_fast")
	opt("rope.scaling.yarn_beta_slow", "beta_slow")
}

// sections pads M-RoPE sections to four.
func (w *paramWriter) sections(v any) {
	list, ok := v.([]any)
	out := make([]int32, 4)
	for i, e := range list {
		n, isInt := wholeNumber(e)
		if ok = ok && isInt && n >= 0 && n <= math.MaxInt32; !ok {
			break
		}
		if i < 4 {
			out[i] = int32(n)
		}
	}
	if !ok {
		w.keep(fmt.Errorf("%s: %w: mrope_section is %s, want a list of whole numbers", w.c.File(), model.ErrConfig, pyjson.Show(v)))
		return
	}
	w.meta.Set(w.key("rope.dimension_sections"), gguf.List(out))
}

// family sets what the base does not, in the order of each architecture.
func (w *paramWriter) family(ctx context.Context, m *model.Model) {
	switch w.d.Family {
	case model.Llama:
		w.size("vocab_size", "vocab_size")
		dim, ok, err := w.c.OptInt("head_dim")
		if err == nil && !ok {
			var hidden, heads int64
			if hidden, err = w.c.Size("hidden_size"); err == nil {
				heads, err = w.c.Size("num_attention_heads")
			}
			if err == nil {
				dim = hidden / heads
			}
		}
		w.keep(err)
		w.u32(w.c.File(), w.key("rope.dimension_count"), dim)
	case model.Qwen2, model.Qwen3:
		w.pooling(ctx, m.Files)
	case model.Qwen3MoE:
		w.size("expert_feed_forward_length", "moe_intermediate_size")
		w.size("expert_shared_feed_forward_length", "shared_expert_intermediate_size")
	case model.Gemma3:
		w.gemma3()
	case model.Qwen35:
		w.qwen35()
	case model.BailingMoE2:
		w.bailing()
	}
}

// gemma3 sets again what its converter sets again: values that the config may
// leave out get their defaults.
func (w *paramWriter) gemma3() {
	def := func(name, key string, n int64) {
		if _, _, ok := w.c.Find(key); !ok {
			w.u32(w.c.File(), w.key(name), n)
			return
		}
		w.size(name, key)
	}
	def("context_length", "max_position_embeddings", 131072)
	def("attention.head_count", "num_attention_heads", 8)
	if _, _, ok := w.c.Find("rms_norm_eps"); ok {
		w.float("attention.layer_norm_rms_epsilon", "rms_norm_eps")
	} else {
		w.f32(w.c.File(), w.key("attention.layer_norm_rms_epsilon"), 1e-6)
	}
	def("attention.key_length", "head_dim", 256)
	def("attention.value_length", "head_dim", 256)
	r, err := w.c.Rope()
	w.keep(err)
	if err == nil {
		theta := r.Theta
		if !r.HasTheta {
			theta = 1e6
		}
		w.f32(w.c.File(), w.key("rope.freq_base"), theta)
	}
	if v, _, _ := w.c.Find("attn_logit_softcapping"); v != nil {
		w.keep(fmt.Errorf("%s: %w: attn_logit_softcapping is %s; Gemma 3 has none", w.c.File(), model.ErrConfig, pyjson.Show(v)))
	}
	f, _, err := w.c.OptFloat("final_logit_softcapping")
	w.keep(err)
	if f != 0 {
		w.f32(w.c.File(), w.key("final_logit_softcapping"), f)
	}
	pattern, isSet, err := w.c.OptInt("sliding_window_pattern")
	w.keep(err)
	if !isSet || pattern != 1 {
		n, err := w.c.Int("sliding_window")
		w.keep(err)
		w.u32(w.c.File(), w.key("attention.sliding_window"), n)
	}
	def("attention.head_count_kv", "num_key_value_heads", 4)
}

// pooling reads how a sentence-transformers model pools, which embedding
// variants of Qwen say in modules.json.
func (w *paramWriter) pooling(ctx context.Context, files model.FileSet) {
	const name = "modules.json"
	text, err := files.ReadFile(ctx, name, limitCard)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var mods any
	if err == nil {
		mods, err = pyjson.Parse(text)
	}
	if err != nil {
		w.keep(fmt.Errorf("%s: %w", name, err))
		return
	}
	list, _ := mods.([]any)
	for _, e := range list {
		mod, _ := e.(*pyjson.Object)
		kind, _ := mod.Get("type")
		if s, _ := kind.(string); !strings.HasSuffix(s, "Pooling") {
			continue
		}
		where, _ := mod.Get("path")
		dir, _ := where.(string)
		w.poolingType(ctx, files, path.Join(dir, "config.json"))
		return
	}
}

func (w *paramWriter) poolingType(ctx context.Context, files model.FileSet, name string) {
	text, err := files.ReadFile(ctx, name, limitCard)
	var o *pyjson.Object
	if err == nil {
		o, err = pyjson.ParseObject(text)
	}
	if err != nil {
		w.keep(fmt.Errorf("%s: %w", name, err))
		return
	}
	modes := []struct {
		flag, word string
		n          int64
	}{{"pooling_mode_mean_tokens", "mean", 1}, {"pooling_mode_cls_token", "cls", 2}, {"pooling_mode_lasttoken", "lasttoken", 3}}
	for _, p := range modes {
		if v, _ := o.Get(p.flag); truthy(v) {
			w.u32(name, w.key("pooling_type"), p.n)
			return
		}
	}
	mode, _ := o.Get("pooling_mode")
	for _, p := range modes {
		if mode == p.word {
			w.u32(name, w.key("pooling_type"), p.n)
			return
		}
	}
	w.keep(fmt.Errorf("%s: %w: pooling is neither mean, cls nor lasttoken", name, ErrMetadata))
}

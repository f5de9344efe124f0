package convert

import (
	"fmt"
	"slices"
	"strings"

	"quern/internal/pyjson"
	"quern/model"
)

// lost says which settings of the config have no place in GGUF, or are not heard by
// what reads it: the file will compute something else than the checkpoint.
func (w *paramWriter) lost() []model.Note {
	var notes []model.Note
	say := func(format string, args ...any) {
		notes = append(notes, model.Note{Subject: w.c.File(), Text: fmt.Sprintf(format, args...)})
	}
	if n := w.window(); n > 0 {
		say("the sliding window of %d is not carried over; longer texts will come out differently", n)
	}
	act, want := "hidden_act", []string{"silu", "swish"}
	if w.d.Family == model.Gemma3 {
		act, want = "hidden_activation", []string{"gelu_pytorch_tanh", "gelu_new"}
	}
	if s, ok, err := w.c.OptString(act); err == nil && ok && !slices.Contains(want, s) {
		say("%s %q is not carried over; the file will be run with %s", act, s, want[0])
	}
	if r, err := w.c.Rope(); err == nil {
		if r.Type == "yarn" && (r.Params.Has("attention_factor") || r.Params.Has("attn_factor")) {
			say("YaRN's attention factor is written, but llama.cpp works out its own")
		}
		for i, key := range []string{"beta_fast", "beta_slow"} {
			took := []float64{32, 1}[i]
			if f, ok, err := r.Float(key); r.Type == "yarn" && err == nil && ok && f != took {
				say("YaRN's %s is written, but llama.cpp takes %g", key, took)
			}
		}
		if v, _ := r.Params.Get("truncate"); r.Type == "yarn" && v == false {
			say("YaRN's truncate is not carried over; long texts will come out differently")
		}
		if strings.EqualFold(r.Type, "llama3") && w.d.Family != model.Llama {
			say("rope scaling of type %q is not carried over; long texts will come out differently", r.Type)
		}
	}
	if norm, err := w.c.Bool("norm_topk_prob", false); err == nil && !norm && w.d.Family == model.Qwen3MoE {
		say("norm_topk_prob is false, which is not carried over; the weights of experts will be normalized")
	}
	if w.d.Family == model.Gemma3 {
		w.lostOfGemma3(say)
	}
	return notes
}

// window is that of families which llama.cpp runs without one, 0 where there is
// none, or none that a text would be longer than.
func (w *paramWriter) window() int64 {
	switch w.c.Architecture() {
	case "MistralForCausalLM", "MixtralForCausalLM":
	case "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM":
		if used, err := w.c.Bool("use_sliding_window", false); err != nil || !used {
			return 0
		}
	default:
		return 0
	}
	n, _, err := w.c.OptInt("sliding_window")
	if err != nil || n <= 0 || n >= w.d.Context {
		return 0
	}
	return n
}

// gemma3Pattern: of so many layers the last one sees all of the text.
const gemma3Pattern = 6

func (w *paramWriter) lostOfGemma3(say func(format string, args ...any)) {
	pattern := int64(gemma3Pattern)
	if n, ok, err := w.c.OptInt("sliding_window_pattern"); err == nil && ok && n > 0 {
		pattern = n
	}
	kinds := "sliding_window_pattern"
	sliding := func(i int64) any {
		return map[bool]any{true: "sliding_attention", false: "full_attention"}[(i+1)%pattern != 0]
	}
	if v, _, _ := w.c.Find("layer_types"); v != nil {
		if list, ok := v.([]any); ok && int64(len(list)) == w.d.Layers {
			kinds, sliding = "layer_types", func(i int64) any { return list[i] }
		}
	}
	for i := range w.d.Layers {
		full := (i+1)%gemma3Pattern == 0
		if kind := sliding(i); pattern != 1 && (kind == "full_attention") != full {
			say("layer %d is of kind %s by %s, which is not carried over: the file will be run with a window in all layers but every sixth", i, pyjson.Show(kind), kinds)
			break
		}
	}
	scalar, ok, err := w.c.OptFloat("query_pre_attn_scalar")
	if !ok {
		scalar = 256
	}
	took := float64(w.d.HeadDim)
	if w.d.Layers == 62 {
		took = float64(w.d.Hidden / w.d.Heads)
	}
	if err == nil && scalar != took {
		say("query_pre_attn_scalar %g is not carried over; the file will be run with %g", scalar, took)
	}
}

package transformer

import (
	"fmt"
	"math"

	"quern/internal/pyjson"
	"quern/model"
	"quern/model/convert"
	infer "quern/runtime"
	"quern/runtime/num"
)

// fromConfig sets what a checkpoint's config says and its GGUF form does not, so
// that a folder is run as transformers runs it: factors of rotary embeddings that
// the conversion leaves out, sliding windows that llama.cpp ignores, and the like.
// What neither of them knows is an error.
func (p *params) fromConfig(c *model.Config) error {
	k := &settings{Config: c}
	r, err := c.Rope()
	k.keep(err)
	if k.err == nil {
		p.configRope(k, r)
		p.configWindows(k)
		p.configFamily(k)
	}
	return k.err
}

// settings reads a config and keeps the first error.
type settings struct {
	*model.Config
	err error
}

func (k *settings) keep(err error) {
	if k.err == nil && err != nil {
		k.err = err
	}
}

func (k *settings) bad(format string, args ...any) {
	k.keep(fmt.Errorf("%s: %w: "+format, append([]any{k.File(), infer.ErrModel}, args...)...))
}

// size gives a whole number from 0 on, and whether it is there.
func (k *settings) size(key string) (int, bool) {
	n, ok, err := k.OptInt(key)
	k.keep(err)
	if ok && (n < 0 || n > math.MaxInt32) {
		k.bad("%s is %d, which is out of range", key, n)
		ok = false
	}
	return int(n), ok
}

func (k *settings) flag(key string, def bool) bool {
	b, err := k.Bool(key, def)
	k.keep(err)
	return b
}

// configRope sets what the kind of scaling needs beyond the keys of GGUF.
func (p *params) configRope(k *settings, r *model.Rope) {
	switch r.Type {
	case "yarn":
		p.configYaRN(k, r)
	case "longrope", "su":
		p.configLongrope(k, r)
	case "dynamic":
		f, ok, err := r.Float("factor")
		k.keep(err)
		if ok && f > 0 {
			p.dynamic = f
		}
	}
	if p.global.factors == nil {
		factors, err := convert.RopeFactors(k.Config, p.global.dims)
		k.keep(err)
		p.global.factors = factors
	}
}

// configYaRN sets the factor of sines and cosines where the config gives one, or a
// quotient to work it out by, and the ends of the mix.
func (p *params) configYaRN(k *settings, r *model.Rope) {
	get := func(key string, def float64) float64 {
		f, _, err := r.Float(key)
		k.keep(err)
		if f == 0 {
			return def
		}
		return f
	}
	p.global.betaFast, p.global.betaSlow = get("beta_fast", 32), get("beta_slow", 1)
	if v, _ := r.Params.Get("truncate"); v == false {
		p.global.fractional = true
	}
	factor := 1 / p.global.scale
	attn, given, err := r.Float("attention_factor")
	k.keep(err)
	if m, all := get("mscale", 0), get("mscale_all_dim", 0); !given && m != 0 && all != 0 {
		attn, given = yarnOf(m, factor)/yarnOf(all, factor), true
	}
	if given {
		// newRope multiplies by the rest.
		p.global.attn = attn / (1 + float64(0.1*num.Log64(factor)))
	}
}

// configWindows says which layers see only the last positions.
func (p *params) configWindows(k *settings) {
	window, ok := k.size("sliding_window")
	all := false
	first := p.layers
	switch k.Architecture() {
	case "MistralForCausalLM", "MixtralForCausalLM":
		all = true
	case "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM":
		if !k.flag("use_sliding_window", false) {
			return
		}
		if _, _, there := k.Find("sliding_window"); !there {
			window, ok = 4096, true
		}
		if all = k.Architecture() == "Qwen3MoeForCausalLM"; !all {
			first = 28
			if n, ok := k.size("max_window_layers"); ok {
				first = n
			}
		}
	default:
		if p.arch == "gemma3" {
			if n, ok := k.size("sliding_window_pattern"); ok && n > 0 {
				for i := range p.sliding {
					p.sliding[i] = p.window > 0 && (i+1)%n != 0
				}
			}
			p.configLayers(k)
		}
		return
	}
	if !ok {
		return
	}
	if window == 0 {
		k.bad("sliding_window is 0")
		return
	}
	p.window = window
	for i := range p.sliding {
		p.sliding[i] = all || i >= first
	}
	if !all {
		p.configLayers(k)
	}
}

// configLayers takes the kinds of layers from a list, if there is one.
func (p *params) configLayers(k *settings) {
	v, _, _ := k.Find("layer_types")
	if v == nil {
		return
	}
	list, ok := v.([]any)
	if !ok || len(list) != p.layers {
		k.bad("layer_types is %s, want a list of %d kinds", pyjson.Show(v), p.layers)
		return
	}
	for i, e := range list {
		switch e {
		case "full_attention":
			p.sliding[i] = false
		case "sliding_attention":
			if p.window == 0 {
				k.bad("layer %d is of kind sliding_attention, and sliding_window is not given", i)
				return
			}
			p.sliding[i] = true
		default:
			k.bad("layer %d is of kind %s; full_attention and sliding_attention are known", i, pyjson.Show(e))
			return
		}
	}
}

// configFamily sets what single architectures have of their own.
func (p *params) configFamily(k *settings) {
	act, want := "hidden_act", []string{"silu", "swish"}
	if p.gelu {
		act, want = "hidden_activation", []string{"gelu_pytorch_tanh", "gelu_new"}
	}
	if s, ok, err := k.OptString(act); err != nil {
		k.keep(err)
	} else if ok && s != want[0] && s != want[1] {
		k.keep(fmt.Errorf("%s: %w: %s %q; %s is what such models are run with", k.File(), infer.ErrUnsupported, act, s, want[0]))
	}
	switch p.arch {
	case "gemma3":
		if k.flag("use_bidirectional_attention", false) {
			k.keep(fmt.Errorf("%s: %w: use_bidirectional_attention: an encoder", k.File(), infer.ErrUnsupported))
		}
		scalar, ok, err := k.OptFloat("query_pre_attn_scalar")
		k.keep(err)
		if !ok {
			scalar = 256
		}
		if !(scalar > 0 && scalar <= math.MaxFloat32) {
			k.bad("query_pre_attn_scalar is %g, want a number above 0", scalar)
		}
		p.attnScale = 1 / num.Sqrt(float32(scalar))
		if p.local != nil {
			// Local layers know no scaling at all.
			p.local = &ropeParams{dims: p.local.dims, neox: p.local.neox, base: p.local.base, scale: 1, attn: 1}
		}
	case "qwen3moe":
		p.normWeights = k.flag("norm_topk_prob", false)
	}
}

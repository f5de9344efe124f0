package transformer

import (
	"math"

	"quern/internal/pyjson"
	"quern/model"
	"quern/runtime/num"
)

// configLongrope sets the factors of longrope scaling, which the conversion leaves
// out, the original context, and the factor of sines and cosines.
func (p *params) configLongrope(k *settings, r *model.Rope) {
	p.long, p.short = p.longropeFactors(k, r, "long_factor"), p.longropeFactors(k, r, "short_factor")
	longest, err := k.Size("max_position_embeddings")
	k.keep(err)
	original, ok := k.size("original_max_position_embeddings")
	factor, hasFactor, err := r.Float("factor")
	k.keep(err)
	if v, _, _ := k.Find("rope_parameters"); v != nil {
		// Configs of transformers 5 have it among the parameters, where a factor
		// comes before the quotient.
		n, there, err := r.Float("original_max_position_embeddings")
		k.keep(err)
		original, ok = int(n), there && n >= 1 && n <= math.MaxInt32 && !hasFactor
	}
	switch {
	case original <= 0:
		original = int(longest)
	case ok:
		factor, hasFactor = float64(longest)/float64(original), true
	}
	attn, given, err := r.Float("attention_factor")
	k.keep(err)
	if !given {
		if !hasFactor || original < 2 {
			k.bad("longrope scaling: neither factor, nor original_max_position_embeddings, nor attention_factor is given")
			return
		}
		attn = 1
		if factor > 1 {
			attn = math.Sqrt(1 + float64(num.Log64(factor)/num.Log64(float64(original))))
		}
	}
	// The angles are divided by the factors alone.
	p.global.scale, p.global.attn, p.global.original = 1, attn, original
}

// longropeFactors reads one of the two lists, a number for each pair of values.
func (p *params) longropeFactors(k *settings, r *model.Rope, key string) []float32 {
	v, _ := r.Params.Get(key)
	list, ok := v.([]any)
	if !ok || len(list) != p.global.dims/2 {
		k.bad("longrope scaling: %s is %s, want a list of %d numbers", key, pyjson.Show(v), p.global.dims/2)
		return nil
	}
	out := make([]float32, len(list))
	for i, e := range list {
		n, ok := e.(pyjson.Number)
		if out[i] = float32(n.Float64()); !ok || !(out[i] > 0) {
			k.bad("longrope scaling: %s holds %s, want numbers above 0", key, pyjson.Show(e))
			return nil
		}
	}
	return out
}

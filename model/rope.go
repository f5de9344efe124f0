package model

import (
	"fmt"

	"quern/internal/pyjson"
)

// Rope is how a model rotates queries and keys, read from any of the places
// where configs keep it: rope_theta at the top, rope_scaling, rope_parameters,
// or rope_parameters per layer type.
type Rope struct {
	// Theta is the base of global layers. HasTheta is false when neither the
	// file nor the class of its model_type gives one.
	Theta    float64
	HasTheta bool
	// LocalTheta is the base of sliding-window layers, where it differs.
	LocalTheta    float64
	HasLocalTheta bool
	// Type is the kind of scaling: linear, yarn, llama3, ...; empty for none.
	Type string
	// Params holds the keys beside the type: factor and the like.
	Params *pyjson.Object

	file string
}

// Rope reads the rotation parameters. The order of precedence is that of the
// converter: rope_parameters (else rope_scaling) first, keys of the root for
// what it lacks.
func (c *Config) Rope() (*Rope, error) {
	from := "rope_parameters"
	if _, _, ok := c.Find(from); !ok {
		from = "rope_scaling"
	}
	all, err := c.Object(from)
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = &pyjson.Object{}
	}
	if !all.Has("full_attention") && !all.Has("sliding_attention") {
		if v, _, _ := c.Find("local_rope_theta", "rope_local_theta", "rope_theta_local", "swa_rope_theta", "rope_local_base_freq"); v != nil {
			local := &pyjson.Object{}
			local.Set("rope_theta", v)
			all.Set("sliding_attention", local)
		}
		mirror := func(name string, keys ...string) {
			if v, _, _ := c.Find(keys...); v != nil {
				all.SetDefault(name, v)
			}
		}
		mirror("rope_theta", "global_rope_theta", "rope_global_theta", "rope_theta_global", "rope_theta", "rotary_emb_base")
		if v, _ := all.Get("type"); v != nil {
			all.SetDefault("rope_type", v)
		}
		mirror("partial_rotary_factor", "partial_rotary_factor", "rope_pct", "rope_percent")
		mirror("original_max_position_embeddings", "original_max_position_embeddings")
	}
	r := &Rope{Params: all, file: c.file}
	if v, ok := all.Get("full_attention"); ok {
		if r.Params, ok = v.(*pyjson.Object); !ok {
			return nil, c.bad(from+".full_attention", v, "an object")
		}
	}
	if v, _ := r.Params.Get("rope_type"); v != nil {
		s, ok := v.(string)
		if !ok {
			return nil, c.bad(from+".rope_type", v, "a string")
		}
		r.Type = s
	}
	if r.Theta, r.HasTheta, err = r.Float("rope_theta"); err != nil {
		return nil, err
	}
	if v, ok := all.Get("sliding_attention"); ok {
		local, ok := v.(*pyjson.Object)
		if !ok {
			return nil, c.bad(from+".sliding_attention", v, "an object")
		}
		if v, _ := local.Get("rope_theta"); v != nil {
			n, ok := v.(pyjson.Number)
			if !ok {
				return nil, c.bad(from+".sliding_attention.rope_theta", v, "a number")
			}
			r.LocalTheta, r.HasLocalTheta = n.Float64(), true
		}
	}
	return r, nil
}

// Float gives a number of Params; ok is false when it is missing or null.
func (r *Rope) Float(key string) (f float64, ok bool, err error) {
	v, _ := r.Params.Get(key)
	if v == nil {
		return 0, false, nil
	}
	n, isNum := v.(pyjson.Number)
	if !isNum {
		return 0, false, fmt.Errorf("%s: %w: rope parameter %s is %s, want a number", r.file, ErrConfig, key, pyjson.Show(v))
	}
	return n.Float64(), true, nil
}

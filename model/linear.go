package model

import (
	"fmt"

	"quern/internal/pyjson"
)

// LinearDims are the sizes of linear attention (Gated DeltaNet), which some layers
// of a model have in place of the usual kind.
type LinearDims struct {
	KeyHeads   int64
	ValueHeads int64 // a multiple of KeyHeads
	KeyDim     int64 // width of a key head and of a query head
	ValueDim   int64
	// Kernel is the length of the convolution over tokens.
	Kernel int64
	// Layers says which layers have it, those of Dims.NextN left out.
	Layers []bool
	// Listed reports that the config lists the layers' kinds; else every
	// Interval-th layer has the usual attention.
	Listed   bool
	Interval int64
}

// KeyRows is how many rows of the joint projection queries have, and how many
// keys.
func (l *LinearDims) KeyRows() int64 { return l.KeyHeads * l.KeyDim }

// ValueRows is how many rows values have.
func (l *LinearDims) ValueRows() int64 { return l.ValueHeads * l.ValueDim }

// Has reports whether layer i has linear attention.
func (l *LinearDims) Has(i int) bool { return l != nil && i < len(l.Layers) && l.Layers[i] }

// maxLayers is more than any model has.
const maxLayers = 1 << 16

func linearDims(r *reader, layers int64) *LinearDims {
	l := &LinearDims{
		KeyHeads:   r.size("linear_num_key_heads"),
		ValueHeads: r.size("linear_num_value_heads"),
		KeyDim:     r.size("linear_key_head_dim"),
		ValueDim:   r.size("linear_value_head_dim"),
		Kernel:     r.size("linear_conv_kernel_dim"),
		Interval:   4,
	}
	if v, _, _ := r.c.Find("full_attention_interval"); v != nil {
		l.Interval = r.size("full_attention_interval")
	}
	if r.err != nil {
		return nil
	}
	if l.ValueHeads%l.KeyHeads != 0 {
		r.err = fmt.Errorf("%s: %w: %d value heads of linear attention do not divide among %d key heads", r.c.File(), ErrConfig, l.ValueHeads, l.KeyHeads)
		return nil
	}
	if layers > maxLayers {
		r.err = fmt.Errorf("%s: %w: num_hidden_layers is %d, which no model has", r.c.File(), ErrConfig, layers)
		return nil
	}
	v, _, _ := r.c.Find("layer_types")
	if v == nil {
		for i := range layers {
			l.Layers = append(l.Layers, (i+1)%l.Interval != 0)
		}
		return l
	}
	l.Listed = true
	list, ok := v.([]any)
	if !ok {
		r.err = r.c.bad("layer_types", v, "a list")
		return nil
	}
	if int64(len(list)) != layers {
		r.err = fmt.Errorf("%s: %w: layer_types has %d entries, num_hidden_layers is %d", r.c.File(), ErrConfig, len(list), layers)
		return nil
	}
	for _, e := range list {
		switch e {
		case "linear_attention", "full_attention":
			l.Layers = append(l.Layers, e == "linear_attention")
		default:
			r.err = fmt.Errorf("%s: %w: layer_types holds %s, known are linear_attention and full_attention", r.c.File(), ErrConfig, pyjson.Show(e))
			return nil
		}
	}
	return l
}

// nextN counts the layers for multi-token prediction: as the config says, else by
// the tensors.
func (m *Model) nextN(r *reader) int64 {
	if n := r.optional("mtp_num_hidden_layers"); n > 0 || r.err != nil {
		return n
	}
	n := 0
	for _, t := range m.Tensors {
		if id, ok := HFID(Qwen35, t.Name); ok && id.MTP && id.Layer < maxLayers {
			n = max(n, id.Layer+1)
		}
	}
	return int64(n)
}

func bailingDims(r *reader, d *Dims) {
	d.NextN = r.optional("num_nextn_predict_layers")
	d.DenseLead = r.optional("first_k_dense_replace")
	if v, _, _ := r.c.Find("moe_shared_expert_intermediate_size"); v != nil {
		d.SharedFFN = r.size("moe_shared_expert_intermediate_size")
	} else if n := r.optional("num_shared_experts"); n > 0 {
		d.SharedFFN = n * r.size("moe_intermediate_size")
	}
}

// optional reads a count that may be missing, null or 0.
func (r *reader) optional(key string) int64 {
	if r.err != nil {
		return 0
	}
	n, _, err := r.c.OptInt(key)
	if err == nil && (n < 0 || n > maxLayers) {
		err = fmt.Errorf("%s: %w: %s is %d, want a number from 0 to %d", r.c.File(), ErrConfig, key, n, maxLayers)
	}
	r.err = err
	return n
}

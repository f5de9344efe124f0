package convert

import (
	"quern/formats/gguf"
)

// qwen35 sets what linear attention and multi-token prediction need.
func (w *paramWriter) qwen35() {
	file, l := w.c.File(), w.d.Linear
	if w.d.NextN > 0 {
		w.u32(file, w.key("nextn_predict_layers"), w.d.NextN)
	}
	w.u32(file, w.key("ssm.conv_kernel"), l.Kernel)
	w.u32(file, w.key("ssm.state_size"), l.KeyDim)
	w.u32(file, w.key("ssm.group_count"), l.KeyHeads)
	w.u32(file, w.key("ssm.time_step_rank"), l.ValueHeads)
	w.u32(file, w.key("ssm.inner_size"), l.ValueRows())
	if l.Listed {
		kinds := make([]bool, w.d.Layers)
		copy(kinds, l.Layers)
		w.meta.Set(w.key("attention.recurrent_layers"), gguf.List(kinds))
	}
	w.u32(file, w.key("full_attention_interval"), l.Interval)
	w.partialRotation(0.25)
	if r, err := w.c.Rope(); err == nil && !r.Params.Has("mrope_section") {
		w.meta.Set(w.key("rope.dimension_sections"), gguf.List([]int32{11, 11, 10, 0}))
	}
}

// bailing sets what Ling and Ring 2.0 need.
func (w *paramWriter) bailing() {
	file := w.c.File()
	w.partialRotation(0.5)
	w.must("leading_dense_block_count", "first_k_dense_replace")
	w.must("vocab_size", "vocab_size")
	w.must("expert_feed_forward_length", "moe_intermediate_size")
	w.u32(file, w.key("expert_shared_feed_forward_length"), w.d.SharedFFN)
	scale, err := w.c.Float("routed_scaling_factor")
	w.keep(err)
	w.f32(file, w.key("expert_weights_scale"), scale)
	w.must("expert_shared_count", "num_shared_experts")
	if v, _, _ := w.c.Find("norm_topk_prob"); v == nil {
		_, err := w.c.Int("norm_topk_prob") // names what is missing
		w.keep(err)
	}
	norm, err := w.c.Bool("norm_topk_prob", false)
	w.keep(err)
	w.meta.Set(w.key("expert_weights_norm"), gguf.Scalar(norm))
	w.size("nextn_predict_layers", "num_nextn_predict_layers")
}

// must sets a u32 from a key that the config has to have.
func (w *paramWriter) must(name, key string) {
	n, err := w.c.Int(key)
	w.keep(err)
	w.u32(w.c.File(), w.key(name), n)
}

// partialRotation sets how many values of a head are rotated.
func (w *paramWriter) partialRotation(share float64) {
	dim, ok, err := w.c.OptInt("head_dim")
	w.keep(err)
	if !ok {
		dim = w.d.Hidden / w.d.Heads
	}
	r, err := w.c.Rope()
	if err == nil {
		f, ok, ferr := r.Float("partial_rotary_factor")
		if err = ferr; ok {
			share = f
		}
	}
	w.keep(err)
	w.u32(w.c.File(), w.key("rope.dimension_count"), int64(float64(dim)*share))
}

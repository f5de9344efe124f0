package model

import (
	"fmt"
	"math"

	"quern/tensor"
)

// Dims are the sizes of a model, whatever its form.
type Dims struct {
	// Family is the value of general.architecture. In GGUF form it may be one
	// that quern does not convert.
	Family  Family
	Vocab   int64 // rows of the embedding
	Hidden  int64
	Layers  int64
	Heads   int64
	KVHeads int64
	// HeadDim is the width of one head. It is stated by the config or by the
	// query weights, and need not be Hidden / Heads.
	HeadDim int64
	FFN     int64
	Context int64
	// Experts, ExpertsUsed and ExpertFFN are 0 in dense models.
	Experts     int64
	ExpertsUsed int64
	ExpertFFN   int64
	// SharedFFN is the width of the experts that every token goes through, all
	// together, and DenseLead the number of layers in front that have no experts.
	SharedFFN int64
	DenseLead int64
	// NextN is how many of Layers, the last ones, foretell further tokens.
	NextN int64
	// Linear is nil in models without linear attention.
	Linear *LinearDims

	RopeTheta float64
	NormEps   float64
	// Tied reports that the embedding serves as the output head.
	Tied bool
}

// Dims reads the sizes from the config or the metadata and holds them against
// the embedding and the query weights.
func (m *Model) Dims() (*Dims, error) {
	switch m.Form {
	case HF:
		return m.hfDims()
	case GGUF:
		return m.ggufDims()
	}
	return nil, fmt.Errorf("%w: no sizes of a %s model", ErrForm, m.Form)
}

func (m *Model) hfDims() (*Dims, error) {
	c := m.Config
	f, ok := FamilyOf(c.Architecture())
	if !ok {
		return nil, UnknownArchitecture(c)
	}
	d := &Dims{Family: f}
	r := reader{c: c}
	d.Vocab = r.size("vocab_size")
	d.Hidden = r.size("hidden_size")
	d.Layers = r.size("num_hidden_layers")
	d.Heads = r.size("num_attention_heads")
	d.KVHeads = d.Heads
	if v, _, _ := c.Find("num_key_value_heads"); v != nil {
		d.KVHeads = r.size("num_key_value_heads")
	}
	d.FFN = r.size("intermediate_size")
	d.Context, _, _ = c.OptInt("max_position_embeddings")
	d.NormEps = r.float("rms_norm_eps")
	switch f {
	case Qwen35:
		d.Linear, d.NextN = linearDims(&r, d.Layers), m.nextN(&r)
	case BailingMoE2:
		bailingDims(&r, d)
	}
	d.Layers += d.NextN
	if v, _, _ := c.Find("num_local_experts", "num_experts"); v != nil && (f == Qwen3MoE || f == BailingMoE2 || c.Architecture() == "MixtralForCausalLM") {
		d.Experts = r.size("num_local_experts", "num_experts")
		d.ExpertsUsed = r.size("num_experts_per_tok")
		d.ExpertFFN = d.FFN
		if f == Qwen3MoE || f == BailingMoE2 {
			d.ExpertFFN = r.size("moe_intermediate_size")
		}
	}
	tie, err := c.Bool("tie_word_embeddings", false)
	if r.err == nil {
		r.err = err
	}
	d.Tied = tie
	rope, err := c.Rope()
	if r.err == nil {
		r.err = err
	}
	if r.err != nil {
		return nil, r.err
	}
	d.RopeTheta = rope.Theta
	if d.HeadDim, err = m.headDim(d); err != nil {
		return nil, err
	}
	if d.Heads%d.KVHeads != 0 {
		return nil, fmt.Errorf("%s: %w: %d attention heads do not divide into %d key-value heads", c.File(), ErrConfig, d.Heads, d.KVHeads)
	}
	if e := m.ByRole(TokenEmbd, -1, ".weight"); e != nil && len(e.Shape) == 2 && e.Shape[0] != d.Vocab && f != Gemma3 {
		return nil, fmt.Errorf("%w: %s has %d rows, vocab_size in %s is %d", ErrTensors, e.Name, e.Shape[0], c.File(), d.Vocab)
	}
	return d, nil
}

// reader keeps the first error of a run of lookups.
type reader struct {
	c   *Config
	err error
}

func (r *reader) size(keys ...string) int64 {
	if r.err != nil {
		return 0
	}
	var n int64
	n, r.err = r.c.Size(keys...)
	if r.err == nil && n > math.MaxInt32 {
		_, key, _ := r.c.Find(keys...)
		r.err = fmt.Errorf("%s: %w: %s is %d, which no model has", r.c.File(), ErrConfig, key, n)
	}
	return n
}

func (r *reader) float(key string) float64 {
	if r.err != nil {
		return 0
	}
	var f float64
	f, r.err = r.c.Float(key)
	return f
}

// headDim takes head_dim from the config when it is there, else from the rows
// of the query weights.
func (m *Model) headDim(d *Dims) (int64, error) {
	c := m.Config
	var q *tensor.Tensor
	for i := range min(d.Layers, int64(len(m.Tensors))) {
		if q = m.ByRole(AttnQ, int(i), ".weight"); q != nil {
			break
		}
	}
	n, ok, err := c.OptInt("head_dim")
	switch {
	case err != nil:
		return 0, err
	case ok && n <= 0:
		return 0, fmt.Errorf("%s: %w: head_dim is %d, want a number above 0", c.File(), ErrConfig, n)
	case !ok && d.Family != Qwen35 && q != nil && len(q.Shape) == 2 && q.Shape[0]%d.Heads == 0:
		n = q.Shape[0] / d.Heads
	case !ok && d.Hidden%d.Heads == 0:
		n = d.Hidden / d.Heads
	case !ok:
		return 0, fmt.Errorf("%s: %w: no head_dim, and hidden_size %d does not divide by %d heads", c.File(), ErrConfig, d.Hidden, d.Heads)
	}
	if n > math.MaxInt32 {
		return 0, fmt.Errorf("%s: %w: head_dim is %d, which no model has", c.File(), ErrConfig, n)
	}
	rows := n * d.Heads
	if d.Family == Qwen35 {
		rows *= 2 // a gate beside every query
	}
	if q != nil && len(q.Shape) == 2 && q.Shape[0] != rows {
		return 0, fmt.Errorf("%w: %s has %d rows, %d heads of head_dim %d need %d", ErrTensors, q.Name, q.Shape[0], d.Heads, n, rows)
	}
	return n, nil
}

func (m *Model) ggufDims() (*Dims, error) {
	arch, err := m.Meta.Text("general.architecture")
	if err != nil {
		return nil, err
	}
	d := &Dims{Family: Family(arch)}
	var first error
	size := func(key string) int64 {
		n, err := m.Meta.Int64(arch + "." + key)
		if err == nil && (n <= 0 || n > math.MaxInt32) {
			err = fmt.Errorf("key %s.%s: %w: %d is no size", arch, key, ErrConfig, n)
		}
		if first == nil {
			first = err
		}
		return n
	}
	optional := func(key string, def int64) int64 {
		if !m.Meta.Has(arch + "." + key) {
			return def
		}
		return size(key)
	}
	d.Hidden = size("embedding_length")
	d.Layers = size("block_count")
	d.Heads = size("attention.head_count")
	d.KVHeads = optional("attention.head_count_kv", d.Heads)
	d.FFN = optional("feed_forward_length", 0)
	d.Context = size("context_length")
	d.Experts = optional("expert_count", 0)
	d.ExpertsUsed = optional("expert_used_count", 0)
	if d.Experts > 0 {
		d.ExpertFFN = optional("expert_feed_forward_length", d.FFN)
	}
	if first != nil {
		return nil, first
	}
	d.HeadDim = optional("attention.key_length", d.Hidden/d.Heads)
	if first != nil {
		return nil, first
	}
	if d.NormEps, err = m.Meta.Float64(arch + ".attention.layer_norm_rms_epsilon"); err != nil {
		return nil, err
	}
	d.RopeTheta = 10000 // llama.cpp's default
	if m.Meta.Has(arch + ".rope.freq_base") {
		if d.RopeTheta, err = m.Meta.Float64(arch + ".rope.freq_base"); err != nil {
			return nil, err
		}
	}
	e := m.Tensor("token_embd.weight")
	if e == nil {
		return nil, fmt.Errorf("%w: token_embd.weight is missing", ErrTensors)
	}
	d.Vocab = e.Shape.Rows()
	d.Tied = m.Tensor("output.weight") == nil
	return d, nil
}

// UnknownArchitecture is the error for a config whose architecture is not
// converted.
func UnknownArchitecture(c *Config) error {
	name := c.Architecture()
	if name == "" {
		return fmt.Errorf("%s: %w: architectures names none; known are %v", c.File(), ErrArchitecture, Architectures())
	}
	return fmt.Errorf("%s: %w %s; known are %v", c.File(), ErrArchitecture, name, Architectures())
}

package transformer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"quern/formats/gguf"
	"quern/model"
	infer "quern/runtime"
	"quern/runtime/num"
	"quern/tensor"
)

// params are a decoder's settings, whatever file they come from.
type params struct {
	arch    string
	vocab   int
	hidden  int
	layers  int
	heads   int
	kvHeads int
	headDim int
	ffn     int
	context int
	eps     float32

	// sliding says for each layer whether it sees only the last window
	// positions, its own among them, and turns by the local angles.
	sliding []bool
	window  int
	global  *ropeParams
	local   *ropeParams // nil when no layer slides by other angles
	// long and short are the factors of longrope, for contexts above and up to
	// global.original.
	long, short []float32
	dynamic     float64 // factor of dynamic scaling of the base; 0 for none

	embedScale  float32 // of the embedding
	attnScale   float32 // of query times key
	attnSoftcap float32 // 0 for none
	scalesQuery bool    // llama.cpp applies attnScale to the query
	softcap     float32 // of the logits, 0 for none
	gelu        bool    // else SiLU

	experts, used int
	expertFFN     int
	sigmoid       bool // how the router's outputs become weights; else softmax
	normWeights   bool
	weightScale   float32
	sharedFFN     int // 0 for no shared expert
	// denseLead is how many layers in front have no experts. Of groups of experts
	// only the best groupsUsed are chosen from; groups is 0 or 1 for no such choice.
	denseLead          int
	groups, groupsUsed int

	fused      bool          // query, key and value rows in one matrix
	gatedQuery bool          // a gate beside each query head
	linear     *linearParams // nil for none
}

// families are the architectures that are run.
func families() []string {
	return []string{"bailingmoe2", "gemma2", "gemma3", "llama", "qwen2", "qwen2moe", "qwen3", "qwen35", "qwen3moe"}
}

// keys reads settings and keeps the first error.
type keys struct {
	meta *gguf.Metadata
	arch string
	err  error
}

func (k *keys) keep(err error) {
	if k.err == nil && err != nil {
		k.err = fmt.Errorf("%w: %w", infer.ErrModel, err)
	}
}

func (k *keys) has(key string) bool { return k.meta.Has(k.arch + "." + key) }

func (k *keys) int(key string, def int) int {
	if !k.has(key) {
		return def
	}
	n, err := k.meta.Int64(k.arch + "." + key)
	if err == nil && (n < 0 || n > 1<<31-1) {
		err = fmt.Errorf("key %s.%s: %d is out of range", k.arch, key, n)
	}
	k.keep(err)
	return int(n)
}

func (k *keys) float(key string, def float64) float64 {
	if !k.has(key) {
		return def
	}
	f, err := k.meta.Float64(k.arch + "." + key)
	k.keep(err)
	return f
}

func (k *keys) bool(key string, def bool) bool {
	if !k.has(key) {
		return def
	}
	b, err := k.meta.Bool(k.arch + "." + key)
	k.keep(err)
	return b
}

func (k *keys) text(key, def string) string {
	if !k.has(key) {
		return def
	}
	s, err := k.meta.Text(k.arch + "." + key)
	k.keep(err)
	return s
}

// fromMeta reads the settings of a GGUF file, with llama.cpp's defaults, and what
// the config of the checkpoint adds that it was made of; nil for a file.
func fromMeta(ctx context.Context, m *model.Model, c *model.Config) (*params, error) {
	arch, err := m.Meta.Text("general.architecture")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", infer.ErrModel, err)
	}
	if !slices.Contains(families(), arch) {
		return nil, fmt.Errorf("%w: architecture %q; %v are run", infer.ErrUnsupported, arch, families())
	}
	d, err := m.Dims()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", infer.ErrModel, err)
	}
	k := &keys{meta: m.Meta, arch: arch}
	p := &params{
		arch: arch, vocab: int(d.Vocab), hidden: int(d.Hidden), layers: int(d.Layers), heads: int(d.Heads), kvHeads: int(d.KVHeads),
		headDim: int(d.HeadDim), ffn: int(d.FFN), context: int(d.Context), eps: float32(d.NormEps),
		experts: int(d.Experts), used: int(d.ExpertsUsed), expertFFN: int(d.ExpertFFN),
		embedScale: 1, normWeights: true, weightScale: 1,
	}
	if v := k.int("attention.value_length", p.headDim); v != p.headDim {
		k.keep(fmt.Errorf("%w: values of %d in heads of %d", infer.ErrUnsupported, v, p.headDim))
	}
	// Layers for multi-token prediction are the last ones, and are not run.
	if p.arch == "qwen35" || p.arch == "bailingmoe2" {
		p.layers -= k.int("nextn_predict_layers", 0)
	}
	p.attnScale = 1 / num.Sqrt(float32(p.headDim))
	p.moe(k)
	p.rope(k, d)
	p.family(k)
	if k.err != nil {
		return nil, k.err
	}
	if err := p.check(m); err != nil {
		return nil, err
	}
	if err := p.ropeTensors(ctx, m); err != nil {
		return nil, err
	}
	if c != nil {
		return p, p.fromConfig(c)
	}
	return p, p.longropeTensors(ctx, m)
}

// moe reads how experts are weighed. Scale, norm and gating function are read for
// bailingmoe2 only, as llama.cpp reads them; other architectures have theirs.
func (p *params) moe(k *keys) {
	if p.experts == 0 {
		return
	}
	if p.used < 1 || p.used > p.experts {
		k.keep(fmt.Errorf("%d of %d experts a token", p.used, p.experts))
	}
	if p.arch == "qwen2moe" {
		p.normWeights = false
		p.sharedFFN = k.int("expert_shared_feed_forward_length", p.ffn)
	}
	if p.arch != "bailingmoe2" {
		return
	}
	p.weightScale = float32(k.float("expert_weights_scale", 1))
	if p.weightScale == 0 {
		p.weightScale = 1
	}
	switch f := k.int("expert_gating_func", 1); f {
	case 0, 1:
	case 2:
		p.sigmoid = true
	default:
		k.keep(fmt.Errorf("%w: expert gating function %d; 1 (softmax) and 2 (sigmoid) are known", infer.ErrUnsupported, f))
	}
}

func (p *params) rope(k *keys, d *model.Dims) {
	r := &ropeParams{
		dims: k.int("rope.dimension_count", p.headDim), neox: p.arch != "llama", base: d.RopeTheta, scale: 1, attn: 1,
		original: k.int("rope.scaling.original_context_length", p.context),
	}
	factor := k.float("rope.scaling.factor", k.float("rope.scale_linear", 0))
	switch kind := k.text("rope.scaling.type", "linear"); kind {
	case "none":
	case "linear", "longrope", "yarn":
		if factor != 0 {
			r.scale = 1 / factor
		}
		if kind == "yarn" {
			r.ext = 1
			r.betaFast, r.betaSlow = 32, 1
		}
	default:
		k.keep(fmt.Errorf("%w: rope.scaling.type %q; none, linear, yarn and longrope are known", infer.ErrUnsupported, kind))
	}
	r.attn = p.yarnMagnitude(k, r)
	p.global = r
}

// yarnMagnitude is llama.cpp's rule for the factor of sines and cosines. With
// YaRN it is chosen such that what newRope multiplies by comes to
// 1 + ln(factor)/10. The keys yarn_ext_factor, yarn_attn_factor, yarn_beta_fast,
// yarn_beta_slow and yarn_log_multiplier are read for none of the architectures here.
func (p *params) yarnMagnitude(k *keys, r *ropeParams) float64 {
	attn := 1.0
	if r.ext != 0 {
		factor := 1 / r.scale
		attn = yarnOf(1, factor) / (1 + float64(0.1*num.Log64(factor)))
	}
	return float64(attn * k.float("rope.scaling.attn_factor", 1))
}

// yarnOf is 1 + m ln(factor)/10, 1 where nothing is stretched.
func yarnOf(m, factor float64) float64 {
	if factor <= 1 {
		return 1
	}
	return float64(float64(0.1*m)*num.Log64(factor)) + 1
}

// family sets what an architecture has of its own.
func (p *params) family(k *keys) {
	p.sliding = make([]bool, max(0, min(p.layers, 1<<16)))
	pattern := 0
	switch p.arch {
	case "gemma3":
		pattern = 6
	case "gemma2":
		pattern = 2
	case "qwen35":
		p.gatedQuery = true
		p.linearKeys(k)
		return
	case "bailingmoe2":
		p.fused = true
		p.bailing(k)
		return
	default:
		return
	}
	p.gelu, p.scalesQuery = true, true
	p.embedScale = num.Sqrt(float32(p.hidden))
	p.softcap = float32(k.float("final_logit_softcapping", 0))
	if p.arch == "gemma2" {
		p.attnSoftcap = float32(k.float("attn_logit_softcapping", 50))
		p.softcap = float32(k.float("final_logit_softcapping", 30))
	}
	// The largest of each scales by the width that its heads would have if they
	// shared the hidden size. No key says so.
	if p.arch == "gemma3" && p.layers == 62 || p.arch == "gemma2" && p.layers == 46 {
		p.attnScale = 1 / num.Sqrt(float32(p.hidden/p.heads))
	}
	if p.window = k.int("attention.sliding_window", 0); p.arch == "gemma2" && !k.has("attention.sliding_window") {
		p.window = 4096
	}
	if p.window == 0 {
		return
	}
	if k.has("attention.sliding_window_pattern") {
		n, err := k.meta.Int64(k.arch + ".attention.sliding_window_pattern")
		if err == nil && n > 0 && n < 1<<16 {
			pattern = int(n)
		} else {
			k.keep(fmt.Errorf("%w: attention.sliding_window_pattern by layer", infer.ErrUnsupported))
		}
	}
	for i := range p.sliding {
		p.sliding[i] = i%pattern < pattern-1
	}
	if p.arch == "gemma3" {
		// Local layers know no scaling of positions.
		l := *p.global
		l.base = k.float("rope.freq_base_swa", 10000)
		l.scale = 1
		p.local = &l
	}
}

// ropeTensors reads the factors of llama3 scaling, which files keep as a tensor.
func (p *params) ropeTensors(ctx context.Context, m *model.Model) (err error) {
	if p.arch != "gemma3" && p.arch != "gemma2" {
		p.global.factors, err = p.factors(ctx, m, "rope_freqs.weight")
	}
	return err
}

// factors reads a tensor of a number for each pair of values; nil if there is none.
func (p *params) factors(ctx context.Context, m *model.Model, name string) ([]float32, error) {
	t := m.Tensor(name)
	if t == nil {
		return nil, nil
	}
	return readVector(ctx, t, p.global.dims/2)
}

// longropeTensors reads the factors of longrope scaling.
func (p *params) longropeTensors(ctx context.Context, m *model.Model) (err error) {
	if kind, _ := m.Meta.Text(p.arch + ".rope.scaling.type"); kind != "longrope" {
		return nil
	}
	if p.long, err = p.factors(ctx, m, "rope_factors_long.weight"); err != nil {
		return err
	}
	if p.short, err = p.factors(ctx, m, "rope_factors_short.weight"); err != nil {
		return err
	}
	if p.long == nil || p.short == nil {
		return fmt.Errorf("%w: rope scaling is longrope, but the factors are missing: tensors rope_factors_long.weight and rope_factors_short.weight", infer.ErrModel)
	}
	return nil
}

// check holds the sizes against each other and against the number of tensors,
// before anything is sized by them.
func (p *params) check(m *model.Model) error {
	for _, c := range []struct {
		what string
		n    int
	}{{"vocabulary", p.vocab}, {"hidden size", p.hidden}, {"layer count", p.layers}, {"head count", p.heads}, {"key-value head count", p.kvHeads}, {"head size", p.headDim}} {
		if c.n <= 0 {
			return fmt.Errorf("%w: a %s of %d", infer.ErrModel, c.what, c.n)
		}
	}
	switch {
	case p.layers > len(m.Tensors):
		return fmt.Errorf("%w: %d layers, the file has %d tensors", infer.ErrModel, p.layers, len(m.Tensors))
	case p.heads%p.kvHeads != 0:
		return fmt.Errorf("%w: %d heads do not divide among %d of keys and values", infer.ErrModel, p.heads, p.kvHeads)
	case p.global.dims > p.headDim:
		return fmt.Errorf("%w: rotary embeddings of %d values in heads of %d", infer.ErrModel, p.global.dims, p.headDim)
	case p.experts > 0 && (p.used < 1 || p.used > p.experts || p.expertFFN < 1):
		return fmt.Errorf("%w: %d of %d experts of %d", infer.ErrModel, p.used, p.experts, p.expertFFN)
	case p.experts == 0 && p.ffn < 1:
		return fmt.Errorf("%w: no feed-forward size", infer.ErrModel)
	}
	if e := m.Tensor("token_embd.weight"); e == nil || !e.Shape.Equal(tensor.Shape{int64(p.vocab), int64(p.hidden)}) {
		return errors.Join(fmt.Errorf("%w: token_embd.weight is missing or not %d wide", infer.ErrModel, p.hidden))
	}
	return nil
}

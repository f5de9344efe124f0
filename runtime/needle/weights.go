package needle

import (
	"context"
	"fmt"

	"quern/formats/cact"
	infer "quern/runtime"
	"quern/tensor"
	"quern/tensor/cq"
)

// stored weights of one tensor: floats, or packed indices with norms and codec.
type entry struct {
	t, norms *tensor.Tensor
	codec    *cq.Codec
}

// weights are a model's tensors by what they do. Norm weights have 1 added.
type weights struct {
	embed  *matrix
	norm   []float32
	layers []layer
	sites  []engram
	mixer
	p1, p2 []int32
	heads  []head
	// Of speech models: cross has the attention of the decoder's layers over what
	// was heard, hear the encoder. Of the encoder itself: conv.
	cross []cross
	hear  *hearing
	conv  []conv
}

// mixer has the weights by which the layers of a stack mix their lanes.
type mixer struct {
	// (layers), (layers), (layers)
	aPre, aPost, aRes []float32
	// (layers, lanes), (layers, lanes), (layers, lanes, lanes)
	bPre, bPost, bRes []float32
	// rows are (layers, lanes), (layers, lanes), (layers, lanes, lanes)
	phiPre, phiPost, phiRes *matrix
}

func (g *gatherer) mixer(at string) mixer {
	return mixer{
		aPre: g.vector(at + "mhc_a_pre"), aPost: g.vector(at + "mhc_a_post"), aRes: g.vector(at + "mhc_a_res"),
		bPre: g.vector(at + "mhc_b_pre"), bPost: g.vector(at + "mhc_b_post"), bRes: g.vector(at + "mhc_b_res"),
		phiPre: g.matrix(at + "mhc_phi_pre"), phiPost: g.matrix(at + "mhc_phi_post"), phiRes: g.matrix(at + "mhc_phi_res"),
	}
}

type layer struct {
	normIn, qNorm, kNorm, postNorm, preHada []float32
	q, k, v, gate, out                      *matrix
	qTaps, kTaps, vTaps                     []float32 // (taps, width of q, k, v), nil for none
	attnGate                                float32   // after its sigmoid
	hadamard
}

// hadamard is a Hadamard layer.
type hadamard struct {
	d1, d2, d3 []float32 // (hada)
	// Of generation 3.
	b2, d4       []float32
	kron         [3]kronecker
	condV, condU []float32 // (rank, d), (rank, hada)
	rank         int
}

// kronecker is one step A^T z B of a Hadamard layer, both factors transposed.
type kronecker struct {
	a, b []float32
}

type engram struct {
	tables, key, value *matrix
	taps               []float32 // (convTaps, d)
}

// gatherer finds weights by the names that the archive's format gives them and
// keeps the first error.
type gatherer struct {
	ctx    context.Context
	find   func(name string) (entry, bool)
	shapes map[string]tensor.Shape
	err    error
}

func (g *gatherer) get(name string) (entry, tensor.Shape, bool) {
	if g.err != nil {
		return entry{}, nil, false
	}
	s, ok := g.shapes[name]
	e, has := g.find(name)
	if !ok || !has {
		g.err = fmt.Errorf("%w: tensor %s is missing", infer.ErrModel, name)
		return entry{}, nil, false
	}
	return e, s, true
}

// matrix gives a tensor as rows of its last axis.
func (g *gatherer) matrix(name string) *matrix {
	e, s, ok := g.get(name)
	if !ok {
		return nil
	}
	m, err := newMatrix(g.ctx, e.t, e.norms, e.codec, int(s.Rows()), int(s.RowLen()))
	g.err = err
	return m
}

func (g *gatherer) vector(name string) []float32 {
	e, s, ok := g.get(name)
	if !ok {
		return nil
	}
	if e.codec != nil || !e.t.Shape.Equal(s) {
		g.err = fmt.Errorf("%w: tensor %s is %v, want %v of floats", infer.ErrModel, name, e.t.Shape, s)
		return nil
	}
	x, err := floats(g.ctx, e.t)
	g.err = err
	return x
}

// norm is a vector with 1 added.
func (g *gatherer) norm(name string) []float32 {
	x := g.vector(name)
	for i := range x {
		x[i]++
	}
	return x
}

// transposed swaps the axes of a matrix of floats.
func (g *gatherer) transposed(name string) []float32 {
	x, s := g.vector(name), g.shapes[name]
	if g.err != nil {
		return nil
	}
	rows, cols := int(s[0]), int(s[1])
	out := make([]float32, len(x))
	for i := range rows {
		for j := range cols {
			out[j*rows+i] = x[i*cols+j]
		}
	}
	return out
}

// permutation reads places that were stored as floats.
func (g *gatherer) permutation(name string, n int) []int32 {
	x := g.vector(name)
	if g.err != nil {
		return nil
	}
	out := make([]int32, n)
	for i, v := range x {
		if !(v >= 0 && v < float32(n)) || float32(int32(v)) != v {
			g.err = fmt.Errorf("%w: tensor %s: place %d is %v, want a whole number below %d", infer.ErrModel, name, i, v, n)
			return nil
		}
		out[i] = int32(v)
	}
	return out
}

// gather finds all weights of a model.
func gather(ctx context.Context, p *shape, h *cact.Header, heads []cact.Head, find func(string) (entry, bool)) (*weights, error) {
	rank := int64(cact.ConditionRank)
	if e, ok := find("layer00.cond_u"); ok && len(e.t.Shape) == 2 {
		rank = e.t.Shape[0]
	}
	g := &gatherer{ctx: ctx, find: find, shapes: map[string]tensor.Shape{}}
	for _, s := range h.Tensors(rank, heads) {
		g.shapes[s.Name] = s.Shape
	}
	w := &weights{
		embed: g.matrix(cact.NameEmbedding), norm: g.norm(cact.NameFinalNorm),
		mixer: g.mixer(""),
	}
	if p.generation == 3 {
		w.p1, w.p2 = g.permutation("hada_p1", p.hada), g.permutation("hada_p2", p.hada)
	}
	for i := 0; i < p.layers && g.err == nil; i++ {
		w.layers = append(w.layers, g.layer(p, fmt.Sprintf("layer%02d.", i), int(rank)))
	}
	for i := 0; i < len(h.Sites) && g.err == nil; i++ {
		at := fmt.Sprintf("engram%d.", i)
		w.sites = append(w.sites, engram{g.matrix(at + "tables"), g.matrix(at + "key_proj"), g.matrix(at + "value_proj"), g.vector(at + "taps")})
	}
	for i := 0; i < len(heads) && g.err == nil; i++ {
		w.heads = append(w.heads, g.head(p, heads[i]))
	}
	if h.Audio != nil && g.err == nil {
		g.speech(w, h, int(rank))
	}
	return w, g.err
}

func (g *gatherer) layer(p *shape, at string, rank int) layer {
	l := layer{
		normIn: g.norm(at + "norm_in"), qNorm: g.norm(at + "q_norm"), kNorm: g.norm(at + "k_norm"), postNorm: g.norm(at + "post_norm"),
		preHada: g.norm(at + "pre_hada"), q: g.matrix(at + "q_proj"), k: g.matrix(at + "k_proj"), v: g.matrix(at + "v_proj"),
		gate: g.matrix(at + "gate_proj"), out: g.matrix(at + "out_proj"), attnGate: g.gate(at + "attn_gate"),
	}
	if p.taps > 0 {
		l.qTaps, l.kTaps, l.vTaps = g.vector(at+"q_taps"), g.vector(at+"k_taps"), g.vector(at+"v_taps")
	}
	if p.generation == 3 {
		l.hadamard = g.hadamard(at, rank)
		return l
	}
	l.d1, l.d2, l.d3 = g.vector(at+"d1"), g.vector(at+"d2"), g.vector(at+"d3")
	return l
}

// hadamard gathers a Hadamard layer of generation 3.
func (g *gatherer) hadamard(at string, rank int) hadamard {
	l := hadamard{d1: g.vector(at + "d1"), d2: g.vector(at + "d2"), d3: g.vector(at + "d3"), b2: g.vector(at + "b2"), d4: g.vector(at + "d4"), rank: rank}
	for i := range l.kron {
		w := at + "w" + string(rune('1'+i))
		l.kron[i] = kronecker{g.transposed(w + "a"), g.transposed(w + "b")}
	}
	l.condV, l.condU = g.transposed(at+"cond_v"), g.vector(at+"cond_u")
	return l
}

// gate is the sigmoid of a single number.
func (g *gatherer) gate(name string) float32 {
	x := g.vector(name)
	if g.err != nil {
		return 0
	}
	return sigmoid(x[0])
}

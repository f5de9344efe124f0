package needle

import (
	"fmt"
	"math"

	"quern/formats/cact"
	infer "quern/runtime"
	"quern/runtime/num"
)

const eps = 1e-6

// shape is the geometry of a model, in ints.
type shape struct {
	generation     int
	vocab, out     int // token ids; ids that can be given
	d, lanes       int
	layers         int
	heads, kvHeads int
	qk, v          int // values of a head's query or key, and of its value
	context        int
	hada           int // width of the Hadamard layers
	a, b           int // factors of it, generation 3
	taps           int // of the convolutions on q, k and v, 0 for none
	window         int // positions that the KV cache holds, 0 for all
	sliding        int // positions that a local layer sees, 0 for all
	global         uint64
	siteOf         []int // layer -> engram site, -1 for none

	slots, sub, tables int // of an engram
	orders             []int
	orderHeads         int // tables of an order
	seedStride         uint32
	convTaps, dilation int
	theta              float64
}

func newShape(h *cact.Header) (*shape, error) {
	x, y := h.Blocks()
	p := &shape{
		generation: h.Generation, vocab: int(h.Vocab), out: int(h.OutVocab), d: int(h.DModel), lanes: int(h.Lanes), layers: int(h.Layers),
		heads: int(h.Heads), kvHeads: int(h.KVHeads), qk: int(h.QKHeadDim), v: int(h.VHeadDim), context: int(h.MaxSeq), hada: int(h.HadaN),
		a: int(x), b: int(y), taps: int(h.QKVTaps), window: int(h.KVWindow), sliding: int(h.SlidingWindow), global: h.GlobalMask,
		slots: int(h.EngramSlots), sub: int(h.EngramSubDim), tables: int(h.EngramTables), convTaps: int(h.EngramTaps),
		dilation: int(h.EngramDilation), theta: float64(h.RopeTheta),
	}
	if p.out == 0 {
		p.out = p.vocab
	}
	bad := func(format string, args ...any) (*shape, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{infer.ErrModel}, args...)...)
	}
	switch {
	case p.qk%2 != 0:
		return bad("heads of %d values; rotary embeddings want pairs", p.qk)
	case p.kvHeads == 0 || p.heads%p.kvHeads != 0:
		return bad("%d heads share %d key and value heads", p.heads, p.kvHeads)
	case p.hada < p.d:
		return bad("Hadamard layers of %d values for a width of %d", p.hada, p.d)
	case p.out > p.vocab:
		return bad("a head of %d rows for %d tokens", p.out, p.vocab)
	case !(p.theta > 0) || math.IsInf(p.theta, 0):
		return bad("rotary embeddings of base %g", p.theta)
	}
	p.siteOf = make([]int, p.layers)
	for i := range p.siteOf {
		p.siteOf[i] = -1
	}
	if len(h.Sites) == 0 {
		return p, nil
	}
	for s, layer := range h.Sites {
		if int(layer) >= p.layers {
			return bad("engram %d belongs to layer %d of %d", s, layer, p.layers)
		}
		p.siteOf[layer] = s
	}
	if len(h.Orders) == 0 || p.tables%len(h.Orders) != 0 || p.slots == 0 {
		return bad("%d engram tables of %d slots for %d orders", p.tables, p.slots, len(h.Orders))
	}
	for _, o := range h.Orders {
		p.orders = append(p.orders, int(o))
	}
	p.orderHeads = p.tables / len(p.orders)
	if p.seedStride = h.EngramSeedHeads; p.seedStride == 0 {
		p.seedStride = uint32(p.orderHeads)
	}
	return p, nil
}

// sees is the number of positions that a layer looks back on, itself included;
// 0 for all. window is that of the KV cache.
func (p *shape) sees(layer, window int) int {
	n := window
	if p.sliding > 0 && p.global>>layer&1 == 0 && (n == 0 || p.sliding < n) {
		n = p.sliding
	}
	return n
}

// frequencies are the angles of a head's pairs for one position.
func (p *shape) frequencies() []float64 {
	f := make([]float64, p.qk/2)
	for j := range f {
		f[j] = num.Pow64(p.theta, -float64(2*j)/float64(p.qk))
	}
	return f
}

// angles fills cos and sin, a value a pair, for a position.
func angles(cos, sin []float32, freq []float64, position int) {
	for j, f := range freq {
		s, c := num.SinCos64(float64(float64(position) * f))
		cos[j], sin[j] = float32(c), float32(s)
	}
}

// turn rotates a head: value j with j + half.
func turn(x, cos, sin []float32) {
	half := len(cos)
	for j := range half {
		a, b := x[j], x[j+half]
		x[j] = float32(a*cos[j]) - float32(b*sin[j])
		x[j+half] = float32(b*cos[j]) + float32(a*sin[j])
	}
}

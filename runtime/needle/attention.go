package needle

import (
	"context"

	"quern/runtime/num"
)

// queries is the number of positions whose scores are computed together.
const queries = 16

// cache keeps the keys and values of one layer in float32:
//
//	keys    (kvHeads, room, qk)
//	values  (kvHeads, room, v)
//
// It grows with the text, by doubling, up to the session's context.
type cache struct {
	keys, values []float32
	room         int
}

// reserve makes room for n positions of which used are in use.
func (c *cache) reserve(n, used, most int, p *shape) {
	if n <= c.room {
		return
	}
	room := min(max(n, 2*c.room, 64), most)
	move := func(old []float32, dim int) []float32 {
		out := make([]float32, p.kvHeads*room*dim)
		for h := range p.kvHeads {
			copy(out[h*room*dim:], old[h*c.room*dim:][:used*dim])
		}
		return out
	}
	c.keys, c.values, c.room = move(c.keys, p.qk), move(c.values, p.v), room
}

// attention writes the attention of layer i over the n tokens of buf.x to
// buf.out, after the output projection.
func (s *session) attention(ctx context.Context, i, n int) error {
	p, b, l, mem := s.m.p, &s.buf, &s.m.w.layers[i], &s.layers[i]
	d := p.d
	x := grow(&b.normed, n*d)
	for t := range n {
		num.RMSNorm(x[t*d:][:d], b.x[t*d:][:d], l.normIn, eps)
	}
	in := s.enter(x, n, d, s.opt.Round8)
	qn, kn, vn, on := p.heads*p.qk, p.kvHeads*p.qk, p.kvHeads*p.v, p.heads*p.v
	q, k, v, gate := grow(&b.q, n*qn), grow(&b.k, n*kn), grow(&b.v, n*vn), grow(&b.gate, n*on)
	list := []product{whole(q, l.q, in), whole(k, l.k, in), whole(v, l.v, in), whole(gate, l.gate, in)}
	if err := s.multiply(ctx, list...); err != nil {
		return err
	}
	if p.taps > 0 {
		mem.q.convolve(q, l.qTaps, 1, n)
		mem.k.convolve(k, l.kTaps, 1, n)
		mem.v.convolve(v, l.vTaps, 1, n)
	}
	s.place(q, p.heads, l.qNorm, n)
	s.place(k, p.kvHeads, l.kNorm, n)
	if s.opt.Round8 && p.generation == 3 {
		round8Rows(q, p.qk)
	}
	if s.opt.KV8 {
		round8Rows(k, p.qk)
		round8Rows(v, p.v)
	}
	s.remember(&mem.cache, k, v, n)

	att := grow(&b.att, n*on)
	blocks := (n + queries - 1) / queries
	err := s.each(ctx, p.heads*blocks, func(task int, sc *scratch) error {
		h, first := task%p.heads, task/p.heads*queries
		s.attend(i, h, first, min(queries, n-first), sc)
		return nil
	})
	if err != nil {
		return err
	}
	for j, g := range gate {
		att[j] = float32(att[j] * sigmoid(g))
	}
	return s.multiply(ctx, whole(grow(&b.out, n*d), l.out, s.enter(att, n, on, s.opt.Round8)))
}

// place normalizes the heads of n tokens and turns them to their positions.
func (s *session) place(x []float32, heads int, norm []float32, n int) {
	d := s.m.p.qk
	for t := range n {
		cos, sin := s.buf.cos[t*d/2:][:d/2], s.buf.sin[t*d/2:][:d/2]
		for h := range heads {
			head := x[(t*heads+h)*d:][:d]
			num.RMSNorm(head, head, norm, eps)
			turn(head, cos, sin)
		}
	}
}

// remember puts keys and values of n new tokens into the cache.
func (s *session) remember(c *cache, k, v []float32, n int) {
	p := s.m.p
	c.reserve(s.ready+n, s.ready, s.context, p)
	for t := range n {
		for h := range p.kvHeads {
			at := h*c.room + s.ready + t
			copy(c.keys[at*p.qk:][:p.qk], k[(t*p.kvHeads+h)*p.qk:])
			copy(c.values[at*p.v:][:p.v], v[(t*p.kvHeads+h)*p.v:])
		}
	}
}

// attend computes head h of count tokens from the first-th new one on.
func (s *session) attend(layer, h, first, count int, sc *scratch) {
	p, c := s.m.p, &s.layers[layer].cache
	sees := p.sees(layer, s.window)
	from := func(pos int) int {
		if sees > 0 {
			return max(0, pos-sees+1)
		}
		return 0
	}
	start := s.ready + first
	low, high := from(start), start+count
	if s.whole > 0 {
		high = s.whole
	}
	wide := high - low
	head := h / (p.heads / p.kvHeads) * c.room
	scores := grow(&sc.scores, count*wide)
	num.Dots(scores, wide, num.Matrix{Data: c.keys[(head+low)*p.qk:], Rows: wide, Stride: p.qk},
		num.Matrix{Data: s.buf.q[(first*p.heads+h)*p.qk:], Rows: count, Stride: p.heads * p.qk}, p.qk)
	scale := 1 / num.Sqrt(float32(p.qk))
	for t := range count {
		a, e := from(start+t), start+t+1
		if s.whole > 0 {
			e = s.whole
		}
		row := scores[t*wide+a-low : t*wide+e-low]
		num.Scale(row, scale)
		num.Softmax(row)
		out := s.buf.att[((first+t)*p.heads+h)*p.v:][:p.v]
		num.WeightedSum(out, row, num.Matrix{Data: c.values[(head+a)*p.v:], Rows: e - a, Stride: p.v})
	}
}

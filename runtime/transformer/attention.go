package transformer

import (
	"context"

	infer "quern/runtime"
	"quern/runtime/num"
	"quern/tensor"
	"quern/tensor/quant"
)

// queries is the number of positions whose scores are computed together.
const queries = 16

// attention adds the attention block of layer i to the states of n new tokens.
func (s *session) attention(ctx context.Context, i, n int) error {
	p, b, l := s.m.p, &s.buf, &s.m.w.layers[i]
	in := s.norm(b.x, l.attnNorm, n)
	for _, m := range []linear{l.q, l.k, l.v} {
		s.observe(m.matrix, 0, in)
	}
	qn, kn := p.heads*p.headDim, p.kvHeads*p.headDim
	q, k, v := grow(&b.q, n*qn), grow(&b.k, n*kn), grow(&b.v, n*kn)
	err := s.multiply(ctx, product{dst: q, m: l.q.matrix, bias: l.q.bias, in: in}, product{dst: k, m: l.k.matrix, bias: l.k.bias, in: in},
		product{dst: v, m: l.v.matrix, bias: l.v.bias, in: in})
	if err != nil {
		return err
	}
	s.place(q, p.heads, l.qNorm, i, n)
	s.place(k, p.kvHeads, l.kNorm, i, n)
	if s.act == infer.Q8 {
		// Devices keep 16 bits of keys and values.
		s.roundHalf(k)
		s.roundHalf(v)
	}
	s.remember(i, k, v, n)

	blocks := (n + queries - 1) / queries
	att := grow(&b.att, n*qn)
	err = s.team.each(ctx, p.heads*blocks, func(task int, sc *scratch) error {
		h, first := task%p.heads, task/p.heads*queries
		s.attend(i, h, first, min(queries, n-first), sc)
		return nil
	})
	if err != nil {
		return err
	}
	after := activations{att, n, qn}
	s.observe(l.o.matrix, 0, after)
	out := grow(&b.out, n*p.hidden)
	if err := s.multiply(ctx, product{dst: out, m: l.o.matrix, bias: l.o.bias, in: after}); err != nil {
		return err
	}
	s.add(out, l.postAttn, n)
	return nil
}

// f16 is the codec of halves.
var f16, _ = quant.For(tensor.F16)

// roundHalf rounds values to F16.
func (s *session) roundHalf(x []float32) {
	half := grow(&s.buf.half, 2*len(x))
	f16.EncodeRow(half, x, nil)
	f16.Decode(x, half)
}

// place normalizes the heads of n tokens, where the model does, and turns them
// to their positions.
func (s *session) place(x []float32, heads int, norm []float32, layer, n int) {
	d := s.m.p.headDim
	r, table := s.global, 0
	if s.m.p.sliding[layer] && s.local != s.global {
		r, table = s.local, 1
	}
	half := r.dims / 2
	for t := range n {
		cos, sin := s.buf.cos[table][t*half:][:half], s.buf.sin[table][t*half:][:half]
		for h := range heads {
			head := x[(t*heads+h)*d:][:d]
			if norm != nil {
				num.RMSNorm(head, head, norm, s.m.p.eps)
			}
			r.turn(head, cos, sin)
		}
	}
}

// remember puts keys and values of n new tokens into the cache.
func (s *session) remember(layer int, k, v []float32, n int) {
	p, c := s.m.p, &s.caches[layer]
	c.reserve(s.n+n, s.n, s.context, p.kvHeads, p.headDim)
	d := p.headDim
	for t := range n {
		for h := range p.kvHeads {
			at := (h*c.room + s.n + t) * d
			copy(c.keys[at:][:d], k[(t*p.kvHeads+h)*d:])
			copy(c.values[at:][:d], v[(t*p.kvHeads+h)*d:])
		}
	}
}

// attend computes head h of count tokens from the first-th new one on.
func (s *session) attend(layer, h, first, count int, sc *scratch) {
	p, c, d := s.m.p, &s.caches[layer], s.m.p.headDim
	from := func(pos int) int {
		if p.sliding[layer] {
			return max(0, pos-p.window+1)
		}
		return 0
	}
	start := s.n + first
	low, high := from(start), start+count
	wide := high - low
	head := h / (p.heads / p.kvHeads) * c.room * d
	keys := num.Matrix{Data: c.keys[head+low*d:], Rows: wide, Stride: d}
	stride := p.heads * d
	q := num.Matrix{Data: s.buf.q[first*stride+h*d:], Rows: count, Stride: stride}
	scores := grow(&sc.values, count*wide)
	num.Dots(scores, wide, keys, q, d)
	for t := range count {
		a, b := from(start+t), start+t+1
		row := scores[t*wide+a-low : t*wide+b-low]
		num.Scale(row, p.attnScale)
		if cap := p.attnSoftcap; cap != 0 {
			for i, v := range row {
				row[i] = float32(num.Tanh(v/cap) * cap)
			}
		}
		num.Softmax(row)
		out := s.buf.att[(first+t)*stride+h*d:][:d]
		num.WeightedSum(out, row, num.Matrix{Data: c.values[head+a*d:], Rows: b - a, Stride: d})
	}
}

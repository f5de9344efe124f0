package transformer

import (
	"context"

	"quern/runtime/num"
)

// queries is the number of positions whose scores are computed together.
const queries = 16

// attention adds the attention block of layer i to the states of n new tokens.
func (s *session) attention(ctx context.Context, i, n int) error {
	p, b, l := s.m.p, &s.buf, &s.m.w.layers[i]
	if l.linear != nil {
		return s.linearAttention(ctx, i, n)
	}
	in, err := s.norm(ctx, b.x, l.attnNorm, n)
	if err != nil {
		return err
	}
	qn, kn := p.heads*p.headDim, p.kvHeads*p.headDim
	q, k, v, att := b.forAttention(n, qn, kn)
	if err := s.project(ctx, l, in, q, k, v); err != nil {
		return err
	}
	s.caches[i].reserve(s.n + n)
	s.tasks.place = placeTask{s, i, q, k, v}
	if err := s.team.byRow(ctx, n, &s.tasks.place); err != nil {
		return err
	}

	blocks := (n + queries - 1) / queries
	s.tasks.attend = attendTask{s, i, n}
	if err := s.team.pieces(ctx, p.heads*blocks, &s.tasks.attend); err != nil {
		return err
	}
	if p.gatedQuery {
		for i, g := range b.gates[:len(att)] {
			att[i] = float32(att[i] * num.Sigmoid(g))
		}
	}
	after := activations{att, n, qn}
	s.observe(l.o.matrix, 0, after)
	out := in.x // which nobody needs any more
	if err := s.multiply(ctx, product{dst: out, m: l.o.matrix, bias: l.o.bias, in: after}); err != nil {
		return err
	}
	return s.add(ctx, out, l.postAttn, n)
}

// place normalizes the heads of new token t, where the model does, and turns
// them to its position.
func (s *session) place(x []float32, norm []float32, layer, t int) {
	d := s.m.p.headDim
	r, table := s.global, 0
	if s.m.p.sliding[layer] && s.local != s.global {
		r, table = s.local, 1
	}
	half := r.dims / 2
	cos, sin := s.buf.cos[table][t*half:][:half], s.buf.sin[table][t*half:][:half]
	for ; len(x) > 0; x = x[d:] {
		head := x[:d]
		if norm != nil {
			num.RMSNorm(head, head, norm, s.m.p.eps)
		}
		r.turn(head, cos, sin)
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
	head := h / (p.heads / p.kvHeads)
	stride := p.heads * d
	scores := grow(&sc.values, count*wide)
	c.dots(scores, head, low, high, num.Matrix{Data: s.buf.q[first*stride+h*d:], Rows: count, Stride: stride})
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
		c.weigh(s.buf.att[(first+t)*stride+h*d:][:d], head, a, row)
	}
}

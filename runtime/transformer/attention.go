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
	for _, sp := range s.spans {
		sp.text.caches[i].reserve(sp.at + sp.n)
		s.tasks.place = placeTask{s, i, sp, q, k, v}
		if err := s.team.byRow(ctx, sp.n, &s.tasks.place); err != nil {
			return err
		}
		if err := s.ops.attend(ctx, s, i, sp); err != nil {
			return err
		}
	}
	if p.gatedQuery {
		for i, g := range b.gates[:len(att)] {
			att[i] = float32(att[i] * s.ops.sigmoid(g))
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
	half := r.pairs()
	cos, sin := s.buf.cos[table][t*half:][:half], s.buf.sin[table][t*half:][:half]
	for ; len(x) > 0; x = x[d:] {
		head := x[:d]
		if norm != nil {
			s.ops.norm(head, head, norm, s.m.p.eps)
		}
		r.turn(head, cos, sin)
	}
}

// visible is the first position that a layer's queries at position pos see.
func (p *params) visible(layer, pos int) int {
	if p.sliding[layer] {
		return max(0, pos-p.window+1)
	}
	return 0
}

// attendQuern computes attention of a span in quern's order: scores of all positions that are seen, then
// their softmax, then the values.
func attendQuern(ctx context.Context, s *session, layer int, sp span) error {
	blocks := (sp.n + queries - 1) / queries
	s.tasks.attend = attendTask{s, layer, sp}
	return s.team.pieces(ctx, s.m.p.heads*blocks, &s.tasks.attend)
}

// attend computes head h of count tokens from the first-th of a span on.
func (s *session) attend(layer, h int, sp span, first, count int, sc *scratch) {
	p, c, d := s.m.p, &sp.text.caches[layer], s.m.p.headDim
	start, row := sp.at+first, sp.first+first
	low, high := p.visible(layer, start), start+count
	wide := high - low
	head := h / (p.heads / p.kvHeads)
	stride := p.heads * d
	scores := grow(&sc.values, count*wide)
	c.dots(scores, head, low, high, num.Matrix{Data: s.buf.q[row*stride+h*d:], Rows: count, Stride: stride})
	for t := range count {
		a, b := p.visible(layer, start+t), start+t+1
		scores := scores[t*wide+a-low : t*wide+b-low]
		num.Scale(scores, p.attnScale)
		if cap := p.attnSoftcap; cap != 0 {
			for i, v := range scores {
				scores[i] = float32(num.Tanh(v/cap) * cap)
			}
		}
		num.Softmax(scores)
		c.weigh(s.buf.att[(row+t)*stride+h*d:][:d], head, a, scores)
	}
}

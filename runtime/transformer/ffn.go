package transformer

import (
	"context"
)

// feedForward adds the feed-forward block of layer i to n states.
func (s *session) feedForward(ctx context.Context, i, n int) error {
	p, b, l := s.m.p, &s.buf, &s.m.w.layers[i]
	in, err := s.norm(ctx, b.x, l.ffnNorm, n)
	if err != nil {
		return err
	}
	out := in.x // which gated needs no more once it writes there
	if l.router.matrix != nil {
		out = grow(&b.out, n*p.hidden)
		err = s.mixture(ctx, i, in, out)
	} else {
		err = s.gated(ctx, l.gate, l.up, l.down, 0, in, out)
	}
	if err != nil {
		return err
	}
	return s.add(ctx, out, l.postFFN, n)
}

// gated computes down(act(gate(x)) * up(x)) for part number part of the three
// matrices. out may be where in is.
func (s *session) gated(ctx context.Context, gate, up, down linear, part int, in activations, out []float32) error {
	s.observe(gate.matrix, part, in)
	s.observe(up.matrix, part, in)
	ffn := gate.rows
	g, u := s.buf.forGated(in.rows * ffn)
	err := s.multiply(ctx, product{dst: g, m: gate.matrix, part: part, bias: gate.bias, in: in}, product{dst: u, m: up.matrix, part: part, bias: up.bias, in: in})
	if err != nil {
		return err
	}
	act := s.ops.silu
	if s.m.p.gelu {
		act = s.ops.gelu
	}
	s.tasks.act = actTask{g, u, ffn, act}
	if err := s.team.byRow(ctx, in.rows, &s.tasks.act); err != nil {
		return err
	}
	mid := activations{g, in.rows, ffn}
	s.observe(down.matrix, part, mid)
	return s.multiply(ctx, product{dst: out, m: down.matrix, part: part, bias: down.bias, in: mid})
}

package transformer

import (
	"context"
	"fmt"
	"math"

	infer "quern/runtime"
)

// project makes queries, keys and values of normalized states.
func (s *session) project(ctx context.Context, l *layer, in activations, q, k, v []float32) error {
	p, b, n := s.m.p, &s.buf, in.rows
	qn, kn := p.heads*p.headDim, p.kvHeads*p.headDim
	if p.fused {
		s.observe(l.qkv.matrix, 0, in)
		all := grow(&b.joint, n*(qn+2*kn))
		if err := s.multiply(ctx, product{dst: all, m: l.qkv.matrix, bias: l.qkv.bias, in: in}); err != nil {
			return err
		}
		for t := range n {
			row := all[t*(qn+2*kn):]
			copy(q[t*qn:][:qn], row)
			copy(k[t*kn:][:kn], row[qn:])
			copy(v[t*kn:][:kn], row[qn+kn:])
		}
		return nil
	}
	for _, m := range []linear{l.q, l.k, l.v} {
		s.observe(m.matrix, 0, in)
	}
	to := q
	if p.gatedQuery {
		to = grow(&b.joint, 2*n*qn)
	}
	err := s.multiply(ctx, product{dst: to, m: l.q.matrix, bias: l.q.bias, in: in}, product{dst: k, m: l.k.matrix, bias: l.k.bias, in: in},
		product{dst: v, m: l.v.matrix, bias: l.v.bias, in: in})
	if err != nil || !p.gatedQuery {
		return err
	}
	// Rows of a head's query come before those of its gate.
	gates, d := grow(&b.gates, n*qn), p.headDim
	for h := range n * p.heads {
		copy(q[h*d:][:d], to[2*h*d:])
		copy(gates[h*d:][:d], to[(2*h+1)*d:])
	}
	return nil
}

// bailing reads what Ling and Ring 2.0 have of their own.
func (p *params) bailing(k *keys) {
	p.denseLead = k.int("leading_dense_block_count", 0)
	p.sharedFFN = k.int("expert_shared_feed_forward_length", p.expertFFN) * k.int("expert_shared_count", 0)
	p.normWeights = k.bool("expert_weights_norm", false)
	p.groups, p.groupsUsed = k.int("expert_group_count", 0), k.int("expert_group_used_count", 0)
	if p.groups > 1 && (p.experts%p.groups != 0 || p.experts/p.groups < 2 || p.groupsUsed < 1 || p.groupsUsed > p.groups || p.groupsUsed*(p.experts/p.groups) < p.used) {
		k.keep(badGroups(p))
	}
}

func badGroups(p *params) error {
	return fmt.Errorf("%w: %d experts of %d, in %d of %d groups", infer.ErrModel, p.used, p.experts, p.groupsUsed, p.groups)
}

// bestGroups leaves the scores of the best groups of experts, by the sum of the two
// best scores in each, and makes all others -Inf.
func (p *params) bestGroups(scores []float32) {
	if p.groups <= 1 {
		return
	}
	size := p.experts / p.groups
	value := make([]float32, p.groups)
	for g := range value {
		first, second := float32(math.Inf(-1)), float32(math.Inf(-1))
		for _, v := range scores[g*size:][:size] {
			switch {
			case v > first:
				first, second = v, first
			case v > second:
				second = v
			}
		}
		value[g] = first + second
	}
	keep := make([]bool, p.groups)
	for range p.groupsUsed {
		best := -1
		for g, v := range value {
			if !keep[g] && (best < 0 || v > value[best]) {
				best = g
			}
		}
		keep[best] = true
	}
	for g, kept := range keep {
		if !kept {
			for i := range size {
				scores[g*size+i] = float32(math.Inf(-1))
			}
		}
	}
}

package transformer

import (
	"context"
	"slices"

	"quern/runtime/num"
)

// moeBuffers are those of the mixture of experts, T tokens of which each goes to
// used experts.
type moeBuffers struct {
	probs   []float32 // (T, experts)
	chosen  []int     // (T, used), best first
	weights []float32 // (T, used)
	in      []float32 // rows that go to one expert
	out     []float32 // what it makes of them
	each    []float32 // (T, used, hidden) the experts' results
	shared  []float32 // (T, hidden)
	first   []float32 // (experts) the router's outputs before experts were renumbered
	members []int     // places (token*used + rank) that go to one expert
	ahead   []float32 // (T, experts) what another layer's router makes of the input
	guess   []int     // (T, used)
}

// mixture sends every row to the experts that the router chooses and adds their
// results by weight, the best expert's first.
func (s *session) mixture(ctx context.Context, i int, in activations, out []float32) error {
	p, b, l := s.m.p, &s.buf.moe, &s.m.w.layers[i]
	s.observe(l.router.matrix, 0, in)
	probs := grow(&b.probs, in.rows*p.experts)
	if err := s.multiply(ctx, product{dst: probs, m: l.router.matrix, bias: l.router.bias, in: in}); err != nil {
		return err
	}
	chosen, weights := grow(&b.chosen, in.rows*p.used), grow(&b.weights, in.rows*p.used)
	for t := range in.rows {
		s.choose(l, probs[t*p.experts:][:p.experts], chosen[t*p.used:][:p.used], weights[t*p.used:][:p.used])
	}
	if s.routes != nil {
		if err := s.showRoutes(ctx, i, in); err != nil {
			return err
		}
	}
	each := grow(&b.each, in.rows*p.used*p.hidden)
	for e := range p.experts {
		b.members = b.members[:0]
		for place, c := range chosen {
			if c == e {
				b.members = append(b.members, place)
			}
		}
		if len(b.members) == 0 {
			continue
		}
		rows := activations{grow(&b.in, len(b.members)*p.hidden), len(b.members), p.hidden}
		for j, place := range b.members {
			copy(rows.row(j), in.row(place/p.used))
		}
		made := grow(&b.out, len(b.members)*p.hidden)
		if err := s.gated(ctx, linear{l.expGate, nil}, linear{l.expUp, nil}, linear{l.expDown, nil}, e, rows, made); err != nil {
			return err
		}
		for j, place := range b.members {
			copy(each[place*p.hidden:][:p.hidden], made[j*p.hidden:])
		}
	}
	for t := range in.rows {
		num.WeightedSum(out[t*p.hidden:][:p.hidden], weights[t*p.used:][:p.used],
			num.Matrix{Data: each[t*p.used*p.hidden:], Rows: p.used, Stride: p.hidden})
	}
	return s.shared(ctx, l, in, out)
}

// choose routes one token by the outputs of a layer's router. Experts that were
// renumbered by use are weighed in the order that they had before, so that sums, and
// which of two equal ones comes first, are those of the file before; scores and
// choices are in the file's numbers.
func (s *session) choose(l *layer, probs []float32, chosen []int, weights []float32) {
	if l.from == nil {
		s.m.p.route(s.ops, probs, l.choice, chosen, weights)
		return
	}
	first := grow(&s.buf.moe.first, len(probs))
	for e, f := range l.from {
		first[f] = probs[e]
	}
	s.m.p.route(s.ops, first, l.choice, chosen, weights)
	for e, f := range l.from {
		probs[e] = first[f]
	}
	for i, c := range chosen {
		chosen[i] = slices.Index(l.from, uint32(c))
	}
}

// route turns the router's outputs of one token into its experts, best first,
// the lower number where two are equal, and their weights. choice, if any, is
// added to the scores that they are chosen by.
func (p *params) route(ops *operations, probs, choice []float32, chosen []int, weights []float32) {
	if p.sigmoid {
		for i, v := range probs {
			probs[i] = ops.sigmoid(v)
		}
	} else {
		ops.softmax(probs)
	}
	scores := probs
	if choice != nil || p.groups > 1 {
		scores = slices.Clone(probs)
		if choice != nil {
			num.Add(scores, choice)
		}
		p.bestGroups(scores)
	}
	for r := range chosen {
		best := -1
		for e, v := range scores {
			taken := false
			for _, c := range chosen[:r] {
				taken = taken || c == e
			}
			if !taken && (best < 0 || v > scores[best]) {
				best = e
			}
		}
		chosen[r], weights[r] = best, probs[best]
	}
	if p.normWeights {
		sum := ops.sum(weights)
		if sum < 0x1p-14 {
			sum = 0x1p-14
		}
		for i := range weights {
			weights[i] /= sum
		}
	}
	num.Scale(weights, p.weightScale)
}

// shared adds the expert that all tokens go to.
func (s *session) shared(ctx context.Context, l *layer, in activations, out []float32) error {
	if l.shUp == nil {
		return nil
	}
	p, b := s.m.p, &s.buf.moe
	made := grow(&b.shared, in.rows*p.hidden)
	if err := s.gated(ctx, linear{l.shGate, nil}, linear{l.shUp, nil}, linear{l.shDown, nil}, 0, in, made); err != nil {
		return err
	}
	if l.sharedGate != nil {
		much := grow(&b.probs, in.rows)
		s.observe(l.sharedGate, 0, in)
		if err := s.multiply(ctx, product{dst: much, m: l.sharedGate, in: in}); err != nil {
			return err
		}
		for t, v := range much {
			num.Scale(made[t*p.hidden:][:p.hidden], s.ops.sigmoid(v))
		}
	}
	num.Add(out[:in.rows*p.hidden], made)
	return nil
}

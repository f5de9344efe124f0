package transformer

import (
	"context"

	infer "quern/runtime"
)

// showRoutes tells who asked what the router of layer i chose, and what the one
// further on would choose of the same input.
func (s *session) showRoutes(ctx context.Context, i int, in activations) error {
	p, b := s.m.p, &s.buf.moe
	r := infer.Routing{Layer: i, Experts: p.experts, Used: p.used, Scores: b.probs[:in.rows*p.experts], Chosen: b.chosen[:in.rows*p.used]}
	if further := s.routedAfter(i, s.routes.Ahead()); further != nil {
		scores := grow(&b.ahead, in.rows*p.experts)
		if err := s.multiply(ctx, product{dst: scores, m: further.router.matrix, bias: further.router.bias, in: in}); err != nil {
			return err
		}
		r.Guess = grow(&b.guess, in.rows*p.used)
		weights := make([]float32, p.used)
		for t := range in.rows {
			s.choose(further, scores[t*p.experts:][:p.experts], r.Guess[t*p.used:][:p.used], weights)
		}
	}
	return s.routes.Route(r)
}

// routedAfter is the n-th layer with experts behind layer i, nil if there is
// none or n is 0.
func (s *session) routedAfter(i, n int) *layer {
	if n < 1 {
		return nil
	}
	for k := i + 1; k < len(s.m.w.layers); k++ {
		if l := &s.m.w.layers[k]; l.router.matrix != nil {
			if n--; n == 0 {
				return l
			}
		}
	}
	return nil
}

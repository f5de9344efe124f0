package score

import (
	"context"
	"fmt"

	infer "quern/runtime"
	"quern/runtime/ggmlnum"
	"quern/runtime/num"
)

// together is how many chunks of so many tokens a session takes at once.
func together(s infer.Session, context int) int {
	if w, ok := s.(infer.SideBySide); ok {
		return w.Together(context)
	}
	return 1
}

// chunks names some.
func chunks(first, n int) string {
	if n == 1 {
		return fmt.Sprintf("chunk %d", first+1)
	}
	return fmt.Sprintf("chunks %d to %d", first+1, first+n)
}

// eval evaluates n chunks from first on, each from an empty context, and shows the logits after their scored positions.
func (t *text) eval(ctx context.Context, s infer.Session, first, n int, each func(chunk, i int, logits []float32) error) error {
	if w, ok := s.(infer.SideBySide); ok && n > 1 {
		texts := make([][]int32, n)
		for i := range texts {
			texts[i] = t.chunk(first + i)
		}
		return w.EvalTogether(ctx, texts, t.scored(), func(text, i int, logits []float32) error { return each(first+text, i, logits) })
	}
	for c := first; c < first+n; c++ {
		if err := s.Rewind(0); err != nil {
			return err
		}
		if err := s.Eval(ctx, t.chunk(c), t.scored(), func(i int, logits []float32) error { return each(c, i, logits) }); err != nil {
			return err
		}
	}
	return nil
}

// nll works out negative log-likelihoods in the order of operations of the scores.
type nll struct {
	exp func(x []float32, top float32)
	buf []float32 // e^(logit-max) of the last
}

func newNLL(opt Options) *nll {
	if opt.Act == infer.Q8 && opt.Order == infer.OrderGGML {
		return &nll{exp: ggmlnum.ExpMinus}
	}
	return &nll{exp: num.ExpMinus}
}

// of is -ln of the probability that logits give an id: differences and exponentials in float32, sum and logarithm in float64, ids
// ascending.
func (n *nll) of(logits []float32, id int32) float64 {
	top := num.Max(logits)
	n.buf = append(n.buf[:0], logits...)
	n.exp(n.buf, top)
	sum := 0.0
	for _, v := range n.buf {
		sum += float64(v)
	}
	return num.Log64(sum) - float64(logits[id]-top)
}

// NLL is -ln of the probability that logits give an id, as Measure with the same options has it.
func NLL(opt Options, logits []float32, id int32) float64 { return newNLL(opt).of(logits, id) }

package score

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	infer "quern/runtime"
	"quern/runtime/num"
)

// Divergence says how far the probabilities of a model are from those of
// another, over the positions that perplexity scores.
type Divergence struct {
	Settings
	Scored int `json:"scored"`
	// Outside is at how many of them the text goes on with a token that one of the
	// models, with a pruned head, cannot say; Base and Other leave these out.
	// OutsideMass is the mean probability that the base gives to such tokens. The
	// divergence is over the others alone, the base's probabilities divided by
	// their sum.
	Outside     int     `json:"outside,omitempty"`
	OutsideMass float64 `json:"outside_mass,omitempty"`
	// Mean is the mean Kullback-Leibler divergence in nats: the sum over all ids
	// of p ln(p/q), p being the base model's probability. Max is the greatest.
	Mean float64 `json:"mean_kld"`
	Max  float64 `json:"max_kld"`
	// SameTop is the share of positions at which both think the same id the most
	// likely.
	SameTop float64 `json:"same_top"`
	// Base and Other are the mean NLL of both on the text.
	Base  float64 `json:"base_mean_nll"`
	Other float64 `json:"mean_nll"`
}

// Diverge compares a model with a base. Both must give the text the same tokens.
// Ids that a pruned head lacks, in one of the two, are left aside: where the base has
// probability 0 nothing is added, and where the other has, the base's is spread over
// the rest.
func Diverge(ctx context.Context, base, other infer.Model, file []byte, opt Options) (*Divergence, error) {
	var texts [2]*text
	var sessions [2]infer.Session
	for i, m := range []infer.Model{base, other} {
		tok, err := m.Tokenizer()
		if err != nil {
			return nil, err
		}
		if texts[i], err = tokenize(tok, file, opt); err != nil {
			return nil, err
		}
		if sessions[i], err = m.NewSession(infer.SessionOptions{Context: texts[i].Context, Jobs: opt.Jobs, Act: opt.Act, Order: opt.Order}); err != nil {
			return nil, err
		}
	}
	t := texts[0]
	if err := t.Comparable(texts[1].Settings); err != nil {
		return nil, err
	}
	for i, id := range t.tokens {
		if texts[1].tokens[i] != id {
			return nil, fmt.Errorf("%w: token %d of the text is %d in one model and %d in the other", ErrNotComparable, i, id, texts[1].tokens[i])
		}
	}
	if a, b := base.Info().Vocab, other.Info().Vocab; a != b {
		return nil, fmt.Errorf("%w: vocabularies of %d and %d", ErrNotComparable, a, b)
	}
	if opt.Ready != nil {
		opt.Ready()
	}
	d := &Divergence{Settings: t.Settings}
	c := &comparer{t: t, s: sessions, d: d, p: newNLL(opt), q: newNLL(opt)}
	most := together(sessions[1], t.Context)
	if most != together(sessions[0], t.Context) {
		most = 1 // both show their rows in one order
	}
	for first := 0; first < t.Chunks; first += most {
		n := min(most, t.Chunks-first)
		if err := c.chunks(ctx, first, n); err != nil {
			return nil, fmt.Errorf("%s of %d: %w", chunks(first, n), t.Chunks, err)
		}
		if opt.Progress != nil {
			opt.Progress(first+n, t.Chunks, num.Exp64(d.Other/float64(d.Scored-d.Outside)))
		}
	}
	n, said := float64(d.Scored), float64(d.Scored-d.Outside)
	if said == 0 {
		return nil, fmt.Errorf("%w: none of its %d scored tokens has a row in both heads", ErrOutside, d.Outside)
	}
	d.Mean, d.SameTop, d.OutsideMass = d.Mean/n, d.SameTop/n, d.OutsideMass/n
	d.Base, d.Other = d.Base/said, d.Other/said
	return d, nil
}

type comparer struct {
	t    *text
	s    [2]infer.Session
	d    *Divergence
	p, q *nll
}

// errEnough ends an evaluation whose results nobody wants any more.
var errEnough = errors.New("no more rows are wanted")

// chunks walks both models through some chunks, row by row in turn, so that no logits are kept.
func (c *comparer) chunks(ctx context.Context, first, n int) error {
	next, stop := iter.Pull2(func(yield func([]float32, error) bool) {
		err := c.t.eval(ctx, c.s[0], first, n, func(_, _ int, logits []float32) error {
			if !yield(logits, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, fmt.Errorf("base model: %w", err))
		}
	})
	defer stop()
	return c.t.eval(ctx, c.s[1], first, n, func(chunk, i int, logits []float32) error {
		base, err, more := next()
		if err == nil && !more {
			err = errors.New("base model: fewer rows than there are to compare")
		}
		if err != nil {
			return err
		}
		c.compare(base, logits, c.t.tokens[chunk*c.t.Context+i+1])
		return nil
	})
}

// compare adds one position.
func (c *comparer) compare(base, other []float32, next int32) {
	d := c.d
	d.Scored++
	b, o := c.p.of(base, next), c.q.of(other, next)
	if isGone(base[next]) || isGone(other[next]) {
		d.Outside++
	} else {
		d.Base += b
		d.Other += o
	}
	topP, topQ := num.Max(base), num.Max(other)
	whole, kept := total(c.p.buf), 0.0
	for i, e := range c.p.buf {
		if !isGone(other[i]) {
			kept += float64(e)
		}
	}
	if kept < whole {
		d.OutsideMass += 1 - kept/whole
	}
	if first(base, topP) == first(other, topQ) {
		d.SameTop++
	}
	if kept == 0 {
		return // the base expects none of what the other can say
	}
	logP, logQ := num.Log64(kept), num.Log64(total(c.q.buf))
	sum := 0.0
	for i, e := range c.p.buf {
		if e == 0 || isGone(other[i]) {
			continue
		}
		lp := float64(base[i]-topP) - logP
		lq := float64(other[i]-topQ) - logQ
		sum += float64(num.Exp64(lp) * (lp - lq))
	}
	if sum < 0 { // what rounding leaves of equal distributions
		sum = 0
	}
	d.Mean += sum
	if sum > d.Max {
		d.Max = sum
	}
}

// isGone reports whether a logit is that of a token without a row.
func isGone(logit float32) bool { return math.IsInf(float64(logit), -1) }

func total(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	return sum
}

// first finds a value.
func first(x []float32, v float32) int {
	for i, w := range x {
		if w == v {
			return i
		}
	}
	return -1
}

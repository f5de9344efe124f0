package gates

import (
	"context"
	"errors"
	"fmt"

	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/score"
)

// Divergence is the gate that bounds how far a file's probabilities are from a
// baseline's.
type Divergence struct{ p recipes.DivergenceGate }

// NewDivergence makes the gate.
func NewDivergence(p recipes.DivergenceGate) *Divergence { return &Divergence{p} }

// Name is the gate's name.
func (g *Divergence) Name() string { return "kl-divergence" }

// Plan looks for the text and the baseline.
func (g *Divergence) Plan(sources []*pipeline.Source) error {
	if err := planText(sources, g.p.Text, 2*g.p.Context); err != nil {
		return err
	}
	_, err := findBaseline(sources, g.p.Baseline, false)
	return err
}

// Check runs both models side by side.
func (g *Divergence) Check(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
	return runFile(ctx, in, g.Name(), func(m infer.Model) (out []pipeline.GateResult, err error) {
		opt, text, err := scoring(ctx, in, g.p.Text, g.p.Context, g.p.Chunks, g.p.Act)
		if err != nil {
			return nil, err
		}
		base, err := openBaseline(ctx, in, g.p.Baseline, m)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, base.Close()) }()
		opt.Order = infer.ScoreOrder(opt.Act, m, base)
		tell := progress(in, g.Name(), "chunk")
		opt.Progress = func(done, total int, _ float64) { tell(done, total) }
		name := baselineName(g.p.Baseline)
		d, err := score.Diverge(ctx, base, m, text, opt)
		switch {
		case errors.Is(err, score.ErrNotComparable):
			return []pipeline.GateResult{notComparable(pipeline.GateResult{Gate: g.Name(), Output: in.Output, What: "divergence from " + name}, name, err)}, nil
		case errors.Is(err, score.ErrShort):
			return nil, fmt.Errorf("source %s: %w", g.p.Text, err)
		case err != nil:
			return nil, err
		}
		add := func(what, text string, b bound) {
			out = append(out, pipeline.GateResult{Gate: g.Name(), Output: in.Output, What: what, Value: b.value, Limit: b.limit, Pass: b.pass(), Settings: d.Settings, Text: text + b.words()})
		}
		if g.p.Max != nil {
			add("mean divergence from "+name, fmt.Sprintf("%s of %s from %s is %.6f nats on average", g.Name(), in.Output, name, d.Mean),
				bound{value: d.Mean, limit: *g.p.Max, unit: " nats"})
		}
		if g.p.MinTop1 != nil {
			add("top-1 agreement with "+name, fmt.Sprintf("%s: %s and %s think the same token the most likely at %.2f %% of %d places", g.Name(), in.Output, name, float64(100*d.SameTop), d.Scored),
				bound{value: d.SameTop, limit: float64(*g.p.MinTop1), least: true, scale: 100, unit: " %"})
		}
		return out, nil
	})
}

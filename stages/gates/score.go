package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/score"
)

// Score is the gate that bounds how well a file foretells a text.
type Score struct {
	name string
	p    recipes.ScoreGate
	// value takes the number out of a score, show prints it.
	value func(*score.Perplexity) float64
	show  func(*score.Perplexity) string
}

// NewPerplexity makes the gate that bounds the perplexity.
func NewPerplexity(p recipes.PerplexityGate) *Score {
	return &Score{"perplexity", recipes.ScoreGate(p), func(s *score.Perplexity) float64 { return s.Perplexity },
		func(s *score.Perplexity) string { return fmt.Sprintf("%.4f +/- %.4f", s.Perplexity, s.Error) }}
}

// NewBitsPerByte makes the gate that bounds the bits for a byte of text.
func NewBitsPerByte(p recipes.BitsPerByteGate) *Score {
	return &Score{"bits-per-byte", recipes.ScoreGate(p), func(s *score.Perplexity) float64 { return s.BitsPerByte },
		func(s *score.Perplexity) string { return fmt.Sprintf("%.5f", s.BitsPerByte) }}
}

// Name is the gate's name.
func (g *Score) Name() string { return g.name }

// Plan looks for the text and the baseline.
func (g *Score) Plan(sources []*pipeline.Source) error {
	if err := planText(sources, g.p.Text, 2*g.p.Context); err != nil {
		return err
	}
	if g.p.MaxIncrease == nil {
		return nil
	}
	_, err := findBaseline(sources, g.p.Baseline, true)
	return err
}

// planText finds a text that has at least so many tokens. No token is less than a
// byte, but for those that a tokenizer puts around the text.
func planText(sources []*pipeline.Source, name string, tokens int64) error {
	const around = 4
	s, err := pipeline.FindText(sources, name)
	if err != nil {
		return err
	}
	if n := s.Content.Size(); n+around < tokens {
		return fmt.Errorf("source %s: %w: %d bytes cannot have the %d tokens that two chunks take; give more text or a smaller context", name, score.ErrShort, n, tokens)
	}
	return nil
}

// Check scores the file and, where it is asked for, the baseline.
func (g *Score) Check(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
	return runFile(ctx, in, g.name, func(m infer.Model) ([]pipeline.GateResult, error) {
		p, err := g.measure(ctx, in, "file "+in.Output, m)
		if err != nil {
			return nil, err
		}
		var out []pipeline.GateResult
		if g.p.Max != nil {
			b := bound{value: g.value(p), limit: *g.p.Max}
			out = append(out, pipeline.GateResult{Gate: g.name, Output: in.Output, What: g.name, Value: b.value, Limit: b.limit, Pass: b.pass(), Settings: p.Settings,
				Text: fmt.Sprintf("%s of %s is %s%s", g.name, in.Output, g.text(p), b.words())})
		}
		if g.p.MaxIncrease != nil {
			r, err := g.increase(ctx, in, m, p)
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
		return out, nil
	})
}

// text shows a score, and what a pruned head kept out of it.
func (g *Score) text(p *score.Perplexity) string {
	s := g.show(p)
	if p.Outside > 0 {
		s += fmt.Sprintf(" without %d tokens that the pruned head cannot say", p.Outside)
	}
	return s
}

// increase compares a score with the baseline's.
func (g *Score) increase(ctx context.Context, in pipeline.GateInput, m infer.Model, p *score.Perplexity) (pipeline.GateResult, error) {
	name := baselineName(g.p.Baseline)
	res := pipeline.GateResult{Gate: g.name, Output: in.Output, What: "increase of " + g.name + " over " + name, Limit: float64(*g.p.MaxIncrease), Settings: p.Settings}
	p, base, err := g.baseline(ctx, in, m, p)
	if err != nil {
		return res, err
	}
	res.Settings = p.Settings
	if err := p.Comparable(base.Settings); err != nil {
		return notComparable(res, name, err), nil
	}
	v, of := g.value(p), g.value(base)
	res.Value = v/of - 1
	way, by := "above", float64(100*res.Value)
	if by < 0 {
		way, by = "below", -by
	}
	b := bound{value: res.Value, limit: res.Limit, scale: 100, unit: " %"}
	res.Pass = b.pass()
	res.Text = fmt.Sprintf("%s of %s is %s, %.3g %% %s the %s of %s%s", g.name, in.Output, g.text(p), by, way, g.text(base), name, b.words())
	return res, nil
}

// notComparable is the result where there is none: neither passed nor failed by
// some number.
func notComparable(res pipeline.GateResult, with string, err error) pipeline.GateResult {
	res.NotComparable, res.Pass = true, false
	res.Text = fmt.Sprintf("%s of %s cannot be judged against %s: %v", res.Gate, res.Output, with, err)
	return res
}

// baseline is the score of the baseline, measured now or kept in a file, and that of the
// file beside it: p, or another where the two have no more than quern's order of
// operations in common.
func (g *Score) baseline(ctx context.Context, in pipeline.GateInput, file infer.Model, p *score.Perplexity) (own, base *score.Perplexity, err error) {
	s, err := findBaseline(in.Sources, g.p.Baseline, true)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", pipeline.ErrRecipe, err)
	}
	if s != nil && s.Model == nil {
		base, err = storedScore(ctx, s)
		return p, base, err
	}
	m, err := openBaseline(ctx, in, g.p.Baseline, file)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if own, err = g.measure(ctx, in, "file "+in.Output, file, m); err != nil {
		return nil, nil, err
	}
	base, err = g.measure(ctx, in, baselineName(g.p.Baseline), m, file)
	if err != nil && ctx.Err() == nil && !errors.Is(err, pipeline.ErrRecipe) {
		err = fmt.Errorf("%s: %w", baselineName(g.p.Baseline), err)
	}
	return own, base, err
}

// measure scores a model, once in a build, in an order of operations that those it is
// compared with have too.
func (g *Score) measure(ctx context.Context, in pipeline.GateInput, who string, m infer.Model, with ...infer.Model) (*score.Perplexity, error) {
	opt, text, err := scoring(ctx, in, g.p.Text, g.p.Context, g.p.Chunks, g.p.Act)
	if err != nil {
		return nil, err
	}
	opt.Order = infer.ScoreOrder(opt.Act, append(with, m)...)
	key := fmt.Sprintf("score of %q over %q by %d tokens, %d chunks, %s, order %s", who, g.p.Text, opt.Context, opt.Chunks, opt.Act, opt.Order)
	p, err := in.Memo.Do(key, func() (any, error) {
		tell := progress(in, g.name+" of "+who, "chunk")
		opt.Progress = func(done, total int, _ float64) { tell(done, total) }
		p, err := score.Measure(ctx, m, text, opt)
		return p, err
	})
	if errors.Is(err, score.ErrShort) {
		return nil, fmt.Errorf("source %s: %w", g.p.Text, err)
	}
	if err != nil {
		return nil, err
	}
	return p.(*score.Perplexity), nil
}

// scoring reads the text and says how it is cut.
func scoring(ctx context.Context, in pipeline.GateInput, text string, context, chunks int64, arithmetic string) (score.Options, []byte, error) {
	opt := score.Options{Context: int(context), Chunks: int(chunks), Jobs: in.Jobs}
	var err error
	if opt.Act, err = scoringAct(in, arithmetic); err != nil {
		return opt, nil, fmt.Errorf("%w: %w", pipeline.ErrRecipe, err)
	}
	content, err := readSource(ctx, in, text)
	return opt, content, err
}

// readSource reads a plain source whole.
func readSource(ctx context.Context, in pipeline.GateInput, name string) ([]byte, error) {
	s, err := pipeline.FindText(in.Sources, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pipeline.ErrRecipe, err)
	}
	return s.ReadAll(ctx)
}

// storedScore reads what quern ppl --json printed.
func storedScore(ctx context.Context, s *pipeline.Source) (*score.Perplexity, error) {
	b, err := readSource(ctx, pipeline.GateInput{Sources: []*pipeline.Source{s}}, s.Name)
	if err != nil {
		return nil, err
	}
	fault := func(err error) error {
		return pipeline.SourceFault(fmt.Errorf("source %s: no score as quern ppl --json prints it: %w", s.Name, err))
	}
	var has map[string]json.RawMessage
	if err := json.Unmarshal(b, &has); err != nil {
		return nil, fault(err)
	}
	for _, key := range []string{"chunks", "context", "stride", "first_scored", "tokens", "bos", "act", "bytes", "text_sha256", "pieces_sha256", "perplexity", "standard_error", "bits_per_byte"} {
		if _, ok := has[key]; !ok {
			return nil, fault(fmt.Errorf("%s is missing", key))
		}
	}
	p := &score.Perplexity{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fault(err)
	}
	if !(p.Perplexity > 0 && p.BitsPerByte > 0) {
		return nil, fault(fmt.Errorf("perplexity %v, bits per byte %v", p.Perplexity, p.BitsPerByte))
	}
	return p, nil
}

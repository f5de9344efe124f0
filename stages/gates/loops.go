package gates

import (
	"context"
	"errors"
	"fmt"

	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/generate"
)

// Loops is the gate that bounds the share of long answers that end in a loop.
type Loops struct {
	p        recipes.LoopsGate
	sampling generate.Sampling
}

// NewLoops makes the gate. Numbers that are left out are those of quern loops.
func NewLoops(p recipes.LoopsGate) (*Loops, error) {
	or := func(v *float64, def float64) float64 {
		if v == nil {
			return def
		}
		return *v
	}
	g := &Loops{p: p, sampling: generate.Sampling{Temperature: or(p.Temperature, 0), TopK: 40, TopP: or(p.TopP, 0.95), MinP: or(p.MinP, 0.05),
		RepeatPenalty: or(p.RepeatPenalty, 1), Seed: uint64(p.Seed)}}
	if p.TopK != nil {
		g.sampling.TopK = int(*p.TopK)
	}
	if p.Max == nil {
		return nil, errors.New("max is missing")
	}
	return g, g.sampling.Check()
}

// Name is the gate's name.
func (g *Loops) Name() string { return "loops" }

// Plan looks for the text.
func (g *Loops) Plan(sources []*pipeline.Source) error { return planText(sources, g.p.Text, 0) }

// Check lets the model answer.
func (g *Loops) Check(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
	return runFile(ctx, in, g.Name(), func(m infer.Model) ([]pipeline.GateResult, error) {
		text, err := readSource(ctx, in, g.p.Text)
		if err != nil {
			return nil, err
		}
		tok, err := m.Tokenizer()
		if err != nil {
			return nil, err
		}
		opt := generate.LoopOptions{Sampling: g.sampling, Answers: int(g.p.Answers), Tokens: int(g.p.Tokens), Prompt: int(g.p.Prompt), Jobs: in.Jobs,
			Progress: progress(in, g.Name(), "answer")}
		opt.Banned = banned(tok)
		if opt.Act, err = act(g.p.Act); err != nil {
			return nil, err
		}
		l, err := generate.TestLoops(ctx, m, string(text), opt)
		if errors.Is(err, generate.ErrShort) {
			return nil, fmt.Errorf("source %s: %w", g.p.Text, err)
		}
		if err != nil {
			return nil, err
		}
		b := bound{value: l.Share, limit: float64(*g.p.Max), scale: 100, unit: " %"}
		return []pipeline.GateResult{{Gate: g.Name(), Output: in.Output, What: "answers that end in a loop", Value: b.value, Limit: b.limit, Pass: b.pass(),
			Text: fmt.Sprintf("loops: %d of %d answers of %s end in a loop, a share of %.3g %%%s", l.Looped, len(l.Answers), in.Output, float64(100*l.Share), b.words())}}, nil
	})
}

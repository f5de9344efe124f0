package gates

import (
	"context"
	"errors"
	"fmt"

	"quern/internal/digest"
	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/generate"
)

// Loops is the gate that bounds the share of long answers that fall into a loop.
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
	if p.Max == nil && p.MaxIncrease == nil {
		return nil, errors.New("max or max-increase is missing")
	}
	return g, g.sampling.Check()
}

// Name is the gate's name.
func (g *Loops) Name() string { return "loops" }

// Plan looks for the text and the baseline.
func (g *Loops) Plan(sources []*pipeline.Source) error {
	if err := planText(sources, g.p.Text, 0); err != nil || g.p.MaxIncrease == nil {
		return err
	}
	_, err := findBaseline(sources, g.p.Baseline, false)
	return err
}

// Check lets the model answer, and the baseline where it is asked for.
func (g *Loops) Check(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
	return runFile(ctx, in, g.Name(), func(m infer.Model) (out []pipeline.GateResult, err error) {
		text, err := readSource(ctx, in, g.p.Text)
		if err != nil {
			return nil, err
		}
		act, err := scoringAct(in, g.p.Act)
		if err != nil {
			return nil, err
		}
		l, err := g.answers(ctx, in, m, act, text, "")
		if err != nil {
			return nil, err
		}
		says := fmt.Sprintf("loops: %d of %d answers of %s fall into a loop, a share of %.3g %%", l.Looped, len(l.Answers), in.Output, float64(100*l.Share))
		add := func(what, words string, b bound) {
			out = append(out, pipeline.GateResult{Gate: g.Name(), Output: in.Output, What: what, Value: b.value, Limit: b.limit, Pass: b.pass(),
				Settings: g.settings(text, l, act.String()), Text: words + b.words()})
		}
		if g.p.Max != nil {
			add("answers that fall into a loop", says, bound{value: l.Share, limit: float64(*g.p.Max), scale: 100, unit: " %"})
		}
		if g.p.MaxIncrease != nil {
			name := baselineName(g.p.Baseline)
			var base infer.Model // not :=, the error of Close is to be that of the check
			if base, err = openBaseline(ctx, in, g.p.Baseline, m); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, base.Close()) }()
			other, err := g.answers(ctx, in, base, act, text, " of "+name)
			if err != nil {
				return nil, err
			}
			add("increase of answers that loop over "+name, fmt.Sprintf("%s, beside %d of %d of %s", says, other.Looped, len(other.Answers), name),
				bound{value: l.Share - other.Share, limit: float64(*g.p.MaxIncrease), scale: 100, unit: " %"})
		}
		return out, nil
	})
}

// answers makes and judges the answers of a model.
func (g *Loops) answers(ctx context.Context, in pipeline.GateInput, m infer.Model, act infer.Act, text []byte, who string) (*generate.Loops, error) {
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	opt := generate.LoopOptions{Sampling: g.sampling, Answers: int(g.p.Answers), Tokens: int(g.p.Tokens), Prompt: int(g.p.Prompt), Jobs: in.Jobs,
		Progress: progress(in, g.Name()+who, "answer")}
	opt.Banned = banned(tok)
	opt.Act = act
	l, err := generate.TestLoops(ctx, m, string(text), opt)
	if errors.Is(err, generate.ErrShort) {
		return nil, fmt.Errorf("source %s: %w", g.p.Text, err)
	}
	return l, err
}

// loopSettings say how answers were made.
type loopSettings struct {
	Answers       int           `json:"answers"`
	Tokens        int64         `json:"tokens"`
	Prompt        int64         `json:"prompt"`
	Act           string        `json:"act"`
	Temperature   float64       `json:"temperature"`
	TopK          int           `json:"top_k"`
	TopP          float64       `json:"top_p"`
	MinP          float64       `json:"min_p"`
	RepeatPenalty float64       `json:"repeat_penalty"`
	Seed          uint64        `json:"seed"`
	Text          digest.Digest `json:"text_sha256"`
}

func (g *Loops) settings(text []byte, l *generate.Loops, act string) loopSettings {
	s := g.sampling
	return loopSettings{len(l.Answers), g.p.Tokens, g.p.Prompt, act, s.Temperature, s.TopK, s.TopP, s.MinP, s.RepeatPenalty, s.Seed, digest.Of(text)}
}

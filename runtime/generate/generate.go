package generate

import (
	"context"
	"errors"
	"time"

	infer "quern/runtime"
)

// Stop says why an answer ended.
type Stop string

// The reasons.
const (
	StopEnd     Stop = "end"     // the model said so
	StopLength  Stop = "length"  // as many tokens as were asked for
	StopContext Stop = "context" // no room was left
)

// Options steer Run. The zero value goes on to the end of the context.
type Options struct {
	Sampling
	// Max is the most tokens that are made, 0 for as many as fit.
	Max int
	// End reports ids that end the answer; nil for none. Such an id is not part
	// of the answer.
	End func(id int32) bool
	// Each is told every token as it is made; an error of it stops. May be nil.
	Each func(id int32) error
	// Warm is called once the first tokens of the prompt are through the model: what an
	// evaluation needs is there then, and what only starting needed can go. The prompt is cut
	// for it, which makes no difference in quern's order of operations alone. May be nil.
	Warm func()
}

// Answer is what a model made of a prompt.
type Answer struct {
	Tokens []int32
	Stop   Stop
	// Prompt and Making are the time that reading the prompt and making the
	// tokens took.
	Prompt, Making time.Duration
}

// warmTokens is how many tokens of the prompt come before Warm, but for the last: as many as
// go through the layers of a model together, so that no buffer has to grow behind it.
const warmTokens = 128

// Run evaluates a prompt, which must not be empty, and lets the model go on. On
// an error it comes with what was made until then.
func Run(ctx context.Context, s infer.Session, prompt []int32, opt Options) (*Answer, error) {
	a := &Answer{Tokens: []int32{}, Stop: StopLength}
	sampler, err := NewSampler(opt.Sampling, prompt)
	if err != nil {
		return a, err
	}
	if len(prompt) == 0 {
		return a, errors.New("no tokens to evaluate")
	}
	start := time.Now()
	if opt.Warm != nil {
		if n := min(warmTokens, len(prompt)-1); n > 0 {
			if err := s.Eval(ctx, prompt[:n], nil, nil); err != nil {
				return a, err
			}
			prompt = prompt[n:]
		}
		opt.Warm()
	}
	// A session may read the tokens of a call until it returns, so the choice is kept apart.
	var chosen int32
	choose := func(_ int, logits []float32) (err error) {
		chosen, err = sampler.Next(logits)
		return err
	}
	err = s.Eval(ctx, prompt, []int{len(prompt) - 1}, choose)
	a.Prompt = time.Since(start)
	start = time.Now()
	defer func() { a.Making = time.Since(start) }()
	if err != nil {
		return a, err
	}
	for next, want := make([]int32, 1), []int{0}; ; {
		id := chosen
		if opt.End != nil && opt.End(id) {
			a.Stop = StopEnd
			return a, nil
		}
		a.Tokens = append(a.Tokens, id)
		if opt.Each != nil {
			if err := opt.Each(id); err != nil {
				return a, err
			}
		}
		if len(a.Tokens) == opt.Max {
			return a, nil
		}
		next[0] = id
		if err := s.Eval(ctx, next, want, choose); err != nil {
			if errors.Is(err, infer.ErrContext) {
				a.Stop = StopContext
				return a, nil
			}
			return a, err
		}
	}
}

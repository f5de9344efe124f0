package generate

import (
	"context"
	"errors"
	"fmt"

	infer "quern/runtime"
	"quern/tokenizer"
)

// ErrShort marks a text that has too few prompts.
var ErrShort = errors.New("the text is too short")

// LoopOptions steer TestLoops. The zero value is right for most.
type LoopOptions struct {
	Sampling
	// Answers is how many are made, 0 for 16.
	Answers int
	// Tokens is the length of an answer, 0 for 256.
	Tokens int
	// Prompt is the length of a prompt in tokens, 0 for 16.
	Prompt int
	Jobs   int
	Act    infer.Act
	// Progress is told after each answer; it may be nil.
	Progress func(done, total int)
}

// Loops is the outcome of a test of long answers.
type Loops struct {
	Answers []LoopAnswer `json:"answers"`
	// Looped is how many fell into a loop, Share their part of all. AtEnd is how many
	// of them were in a cycle when they ended.
	Looped int     `json:"looped"`
	Share  float64 `json:"share"`
	AtEnd  int     `json:"at_end"`
	// Repeated is the mean of the answers' shares.
	Repeated float64 `json:"repeated"`
}

// LoopAnswer is one of them.
type LoopAnswer struct {
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
	Tokens int    `json:"tokens"`
	Stop   Stop   `json:"stop"`
	// Loop is the kind of loop, "" for none, and Cycle the longest cycle.
	Loop  LoopKind `json:"loop"`
	Cycle Cycle    `json:"cycle"`
	// Repeated is the share of places that begin four tokens which the answer had
	// before.
	Repeated float64 `json:"repeated"`
}

// TestLoops lets a model go on from prompts that are taken from a text at equal
// distances, and counts the answers that fall into a loop.
func TestLoops(ctx context.Context, m infer.Model, text string, opt LoopOptions) (*Loops, error) {
	for _, d := range []struct {
		v   *int
		def int
	}{{&opt.Answers, 16}, {&opt.Tokens, 256}, {&opt.Prompt, 16}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	ids, err := tok.Encode(text, tokenizer.EncodeOptions{})
	if err != nil {
		return nil, err
	}
	if len(ids) < opt.Prompt+opt.Answers-1 {
		return nil, fmt.Errorf("%w: %d tokens have no %d prompts of %d; give more text", ErrShort, len(ids), opt.Answers, opt.Prompt)
	}
	out := &Loops{}
	for i := range opt.Answers {
		at := 0
		if opt.Answers > 1 {
			at = i * (len(ids) - opt.Prompt) / (opt.Answers - 1)
		}
		prompt := ids[at : at+opt.Prompt : at+opt.Prompt]
		var all []int32
		if tok.AddsBOS() {
			all = append(all, tok.BOS())
		}
		all = append(all, prompt...)
		s, err := m.NewSession(infer.SessionOptions{Context: len(all) + opt.Tokens, Jobs: opt.Jobs, Act: opt.Act})
		if err != nil {
			return nil, err
		}
		a, err := Run(ctx, s, all, Options{Sampling: opt.Sampling, Max: opt.Tokens, End: tok.IsEnd})
		if err != nil {
			return nil, fmt.Errorf("answer %d of %d: %w", i+1, opt.Answers, err)
		}
		la := LoopAnswer{Prompt: tok.Decode(prompt, tokenizer.DecodeOptions{}), Text: tok.Decode(a.Tokens, tokenizer.DecodeOptions{}),
			Tokens: len(a.Tokens), Stop: a.Stop}
		la.judge(a.Tokens)
		if la.Loop != NoLoop {
			out.Looped++
		}
		if la.Loop == LoopCycle && la.Cycle.End == len(a.Tokens) {
			out.AtEnd++
		}
		out.Repeated += la.Repeated / float64(opt.Answers)
		out.Answers = append(out.Answers, la)
		if opt.Progress != nil {
			opt.Progress(i+1, opt.Answers)
		}
	}
	out.Share = float64(out.Looped) / float64(len(out.Answers))
	return out, nil
}

package gates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/generate"
	"quern/tokenizer"
)

// Tokens is the gate that demands golden tokens.
type Tokens struct{ p recipes.TokensGate }

// NewTokens makes the gate.
func NewTokens(p recipes.TokensGate) *Tokens { return &Tokens{p} }

// Name is the gate's name.
func (g *Tokens) Name() string { return "tokens" }

// Plan looks for the file.
func (g *Tokens) Plan(sources []*pipeline.Source) error {
	if g.p.File == "" {
		return nil
	}
	_, err := pipeline.FindText(sources, g.p.File)
	return err
}

// answer is a prompt, as text or ids, and the ids that must follow: what quern
// run --json prints.
type answer struct {
	Prompt string  `json:"prompt"`
	IDs    []int32 `json:"prompt_tokens"`
	Tokens []int32 `json:"tokens"`
}

// Check lets the model go on from each prompt. There is a result for each.
func (g *Tokens) Check(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
	list := []answer{{g.p.Prompt, g.p.IDs, g.p.Expect}}
	if g.p.File != "" && in.Part == 0 {
		b, err := readSource(ctx, in, g.p.File)
		if err != nil {
			return nil, err
		}
		if list, err = parseAnswers(b); err != nil {
			return nil, pipeline.SourceFault(fmt.Errorf("source %s: %w", g.p.File, err))
		}
	}
	return runFile(ctx, in, g.Name(), func(m infer.Model) ([]pipeline.GateResult, error) {
		tell := progress(in, g.Name(), "prompt")
		var out []pipeline.GateResult
		for i, a := range list {
			r, err := g.follow(ctx, in, m, a)
			if err != nil {
				return nil, fmt.Errorf("prompt %d of %d: %w", i+1, len(list), err)
			}
			out = append(out, r)
			tell(i+1, len(list))
		}
		return out, nil
	})
}

// follow compares what comes after one prompt.
func (g *Tokens) follow(ctx context.Context, in pipeline.GateInput, m infer.Model, a answer) (pipeline.GateResult, error) {
	what := fmt.Sprintf("answer to %d ids", len(a.IDs))
	prompt := a.IDs
	tok, err := m.Tokenizer()
	if len(prompt) == 0 {
		what = fmt.Sprintf("answer to %q", a.Prompt)
		if err != nil {
			return pipeline.GateResult{}, err
		}
		if prompt, err = tok.Encode(a.Prompt, tokenizer.EncodeOptions{Special: true}); err != nil {
			return pipeline.GateResult{}, err
		}
		if len(prompt) == 0 {
			return pipeline.GateResult{}, fmt.Errorf("%w: the prompt %q has no tokens, and the vocabulary puts none before it", pipeline.ErrRecipe, a.Prompt)
		}
	}
	opt := generate.Options{Max: len(a.Tokens), Sampling: generate.Sampling{Banned: banned(tok)}}
	so := infer.SessionOptions{Context: len(prompt) + len(a.Tokens), Jobs: in.Jobs}
	if so.Act, err = act(g.p.Act); err != nil {
		return pipeline.GateResult{}, err
	}
	s, err := m.NewSession(so)
	if err != nil {
		return pipeline.GateResult{}, err
	}
	got, err := generate.Run(ctx, s, prompt, opt)
	if err != nil && !errors.Is(err, generate.ErrNothing) {
		return pipeline.GateResult{}, err
	}
	same := 0
	for same < len(got.Tokens) && got.Tokens[same] == a.Tokens[same] {
		same++
	}
	res := pipeline.GateResult{Gate: g.Name(), Output: in.Output, What: what, Value: float64(same), Limit: float64(len(a.Tokens)), Pass: same == len(a.Tokens)}
	head := fmt.Sprintf("tokens: %s: %s", in.Output, what)
	switch {
	case res.Pass:
		res.Text = fmt.Sprintf("%s has the %d golden tokens", head, same)
	case same == len(got.Tokens):
		res.Text = fmt.Sprintf("%s has %d of %d golden tokens, then no token is possible", head, same, len(a.Tokens))
	default:
		res.Text = fmt.Sprintf("%s has %d of %d golden tokens, then %s in place of %s", head, same, len(a.Tokens), piece(tok, got.Tokens[same]), piece(tok, a.Tokens[same]))
	}
	return res, nil
}

// piece shows a token.
func piece(tok infer.Tokenizer, id int32) string {
	if tok == nil {
		return fmt.Sprint(id)
	}
	return fmt.Sprintf("%d (%q)", id, tok.Piece(id, true))
}

// banned tells tokens that are never given, as quern run leaves them out.
func banned(tok infer.Tokenizer) func(int32) bool {
	if u, ok := tok.(interface{ IsUnused(id int32) bool }); ok {
		return u.IsUnused
	}
	return nil
}

// parseAnswers reads one answer or a list of them.
func parseAnswers(b []byte) ([]answer, error) {
	var list []answer
	if b = bytes.TrimLeft(b, " \t\r\n"); len(b) > 0 && b[0] == '{' {
		list = make([]answer, 1)
		if err := json.Unmarshal(b, &list[0]); err != nil {
			return nil, fmt.Errorf("no golden tokens: %w", err)
		}
	} else if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("no golden tokens: %w", err)
	}
	if len(list) == 0 {
		return nil, errors.New("no golden tokens: the list is empty")
	}
	for i, a := range list {
		switch {
		case len(a.Tokens) == 0:
			return nil, fmt.Errorf("no golden tokens: answer %d has no tokens", i+1)
		case a.Prompt == "" && len(a.IDs) == 0:
			return nil, fmt.Errorf("no golden tokens: answer %d has neither prompt nor prompt_tokens", i+1)
		}
	}
	return list, nil
}

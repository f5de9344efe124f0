package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quern/model"
	"quern/model/convert"
	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/load"
	"quern/tokenizer"
)

// Tokenizer is the gate that demands the ids of the source's tokenizer.
type Tokenizer struct{ p recipes.TokenizerGate }

// NewTokenizer makes the gate.
func NewTokenizer(p recipes.TokenizerGate) *Tokenizer { return &Tokenizer{p} }

// Name is the gate's name.
func (g *Tokenizer) Name() string { return "tokenizer" }

// Plan looks for the file.
func (g *Tokenizer) Plan(sources []*pipeline.Source) error {
	if g.p.File == "" {
		return nil
	}
	_, err := pipeline.FindText(sources, g.p.File)
	return err
}

// encoder gives the ids of a text, without what is put before and behind it.
type encoder func(text string) ([]int32, error)

// Check encodes the golden strings.
func (g *Tokenizer) Check(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
	if in.Part > 0 {
		return nil, nil
	}
	tok, err := load.TokenizerFromBlob(ctx, in.Set[0].Name, opener(in))
	if errors.Is(err, infer.ErrNoTokenizer) {
		return nil, fmt.Errorf("%w: %w; output: names the output that the gate is for", pipeline.ErrRecipe, err)
	}
	if err != nil {
		return verdict(ctx, in, g.Name(), err)
	}
	got := func(text string) ([]int32, error) {
		return tok.Encode(text, tokenizer.EncodeOptions{Parse: g.p.File == "" || g.p.ParseSpecial})
	}
	texts, want, err := g.golden(ctx, in, tok)
	if err != nil {
		return nil, err
	}
	differ, say, err := differences(in.Output, texts, want, got)
	if err != nil {
		return verdict(ctx, in, g.Name(), err)
	}
	b := bound{value: float64(differ), limit: float64(g.p.Max)}
	return []pipeline.GateResult{{Gate: g.Name(), Output: in.Output, What: "golden strings with other ids", Value: b.value, Limit: b.limit, Pass: b.pass(),
		Text: "tokenizer: " + say + b.words()}}, nil
}

// differences counts the texts that two encoders see differently, and shows the
// first.
func differences(name string, texts []string, want, got encoder) (n int, say string, err error) {
	first := ""
	for _, text := range texts {
		w, err := want(text)
		if err != nil {
			return 0, "", pipeline.SourceFault(fmt.Errorf("%q: %w", text, err))
		}
		have, err := got(text)
		if err != nil {
			return 0, "", fmt.Errorf("%q: %w", text, err)
		}
		if slices.Equal(w, have) {
			continue
		}
		if n++; n == 1 {
			first = fmt.Sprintf(", the first is %q: %v where %v is right", text, have, w)
		}
	}
	return n, fmt.Sprintf("%s gives other ids for %d of %d golden strings%s", name, n, len(texts), first), nil
}

// TokenizerNotes warns of a GGUF file whose tokenizer gives other ids than the
// tokenizer.json of the checkpoint that the build started from. Where there is no
// such file, and where one of the two cannot be used here, it says nothing.
func TokenizerNotes(ctx context.Context, in pipeline.GateInput) ([]string, error) {
	if in.Part > 0 || in.Base == nil || in.Base.Form != model.HF {
		return nil, nil
	}
	src, err := convert.OpenTokenizer(ctx, in.Base)
	if err != nil {
		return nil, context.Cause(ctx)
	}
	tok, err := load.TokenizerFromBlob(ctx, in.Set[0].Name, opener(in))
	if err != nil {
		return nil, context.Cause(ctx)
	}
	texts, want := throughPruning(tok, tokenizer.SampleTexts(), plainly(src))
	n, say, err := differences(in.Output, texts, want,
		func(text string) ([]int32, error) { return tok.Encode(text, tokenizer.EncodeOptions{Parse: true}) })
	if err != nil || n == 0 {
		return nil, context.Cause(ctx)
	}
	return []string{"tokenizer: " + say}, nil
}

// plainly encodes without what the post-processor adds.
func plainly(s *tokenizer.Source) encoder {
	return func(text string) ([]int32, error) { return s.Encode(text, false) }
}

// throughPruning lets the whole tokenizer speak of a pruned one: it gives the texts
// that take none of the tokens that are gone, and their ids as they are now.
func throughPruning(tok infer.Tokenizer, texts []string, whole encoder) ([]string, encoder) {
	t, ok := tok.(*tokenizer.Tokenizer)
	if !ok || t.SourceIDs() == nil {
		return texts, whole
	}
	now := map[int32]int32{}
	for i, id := range t.SourceIDs() {
		now[id] = int32(i)
	}
	translated := func(text string) ([]int32, error) {
		ids, err := whole(text)
		if err != nil {
			return nil, err
		}
		out := make([]int32, 0, len(ids))
		for _, id := range ids {
			n, ok := now[id]
			if !ok {
				return nil, errGone
			}
			out = append(out, n)
		}
		return out, nil
	}
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		_, err := translated(text)
		return errors.Is(err, errGone)
	}), translated
}

// errGone marks a text with a token that was pruned.
var errGone = errors.New("a token is gone")

// golden gives the strings and what says their ids: the file, the source's
// tokenizer.json, or else the source's tokenizer as it is converted.
func (g *Tokenizer) golden(ctx context.Context, in pipeline.GateInput, tok infer.Tokenizer) ([]string, encoder, error) {
	if g.p.File != "" {
		b, err := readSource(ctx, in, g.p.File)
		if err != nil {
			return nil, nil, err
		}
		ids, err := parseStrings(b)
		if err != nil {
			return nil, nil, pipeline.SourceFault(fmt.Errorf("source %s: no golden strings: %w", g.p.File, err))
		}
		return slices.Sorted(maps.Keys(ids)), func(text string) ([]int32, error) { return ids[text], nil }, nil
	}
	// A convert step may have come before what is the reference for weights.
	if in.Base != nil && in.Base.Form == model.HF {
		s, err := convert.OpenTokenizer(ctx, in.Base)
		if err == nil {
			texts, want := throughPruning(tok, tokenizer.SampleTexts(), plainly(s))
			return texts, want, nil
		}
		if !errors.Is(err, tokenizer.ErrUnsupported) {
			return nil, nil, pipeline.SourceFault(err)
		}
	}
	t, err := sourceTokenizer(ctx, in)
	if err != nil {
		return nil, nil, pipeline.SourceFault(err)
	}
	return tokenizer.SampleTexts(), func(text string) ([]int32, error) { return t.Encode(text, tokenizer.EncodeOptions{Parse: true}) }, nil
}

// parseStrings reads a mapping of texts to ids. A text that comes twice is an
// error, since one of the two would count for nothing.
func parseStrings(b []byte) (map[string][]int32, error) {
	dec := json.NewDecoder(strings.NewReader(string(b)))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("want a mapping of texts to lists of ids"), err)
	}
	out := map[string][]int32{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		text, _ := t.(string)
		if _, twice := out[text]; twice {
			return nil, fmt.Errorf("%q comes twice", text)
		}
		ids := []int32{}
		if err := dec.Decode(&ids); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		out[text] = ids
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("there is something behind the mapping")
	}
	if len(out) == 0 {
		return nil, errors.New("it is empty")
	}
	return out, nil
}

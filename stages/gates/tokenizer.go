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
	texts, want, err := g.golden(ctx, in)
	if err != nil {
		return nil, err
	}
	differ, first := 0, ""
	for _, text := range texts {
		w, err := want(text)
		if err != nil {
			return nil, pipeline.SourceFault(fmt.Errorf("%q: %w", text, err))
		}
		have, err := got(text)
		if err != nil {
			return verdict(ctx, in, g.Name(), fmt.Errorf("%q: %w", text, err))
		}
		if slices.Equal(w, have) {
			continue
		}
		if differ++; differ == 1 {
			first = fmt.Sprintf(", the first is %q: %v where %v is right", text, have, w)
		}
	}
	b := bound{value: float64(differ), limit: float64(g.p.Max)}
	return []pipeline.GateResult{{Gate: g.Name(), Output: in.Output, What: "golden strings with other ids", Value: b.value, Limit: b.limit, Pass: b.pass(),
		Text: fmt.Sprintf("tokenizer: %s gives other ids for %d of %d golden strings%s%s", in.Output, differ, len(texts), first, b.words())}}, nil
}

// golden gives the strings and what says their ids: the file, the source's
// tokenizer.json, or else the source's tokenizer as it is converted.
func (g *Tokenizer) golden(ctx context.Context, in pipeline.GateInput) ([]string, encoder, error) {
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
	if in.Reference.Form == model.HF {
		s, err := convert.OpenTokenizer(ctx, in.Reference)
		if err == nil {
			return tokenizer.SampleTexts(), func(text string) ([]int32, error) { return s.Encode(text, false) }, nil
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

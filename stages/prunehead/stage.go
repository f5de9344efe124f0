// Package prunehead is the step that cuts what a model can say to a list of tokens:
// the output head alone, or the vocabulary as a whole.
package prunehead

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"quern/formats/tokenlist"
	"quern/internal/digest"
	"quern/model"
	"quern/model/convert"
	"quern/model/prune"
	"quern/pipeline"
	"quern/recipes"
	"quern/tokenizer"
)

// Stage is the step.
type Stage struct{ p recipes.PruneHead }

// New makes the step.
func New(p recipes.PruneHead) *Stage { return &Stage{p} }

// Name is the step's name.
func (s *Stage) Name() string { return "prune-head" }

// Plan fails: the list is a source.
func (s *Stage) Plan(ctx context.Context, in *model.Model) (*model.Model, error) {
	return s.PlanWith(ctx, in, nil)
}

// PlanWith prunes by the list that the step names. The list goes into the keys of
// the tensors by the rows that it picks.
func (s *Stage) PlanWith(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*model.Model, error) {
	list, err := s.list(ctx, sources)
	if err != nil {
		return nil, err
	}
	if s.p.Mode == "vocab" {
		v, notes, err := convert.Vocabulary(ctx, in)
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		if err := s.check(list, v); err != nil {
			return nil, err
		}
		return prune.Vocab(ctx, in.WithNotes(notes...), v, list.IDs, prune.VocabOptions{MultipleOf: s.p.MultipleOf})
	}
	v, err := s.fits(ctx, in, list)
	if err != nil {
		return nil, err
	}
	if v != nil && len(v.EndIDs) > 0 && !slices.ContainsFunc(v.EndIDs, list.Has) {
		in = in.WithNotes(model.Note{Subject: "prune-head", Text: fmt.Sprintf("the list %s has no token that ends an answer (%s): answers go on to their limit",
			s.p.Tokens, ends(v))})
	}
	return prune.Head(ctx, in, list.IDs)
}

// ends names the tokens that end an answer.
func ends(v *tokenizer.Vocabulary) string {
	out := ""
	for _, id := range v.EndIDs {
		if out != "" {
			out += ", "
		}
		out += fmt.Sprintf("%d %q", id, v.Tokens[id])
	}
	return out
}

// list reads the source, or the product of a step before. Ids of plain lists come in
// any order.
func (s *Stage) list(ctx context.Context, sources []*pipeline.Source) (*tokenlist.List, error) {
	src, err := pipeline.FindText(sources, s.p.Tokens)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	b, err := src.ReadAll(ctx)
	if err != nil {
		return nil, err
	}
	l, err := tokenlist.Read(bytes.NewReader(b), tokenlist.Options{Name: src.FileName(), AnyOrder: true})
	if err != nil {
		return nil, pipeline.SourceFault(fmt.Errorf("tokens: source %s: %w", s.p.Tokens, err))
	}
	return l, nil
}

// check holds what a list says of its vocabulary against the model's.
func (s *Stage) check(l *tokenlist.List, v *tokenizer.Vocabulary) error {
	var sum digest.Digest
	if !l.Tokenizer.IsZero() {
		sum = v.Digest()
	}
	if err := l.Check(int64(len(v.Tokens)), sum); err != nil {
		return fmt.Errorf("tokens: %s: %w", s.p.Tokens, err)
	}
	return nil
}

// fits is check for a head that is pruned alone, where the model may do without a
// tokenizer: then its rows are all that a list can be held against, and the
// vocabulary is nil.
func (s *Stage) fits(ctx context.Context, in *model.Model, l *tokenlist.List) (*tokenizer.Vocabulary, error) {
	v, _, err := convert.Vocabulary(ctx, in)
	switch {
	case err == nil:
		return v, s.check(l, v)
	case errors.Is(err, tokenizer.ErrNoTokenizer), errors.Is(err, tokenizer.ErrUnsupported), errors.Is(err, tokenizer.ErrUnknownPre), errors.Is(err, model.ErrForm):
		return nil, nil
	}
	return nil, pipeline.SourceFault(err)
}

// Package selecttokens is the step that counts the tokens of texts and makes a
// list of those that a smaller head or vocabulary keeps, for steps behind it.
package selecttokens

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"quern/formats/tokenlist"
	"quern/model"
	"quern/model/convert"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
	"quern/tokenizer"
	"quern/tokenizer/count"
)

// version is part of the key of every list. It changes when counts or choices do.
const version = "select-tokens.v1"

// Stage is the step. It leaves the model as it is.
type Stage struct {
	p   recipes.SelectTokens
	key string
}

// New makes the step.
func New(p recipes.SelectTokens) *Stage {
	return &Stage{p, recipes.Step{Kind: "select-tokens", Params: p}.Key()}
}

// Name is the step's name.
func (s *Stage) Name() string { return "select-tokens" }

// Plan gives the model back.
func (s *Stage) Plan(_ context.Context, in *model.Model) (*model.Model, error) { return in, nil }

// PlanWith gives the model back; the list is made even if no step reads it.
func (s *Stage) PlanWith(_ context.Context, in *model.Model, _ []*pipeline.Source) (*model.Model, error) {
	return in, nil
}

// Resolves is true: the list is all that the step is for.
func (s *Stage) Resolves() bool { return true }

// Resolve plans the count. The list depends on the vocabulary, on the texts and on
// the step's parameters, and on no weight.
func (s *Stage) Resolve(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*pipeline.Product, error) {
	var err error
	if in.Form == model.HF {
		if in, err = convert.ToGGUF(ctx, in, convert.Options{OutType: "f16"}); err != nil {
			return nil, pipeline.SourceFault(err)
		}
	}
	if in.Form != model.GGUF {
		return nil, fmt.Errorf("%w: a %s model has no tokenizer whose tokens are counted", pipeline.ErrRecipe, in.Form)
	}
	v, err := tokenizer.FromGGUF(in.Meta)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	corpora, texts, err := s.corpora(sources)
	if err != nil {
		return nil, err
	}
	var key tensor.Key
	if texts != "" {
		key = tensor.Derive(version, fmt.Sprintf("%s vocabulary %s special %v texts %s", s.key, v.Digest(), v.EndIDs, texts))
	}
	return &pipeline.Product{
		Format: "tokens", MediaType: tokenlist.MediaType, File: "tokens.txt", Key: key,
		Beside: []pipeline.ProductFile{
			{Format: "parquet", MediaType: "application/vnd.apache.parquet", File: "tokens.parquet"},
			{Format: "report", MediaType: "application/json", File: "tokens.json"},
		},
		MakeAll: func(ctx context.Context, opt pipeline.WorkOptions) ([][]byte, error) {
			return s.make(ctx, v, corpora, opt)
		},
		Tell: tell,
	}, nil
}

// corpora finds the texts, and what identifies them: their digests in order, empty
// while one is not known.
func (s *Stage) corpora(sources []*pipeline.Source) ([]count.Corpus, string, error) {
	var out []count.Corpus
	var id strings.Builder
	known := true
	for _, c := range s.p.Corpus {
		src, err := pipeline.Find(sources, c.Source)
		if err != nil {
			return nil, "", err
		}
		texts, err := src.TextsOf()
		if err != nil {
			return nil, "", err
		}
		k := count.Corpus{Name: c.Name, Language: c.Language, Weight: c.Weight, Cover: c.Coverage}
		if k.Name == "" {
			k.Name = c.Source
		}
		for _, t := range texts {
			k.Files = append(k.Files, count.File{Name: t.Name, Open: t.Open})
		}
		for _, f := range src.Files {
			known = known && f.SHA256 != ""
			fmt.Fprintf(&id, " %s", f.SHA256)
		}
		fmt.Fprintf(&id, " as %q;", k.Name)
		out = append(out, k)
	}
	if !known {
		return out, "", nil
	}
	return out, id.String(), nil
}

// make counts, chooses, and writes the list, the table and the report.
func (s *Stage) make(ctx context.Context, v *tokenizer.Vocabulary, corpora []count.Corpus, opt pipeline.WorkOptions) ([][]byte, error) {
	tok, err := tokenizer.New(v)
	if err != nil {
		return nil, err
	}
	counter, err := tok.NewCounter()
	if err != nil {
		return nil, err
	}
	counts, err := count.Count(ctx, counter, len(v.Tokens), corpora, count.Options{Jobs: opt.Jobs, Progress: func(n int64) {
		opt.Events.Event(pipeline.Event{Kind: pipeline.EventProgress, Output: "text", Done: n})
	}})
	if err != nil {
		if ctx.Err() == nil {
			err = pipeline.SourceFault(err)
		}
		return nil, err
	}
	rules := count.Rules{Count: s.p.Count, MinCount: s.p.MinCount, Coverage: s.p.Coverage, MultipleOf: s.p.MultipleOf}
	if rules.Keep, err = count.TextIDs(tok, s.p.Keep); err != nil {
		return nil, err
	}
	for _, id := range s.p.KeepIDs {
		rules.Keep = append(rules.Keep, int32(id))
	}
	kinds := count.Kinds(tok)
	chosen, err := count.Select(counts, kinds, rules)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pipeline.ErrRecipe, err)
	}
	list, err := (&tokenlist.List{Vocab: int64(len(v.Tokens)), Tokenizer: v.Digest(), IDs: chosen.IDs}).Bytes()
	if err != nil {
		return nil, err
	}
	table, err := Table(tok, counts, kinds, chosen.IDs)
	if err != nil {
		return nil, err
	}
	report, err := json.MarshalIndent(chosen.Report(counts, count.TokenBytes(tok)), "", "  ")
	if err != nil {
		return nil, err
	}
	return [][]byte{list, table, append(report, '\n')}, nil
}

// tell reads the report.
func tell(files [][]byte) ([]string, any, error) {
	r := &count.Report{}
	if err := json.Unmarshal(files[2], r); err != nil {
		return nil, nil, fmt.Errorf("report of the token list: %w", err)
	}
	return r.Lines(), r, nil
}

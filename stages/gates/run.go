package gates

import (
	"context"
	"errors"
	"fmt"
	"time"

	"quern/formats/cact"
	"quern/model"
	"quern/model/convert"
	checkpoint "quern/model/needle"
	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/generate"
	"quern/runtime/load"
	"quern/runtime/needle"
	"quern/runtime/score"
	"quern/runtime/transformer"
	"quern/tensor"
	"quern/tokenizer"
)

// borrowed is a blob that the one who opens a model out of it must not close.
type borrowed struct{ tensor.Blob }

// opener finds the files of an output as they were written.
func opener(in pipeline.GateInput) func(context.Context, string) (tensor.Blob, error) {
	return func(_ context.Context, name string) (tensor.Blob, error) {
		for _, f := range in.Set {
			if f.Name == name {
				return borrowed{f.Blob}, nil
			}
		}
		return nil, fmt.Errorf("%s is none of the files of the output", name)
	}
}

// runFile lets a gate run the written file. Of a file in several shards only the
// first is looked at, which stands for all. A file that cannot be run because it
// is broken is a result, one that the runtime does not know is an error.
func runFile(ctx context.Context, in pipeline.GateInput, gate string, run func(m infer.Model) ([]pipeline.GateResult, error)) (out []pipeline.GateResult, err error) {
	if in.Part > 0 {
		return nil, nil
	}
	m, err := load.FromBlob(ctx, in.Set[0].Name, opener(in))
	if err != nil {
		return verdict(ctx, in, gate, err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if out, err = run(withTokenizer{m, func() (infer.Tokenizer, error) { return sourceTokenizer(ctx, in) }}); err != nil {
		return verdict(ctx, in, gate, err)
	}
	return out, nil
}

// verdict says what an error means: that the recipe asks for what cannot be done,
// that a source failed, or that the file fails the gate.
func verdict(ctx context.Context, in pipeline.GateInput, gate string, err error) ([]pipeline.GateResult, error) {
	if ctx.Err() != nil || errors.Is(err, pipeline.ErrRecipe) || errors.Is(err, pipeline.ErrSource) {
		return nil, err
	}
	for _, wish := range []error{infer.ErrUnsupported, infer.ErrNoTokenizer, infer.ErrToken, score.ErrShort, score.ErrOutside, generate.ErrShort} {
		if errors.Is(err, wish) {
			return nil, fmt.Errorf("%w: %w", pipeline.ErrRecipe, err)
		}
	}
	return []pipeline.GateResult{{Gate: gate, Output: in.Output, What: "a file that runs", Value: 0, Limit: 1,
		Text: fmt.Sprintf("%s: %s cannot be run: %v", gate, in.Output, err)}}, nil
}

// withTokenizer gives a model without a tokenizer that of its source, which is
// what devices use beside it.
type withTokenizer struct {
	infer.Model
	other func() (infer.Tokenizer, error)
}

// Unwrap is the model behind, for what only its own kind can do.
func (m withTokenizer) Unwrap() infer.Model { return m.Model }

func (m withTokenizer) Tokenizer() (infer.Tokenizer, error) {
	tok, err := m.Model.Tokenizer()
	if !errors.Is(err, infer.ErrNoTokenizer) {
		return tok, err
	}
	src, serr := m.other()
	if serr != nil {
		return nil, fmt.Errorf("%w, and its source's cannot be used: %w", err, serr)
	}
	return src, nil
}

// sourceTokenizer is the tokenizer that the source's files define, as the written
// file holds it.
func sourceTokenizer(ctx context.Context, in pipeline.GateInput) (infer.Tokenizer, error) {
	if a := archiveOf(in); a != nil {
		return needleTokenizer(ctx, in, a)
	}
	tok, err := in.Memo.Do("tokenizer", func() (any, error) {
		m := in.Reference
		if m.Form == model.HF {
			var err error
			if m, err = convert.ToGGUF(ctx, m, convert.Options{OutType: "f32"}); err != nil {
				return nil, pipeline.SourceFault(err)
			}
		}
		if m.Form != model.GGUF {
			return nil, fmt.Errorf("%s: %w", m.Name, infer.ErrNoTokenizer)
		}
		v, err := tokenizer.FromGGUF(m.Meta)
		if errors.Is(err, tokenizer.ErrNoTokenizer) {
			return nil, fmt.Errorf("%s: %w", m.Name, infer.ErrNoTokenizer)
		}
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		t, err := tokenizer.New(v)
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		return t, nil
	})
	if err != nil {
		return nil, err
	}
	return tok.(infer.Tokenizer), nil
}

func archiveOf(in pipeline.GateInput) *model.Archive {
	if in.Layout == nil || in.Layout.Model == nil {
		return nil
	}
	return in.Layout.Model.Archive
}

// needleTokenizer is what the recipe's source called tokenizer becomes in an archive,
// else the tokenizer of the archive that the recipe starts from.
func needleTokenizer(ctx context.Context, in pipeline.GateInput, a *model.Archive) (infer.Tokenizer, error) {
	from := in.Reference
	for _, s := range in.Sources {
		if s.Name != recipes.TokenizerSource {
			continue
		}
		if from = s.Model; from != nil {
			break
		}
		b, err := readSource(ctx, in, s.Name)
		if err != nil {
			return nil, err
		}
		sp, err := tokenizer.ParseSPModel(s.Name, b)
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		t, err := checkpoint.Tokenizer(sp, a.Header.Generation)
		if err != nil {
			return nil, pipeline.SourceFault(fmt.Errorf("source %s: %w", s.Name, err))
		}
		return needle.NewTokenizer(t)
	}
	t := from.Tensor(cact.NameTokenizer)
	if t == nil {
		return nil, fmt.Errorf("%s: %w", from.Name, infer.ErrNoTokenizer)
	}
	b := make([]byte, t.Bytes())
	if err := t.ReadRows(ctx, b, 0, t.Rows()); err != nil {
		return nil, pipeline.SourceFault(err)
	}
	k, err := cact.ParseTokenizer(b)
	if err != nil {
		return nil, pipeline.SourceFault(fmt.Errorf("%s: %w", from.Name, err))
	}
	return needle.NewTokenizer(k)
}

// findBaseline finds the source that a baseline names, nil for the recipe's own.
// A plain file is one that holds a score.
func findBaseline(sources []*pipeline.Source, name string, plain bool) (*pipeline.Source, error) {
	if name == recipes.BaselineSource {
		return nil, nil
	}
	find := pipeline.FindModel
	if plain {
		find = pipeline.Find
	}
	s, err := find(sources, name)
	if err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	return s, nil
}

// baselineName is what texts call a baseline.
func baselineName(name string) string {
	if name == recipes.BaselineSource {
		return "the source"
	}
	return "baseline " + name
}

// openBaseline opens the model that a baseline names, a checkpoint as the GGUF
// file of F16 that it converts to. One of a Needle model, which has no tokenizer and
// no such file, is run as it is, with the tokenizer of the file.
func openBaseline(ctx context.Context, in pipeline.GateInput, name string, file infer.Model) (infer.Model, error) {
	m := in.Reference
	if s, err := findBaseline(in.Sources, name, false); err != nil {
		return nil, fmt.Errorf("%w: %w", pipeline.ErrRecipe, err)
	} else if s != nil {
		m = s.Model
	}
	var err error
	if m.Form == model.HF {
		if m, err = convert.ToGGUF(ctx, m, convert.Options{OutType: "f16"}); err != nil {
			return nil, pipeline.SourceFault(fmt.Errorf("%s: %w", baselineName(name), err))
		}
	}
	var run infer.Model
	if m.Form == model.Needle {
		var n *needle.Model
		n, err = needle.FromCheckpoint(ctx, m)
		run = withTokenizer{n, file.Tokenizer}
	} else {
		run, err = transformer.FromGGUF(ctx, m)
	}
	switch {
	case err == nil:
		return run, nil
	case errors.Is(err, infer.ErrUnsupported), errors.Is(err, model.ErrForm):
		return nil, fmt.Errorf("%w: %s cannot be run: %w", pipeline.ErrRecipe, baselineName(name), err)
	}
	return nil, pipeline.SourceFault(fmt.Errorf("%s: %w", baselineName(name), err))
}

// progressInterval is the time between two reports of a gate.
const progressInterval = 5 * time.Second

// progress reports now and then how far a gate has got.
func progress(in pipeline.GateInput, gate, unit string) func(done, total int) {
	last := time.Now()
	return func(done, total int) {
		if in.Events == nil || time.Since(last) < progressInterval {
			return
		}
		last = time.Now()
		in.Events.Event(pipeline.Event{Kind: pipeline.EventPhase, Message: fmt.Sprintf("gate %s: %s: %s %d of %d", gate, in.Output, unit, done, total)})
	}
}

// act reads the arithmetic that a recipe names; the schema has checked it.
func act(word string) (infer.Act, error) {
	if word == "" {
		return infer.Exact, nil
	}
	return infer.ParseAct(word)
}

// scoringAct is act for gates that judge how well a file does. Where the recipe names
// none it is what the engine of the file's format computes.
func scoringAct(in pipeline.GateInput, word string) (infer.Act, error) {
	if word == "" && archiveOf(in) != nil {
		return infer.Q8, nil
	}
	return act(word)
}

// bound compares with the most, or the least, that a value may be. Texts give both
// numbers in a unit, scaled for people. A value that is no number fails.
type bound struct {
	value, limit float64
	least        bool
	scale        float64 // of texts, 0 for 1
	unit         string
}

func (b bound) pass() bool {
	if b.least {
		return b.value >= b.limit
	}
	return b.value <= b.limit
}

// words ends a sentence: ", within the limit of 4.95".
func (b bound) words() string {
	scale := b.scale
	if scale == 0 {
		scale = 1
	}
	limit := fmt.Sprintf("the limit of %.6g%s", float64(b.limit*scale), b.unit)
	switch over := float64((b.value - b.limit) * scale); {
	case b.pass():
		return ", within " + limit
	case over != over:
		return ", no number, where there is " + limit
	case b.least:
		return fmt.Sprintf(", %.4g%s under %s", -over, b.unit, limit)
	default:
		return fmt.Sprintf(", %.4g%s beyond %s", over, b.unit, limit)
	}
}

package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"quern/internal/pyjson"
	"quern/model"
	"quern/tokenizer"
)

const (
	spmName  = "tokenizer.model"
	limitSPM = 256 << 20
)

// Vocabulary gives the vocabulary of a model in Hugging Face or GGUF form as a GGUF
// file of it has it, with what there is to say of it. Without a tokenizer the error is
// tokenizer.ErrNoTokenizer.
func Vocabulary(ctx context.Context, m *model.Model) (*tokenizer.Vocabulary, []model.Note, error) {
	switch m.Form {
	case model.HF:
		return loadVocab(ctx, m)
	case model.GGUF:
		v, err := tokenizer.FromGGUF(m.Meta)
		return v, nil, err
	}
	return nil, nil, fmt.Errorf("%w: a %s model holds no tokenizer: %w", model.ErrForm, m.Form, tokenizer.ErrNoTokenizer)
}

// loadVocab reads the tokenizer, unless a step has pruned it. Pieces past the declared vocabulary have no
// rows in the model; the converter drops them in silence, here they are an
// error.
func loadVocab(ctx context.Context, m *model.Model) (*tokenizer.Vocabulary, []model.Note, error) {
	if v := m.Vocabulary(); v != nil {
		return v, nil, nil
	}
	v, err := tokenizer.Load(ctx, m.Files, tokenizerConfig(m.Config), tokenizer.LoadOptions{Paths: paths(ctx, m)})
	if err != nil {
		return nil, nil, err
	}
	if v.Model == tokenizer.ModelSPM {
		if err := checkPieces(ctx, m, v); err != nil {
			return nil, nil, err
		}
	}
	var notes []model.Note
	for _, s := range v.Warnings {
		notes = append(notes, model.Note{Text: s})
	}
	return v, notes, nil
}

func checkPieces(ctx context.Context, m *model.Model, v *tokenizer.Vocabulary) error {
	text, err := m.Files.ReadFile(ctx, spmName, limitSPM)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", spmName, err)
	}
	sp, err := tokenizer.ParseSPModel(spmName, text)
	if err != nil {
		return err
	}
	n := len(v.Tokens)
	if len(sp.Pieces) <= n {
		return nil
	}
	const most = 8
	var lost []string
	for i := n; i < len(sp.Pieces) && i < n+most; i++ {
		lost = append(lost, fmt.Sprintf("%d %q", i, sp.Pieces[i].Text))
	}
	more := ""
	if rest := len(sp.Pieces) - n - len(lost); rest > 0 {
		more = fmt.Sprintf(" and %d more", rest)
	}
	return fmt.Errorf("%s: %w: %d pieces, vocab_size in %s is %d; ids without rows: %s%s; pad the rows or drop the ids",
		spmName, tokenizer.ErrVocabSize, len(sp.Pieces), m.Config.File(), n, strings.Join(lost, ", "), more)
}

func paths(ctx context.Context, m *model.Model) []string {
	list, err := m.Files.List(ctx)
	if err != nil {
		return nil
	}
	out := make([]string, len(list))
	for i, fi := range list {
		out[i] = fi.Path
	}
	return out
}

// OpenTokenizer opens the encoder of a checkpoint's tokenizer.json, which works as
// the library does that the model was trained with. Without such a file the error
// is tokenizer.ErrUnsupported.
func OpenTokenizer(ctx context.Context, m *model.Model) (*tokenizer.Source, error) {
	if m.Form != model.HF {
		return nil, fmt.Errorf("%w: %s is in %s form", model.ErrForm, m.Name, m.Form)
	}
	return tokenizer.OpenSource(ctx, m.Files, tokenizerConfig(m.Config))
}

// tokenizerConfig picks what the tokenizer wants to know. Special ids come from
// the file as it stands; the vocabulary's size may have been filled in by the
// class or changed by a step.
func tokenizerConfig(c *model.Config) tokenizer.Config {
	raw := c.RawObject()
	out := tokenizer.Config{Architecture: c.Architecture(), ModelType: c.ModelType(), TokenIDs: map[string]int64{}}
	v, _ := raw.Get("tokenizer_class")
	out.TokenizerClass, _ = v.(string)
	if n, ok, err := c.OptInt("vocab_size"); err == nil && ok {
		out.VocabSize = n
	}
	inner, _ := raw.Get("text_config")
	text, _ := inner.(*pyjson.Object)
	for _, o := range []*pyjson.Object{raw, text} {
		for _, key := range o.Keys() {
			typ, ok := strings.CutSuffix(key, "_token_id")
			if root, _ := raw.Get(key); !ok || o == text && root != nil {
				continue
			}
			v, _ := o.Get(key)
			if n, ok := v.(pyjson.Number); ok {
				if id, ok := n.Int64(); ok {
					out.TokenIDs[typ] = id
				}
			}
			if list, ok := v.([]any); ok && typ == "eos" {
				out.EndIDs = wholeNumbers(list)
			}
		}
	}
	return out
}

func wholeNumbers(list []any) []int64 {
	var out []int64
	for _, e := range list {
		if n, ok := e.(pyjson.Number); ok {
			if id, ok := n.Int64(); ok {
				out = append(out, id)
			}
		}
	}
	return out
}

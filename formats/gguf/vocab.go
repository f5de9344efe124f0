package gguf

import (
	"errors"
	"fmt"
	"strings"
)

// Vocab is the tokenizer of a file as its tokenizer.ggml.* keys hold it. The
// slices are the metadata's own and must not be changed.
type Vocab struct {
	Model  string // "llama", "gpt2", ...
	Pre    string // name of the pre-tokenizer, empty when missing
	Tokens []string
	Scores []float32 // one a token, or nil
	Types  []int32   // one a token, or nil
	Merges []string  // pairs with a space between, or nil
}

const vocabPrefix = "tokenizer.ggml."

// ReadVocab takes the vocabulary from the metadata. Integer and float widths
// are converted; lists of another length than the tokens', merges that are no
// pair and special ids outside the vocabulary are errors that name the key.
// Without tokenizer.ggml.tokens the error is ErrNoKey.
func ReadVocab(m *Metadata) (*Vocab, error) {
	v := &Vocab{}
	var err error
	if v.Tokens, err = m.Texts(vocabPrefix + "tokens"); err != nil {
		return nil, err
	}
	if v.Model, err = m.Text(vocabPrefix + "model"); err != nil {
		return nil, err
	}
	if v.Pre, err = optional(m.Text(vocabPrefix + "pre")); err != nil {
		return nil, err
	}
	if v.Scores, err = optional(m.Float32s(vocabPrefix + "scores")); err != nil {
		return nil, err
	}
	if v.Types, err = optional(m.Int32s(vocabPrefix + "token_type")); err != nil {
		return nil, err
	}
	if v.Merges, err = optional(m.Texts(vocabPrefix + "merges")); err != nil {
		return nil, err
	}
	return v, v.check(m)
}

// optional takes a missing key for an empty value.
func optional[T any](v T, err error) (T, error) {
	if errors.Is(err, ErrNoKey) {
		return v, nil
	}
	return v, err
}

func (v *Vocab) check(m *Metadata) error {
	n := len(v.Tokens)
	if v.Scores != nil && len(v.Scores) != n {
		return fmt.Errorf("key %sscores: %w: %d scores for %d tokens", vocabPrefix, ErrValue, len(v.Scores), n)
	}
	if v.Types != nil && len(v.Types) != n {
		return fmt.Errorf("key %stoken_type: %w: %d types for %d tokens", vocabPrefix, ErrValue, len(v.Types), n)
	}
	for i, s := range v.Merges {
		// The first byte may be a space itself.
		if len(s) < 3 || strings.IndexByte(s[1:len(s)-1], ' ') < 0 {
			return fmt.Errorf("key %smerges: %w: element %d, %s, is not two parts with a space between", vocabPrefix, ErrValue, i, clip(s))
		}
	}
	for key, val := range m.All() {
		if !strings.HasPrefix(key, vocabPrefix) || !strings.HasSuffix(key, "_token_id") {
			continue
		}
		id, err := AsInt[int64](val)
		if err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
		if id < 0 || id >= int64(n) {
			return fmt.Errorf("key %s: %w: token %d of a vocabulary of %d", key, ErrValue, id, n)
		}
	}
	return nil
}

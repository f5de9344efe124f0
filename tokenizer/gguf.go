package tokenizer

import (
	"errors"
	"fmt"
	"strings"

	"quern/formats/gguf"
)

// FromGGUF reads the vocabulary of a GGUF file. Integer widths are converted;
// lists of the wrong length, merges without a space and special ids outside the
// vocabulary are errors that name the key. Without a tokenizer the error is
// ErrNoTokenizer.
func FromGGUF(m *gguf.Metadata) (*Vocabulary, error) {
	g, err := gguf.ReadVocab(m)
	if errors.Is(err, gguf.ErrNoKey) {
		return nil, fmt.Errorf("%w: %w", err, ErrNoTokenizer)
	}
	if err != nil {
		return nil, err
	}
	v := &Vocabulary{Model: g.Model, Pre: g.Pre, Tokens: g.Tokens, Scores: g.Scores, Merges: g.Merges, keys: newKeyList()}
	if v.Model == ModelSPM && v.Pre == "" {
		v.Pre = "default"
	}
	v.Types = make([]TokenType, len(v.Tokens))
	for i := range v.Types {
		v.Types[i] = Normal
		if g.Types != nil {
			v.Types[i] = TokenType(g.Types[i])
		}
		if v.Types[i] != Unused {
			v.Size = int64(i) + 1
		}
	}
	if v.Model == ModelSPM && v.Scores == nil {
		v.Scores = make([]float32, len(v.Tokens)) // readers take missing scores for zeros
	}
	for key, val := range m.All() {
		if !isTokenizerKey(key) {
			continue
		}
		switch key {
		case keyTokens, keyScores, keyTypes, keyMerges:
			v.keys.reserve(key)
			continue
		}
		x := val.Any()
		if isIDKey(key) {
			id, err := gguf.AsInt[uint32](val)
			if err != nil {
				return nil, fmt.Errorf("key %s: %w", key, err)
			}
			x = id
		}
		if key == KeySourceIDs {
			ids, err := gguf.AsInts[int32](val)
			if err == nil && len(ids) != len(v.Tokens) {
				err = fmt.Errorf("%d ids for %d tokens: %w", len(ids), len(v.Tokens), ErrFormat)
			}
			if err != nil {
				return nil, fmt.Errorf("key %s: %w", key, err)
			}
			x = ids
		}
		v.keys.reserve(key)
		v.keys.vals[key] = x
	}
	// The one family whose tokens take along the space behind them is only told
	// by the model's name.
	if name, err := m.Text("general.name"); err == nil {
		name = strings.ToLower(name)
		v.eatSpace = strings.Contains(name, "phi-3") || strings.Contains(name, "phi3")
	}
	v.setEnds(nil)
	return v, nil
}

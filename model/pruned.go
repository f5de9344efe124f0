package model

import "quern/tokenizer"

// Pruned is what a model in Hugging Face form has lost of its vocabulary, which no
// file of it says. A conversion goes by it.
type Pruned struct {
	// Vocab takes the place of what the tokenizer files say; nil when they hold.
	Vocab *tokenizer.Vocabulary
	// HeadTied says of a pruned head that its rows are those of the embedding.
	HeadTied bool
}

// Vocabulary gives the vocabulary that a pruning has left of the tokenizer files',
// or nil.
func (m *Model) Vocabulary() *tokenizer.Vocabulary {
	if m.Pruned == nil {
		return nil
	}
	return m.Pruned.Vocab
}

// WithPruned returns a copy with another account of what was pruned.
func (m *Model) WithPruned(p Pruned) *Model {
	c := *m
	c.Pruned = &p
	return &c
}

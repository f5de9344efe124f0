package tokenizer

// What a tokenizer says of its vocabulary without making it anew.

// Vocabulary is what the tokenizer was made from: a copy, made anew, since the
// tokenizer keeps tokens and merges in a form of its own.
func (t *Tokenizer) Vocabulary() *Vocabulary {
	v := *t.v
	v.Tokens = t.tokens.list()
	v.Types, v.Merges = t.types.list(), t.merges.list()
	return &v
}

// Size is the number of ids.
func (t *Tokenizer) Size() int { return t.tokens.len() }

// ID is Vocabulary.ID for ids that the vocabulary has.
func (t *Tokenizer) ID(special string) (int32, bool) {
	id, ok := t.v.ID(special)
	return id, ok && id >= 0 && int(id) < t.Size()
}

// ChatTemplate is Vocabulary.ChatTemplate.
func (t *Tokenizer) ChatTemplate() string { return t.v.ChatTemplate() }

// NamedTemplate is Vocabulary.NamedTemplate.
func (t *Tokenizer) NamedTemplate(name string) (string, bool) { return t.v.NamedTemplate(name) }

// SourceIDs is Vocabulary.SourceIDs.
func (t *Tokenizer) SourceIDs() []int32 { return t.v.SourceIDs() }

package tokenizer

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// modelUGM is SentencePiece's unigram model: the best way through a text by
// scores. It is pruned, but not used, here.
const modelUGM = "t5"

// PruneOptions steer Vocabulary.Prune. The zero value adds no more than it must.
type PruneOptions struct {
	// MultipleOf fills the vocabulary up to a multiple with the lowest ids that
	// need no further parts; 0 and 1 do not.
	MultipleOf int64
	// Also are ids that something outside the tokenizer's keys names. They stay.
	Also []int32
}

// Pruned is a vocabulary that some tokens of another are left of.
type Pruned struct {
	Vocab *Vocabulary
	// IDs has the old id of each token. They ascend, so tokens keep their order.
	IDs []int32
	// Asked of them were in the list. Protected are the others that the
	// tokenizer cannot do without: special tokens, and tokens of bytes or
	// characters, out of which anything can be spelled. Parts are what kept
	// tokens are merged from, and Filled what MultipleOf brought.
	Asked, Protected, Parts, Filled int
}

// Prune keeps the tokens of a list, and with them what makes the result a
// tokenizer: whatever could be encoded before still can be, and decodes to the
// same text. A text that the whole vocabulary encodes with kept tokens alone gets
// the very same tokens.
//
// That holds since the list is closed first: of each kept token, everything stays
// that merging makes on the way to it. Merging a text then meets the same
// candidates as before but for those that end in a token that was dropped; the best
// one was always among the others, or the outcome would not have been kept tokens.
//
// Special tokens keep their text, type and role: all ids among the keys are
// translated. An id in the list that the vocabulary does not have, and a kind of
// tokenizer that is not known, ErrUnsupported, are errors.
func (v *Vocabulary) Prune(ids []int32, opt PruneOptions) (*Pruned, error) {
	c := &pruning{v: v, keep: make([]bool, len(v.Tokens))}
	out := &Pruned{}
	for _, id := range ids {
		if id < 0 || int(id) >= len(c.keep) {
			return nil, fmt.Errorf("token %d is to be kept, the vocabulary has %d: %w", id, len(c.keep), ErrVocabSize)
		}
		out.Asked += c.add(id)
	}
	var err error
	if v.Model != modelUGM {
		if c.t, err = New(v); err != nil {
			return nil, err
		}
	}
	if out.Protected, err = c.protect(opt.Also); err != nil {
		return nil, err
	}
	c.texts = map[string]bool{}
	for id, kept := range c.keep {
		if kept {
			out.Parts += c.close(int32(id))
		}
	}
	if out.Filled, err = c.fill(opt.MultipleOf); err != nil {
		return nil, err
	}
	for id, kept := range c.keep {
		if kept {
			out.IDs = append(out.IDs, int32(id))
		}
	}
	out.Vocab = c.vocabulary(out.IDs)
	return out, nil
}

// pruning is the work of Prune.
type pruning struct {
	v    *Vocabulary
	t    *Tokenizer // nil for modelUGM
	keep []bool
	// texts are what merging may come by: the texts of kept tokens, and what
	// is made on the way to them without being a token.
	texts map[string]bool
}

// add keeps a token and counts it if it is new.
func (c *pruning) add(id int32) int {
	if c.keep[id] {
		return 0
	}
	c.keep[id] = true
	return 1
}

// protect keeps what no tokenizer can do without.
func (c *pruning) protect(also []int32) (n int, err error) {
	const special = attrControl | attrUser | attrUnknown | attrByte
	bytes := 0
	for id, text := range c.v.Tokens {
		if attrOf(c.v.Types[id])&special != 0 || c.t != nil && c.t.attrs[id]&special != 0 {
			n += c.add(int32(id))
		}
		if _, ok := byteTokenValue(text); ok {
			n += c.add(int32(id))
			if c.v.Types[id] == Byte { // others show as their own text
				bytes++
			}
		}
	}
	for _, key := range c.v.keys.order {
		if id, ok := c.v.keys.vals[key].(uint32); ok && isIDKey(key) && int64(id) < int64(len(c.keep)) {
			n += c.add(int32(id))
		}
	}
	also = append(slices.Clone(also), c.v.EndIDs...)
	if c.t != nil {
		also = append(append(also, c.t.ends...), c.t.bos, c.t.eos)
	}
	if _, ok := c.v.ID("unk"); !ok && c.v.Model == ModelSPM {
		also = append(also, 0) // what readers take for it where no key says so
	}
	for _, id := range also {
		if id >= 0 && int(id) < len(c.keep) {
			n += c.add(id)
		}
	}
	switch {
	case c.v.Model == ModelBPE && !c.t.cut.rawUTF8:
		for _, id := range c.t.ByteTokens() { // the byte alphabet
			n += c.add(id)
		}
	case c.v.Model == ModelBPE, c.v.Model == ModelSPM, c.v.Model == modelGemma4, c.v.Model == modelUGM:
		// In bytes the mark of a space would be itself, and no space.
		if id := slices.Index(c.v.Tokens, "\u2581"); id >= 0 {
			n += c.add(int32(id))
		}
		// A character without a token is spelled in bytes, where all are there.
		if bytes < 256 || c.v.Model == modelUGM {
			n += c.protectCharacters()
		}
	default:
		return 0, fmt.Errorf("tokenizer model %q: %w", c.v.Model, ErrUnsupported)
	}
	return n, nil
}

// protectCharacters keeps all tokens of one character.
func (c *pruning) protectCharacters() (n int) {
	for id, text := range c.v.Tokens {
		if utf8.RuneCountInString(text) == 1 {
			n += c.add(int32(id))
		}
	}
	return n
}

// parts gives what merging makes of a token's text, the token itself last. ok is
// false where it does not get there: such a token is reached in another way, or
// never.
func (c *pruning) parts(id int32) (made []string, ok bool) {
	if c.t == nil {
		return nil, false
	}
	text := c.t.text(id)
	note := func(s string) { made = append(made, s) }
	if c.v.Model == ModelSPM {
		s := &spmSession{t: c.t, text: text, syms: symbolsOf(text), made: note}
		s.merge()
	} else {
		s := &bpeSession{t: c.t, made: note}
		s.merge(text)
	}
	return made, len(made) > 0 && made[len(made)-1] == text
}

// close keeps what merging makes on the way to a kept token, and counts it.
func (c *pruning) close(id int32) (n int) {
	c.texts[c.text(id)] = true
	made, ok := c.parts(id)
	if !ok {
		return 0
	}
	for _, s := range made {
		c.texts[s] = true
		if part, ok := c.t.id(s); ok {
			n += c.add(part)
		}
	}
	return n
}

// text is a token's text in any model.
func (c *pruning) text(id int32) string {
	if c.t == nil {
		return c.v.Tokens[id]
	}
	return c.t.text(id)
}

// fill adds tokens up to a multiple, lowest id first, that need nothing that is
// not there.
func (c *pruning) fill(multiple int64) (n int, err error) {
	have := int64(0)
	for _, kept := range c.keep {
		if kept {
			have++
		}
	}
	if multiple <= 1 || have%multiple == 0 {
		return 0, nil
	}
	want := (have + multiple - 1) / multiple * multiple
	for again := want <= int64(len(c.keep)); have < want && again; {
		again = false
		for id := 0; id < len(c.keep) && have < want; id++ {
			if c.keep[id] || c.v.Types[id] == Unused || !c.complete(int32(id)) {
				continue
			}
			c.add(int32(id))
			c.texts[c.text(int32(id))] = true
			have, n, again = have+1, n+1, true
		}
	}
	if have < want {
		return 0, fmt.Errorf("%d tokens are no multiple of %d, and the vocabulary has no more to fill up with: %w", have, multiple, ErrVocabSize)
	}
	return n, nil
}

// complete reports whether all that merging makes on the way to a token is kept.
func (c *pruning) complete(id int32) bool {
	if c.t == nil {
		return true
	}
	made, ok := c.parts(id)
	if !ok {
		return utf8.RuneCountInString(c.t.text(id)) == 1
	}
	for _, s := range made[:len(made)-1] {
		if !c.texts[s] {
			return false
		}
	}
	return true
}

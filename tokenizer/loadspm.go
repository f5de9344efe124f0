package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
)

// sentencePiece makes the vocabulary of a tokenizer.model: the pieces, then
// added_tokens.json, then added_tokens_decoder of tokenizer_config.json, each
// over the one before. Ids up to vocab_size that none of them names are
// padding.
func (l *loader) sentencePiece() error {
	m, err := ParseSPModel("tokenizer.model", l.spModel)
	if err != nil {
		return err
	}
	l.checkAlgorithm(m)
	size := l.cfg.VocabSize
	if size == 0 {
		size = int64(len(m.Pieces))
	}
	if err := plausibleSize(size, int64(len(m.Pieces))); err != nil {
		return err
	}
	v := l.v
	v.Model, v.Pre = ModelSPM, "default"
	v.Tokens = make([]string, size)
	v.Scores = make([]float32, size)
	v.Types = make([]TokenType, size)
	for i := range v.Tokens {
		v.Tokens[i] = padName(int64(i))
		v.Scores[i] = -10000
		v.Types[i] = Unused
	}
	for i, p := range m.Pieces {
		if int64(i) >= size {
			l.warnf("tokenizer.model has %d pieces, vocab_size is %d; the rest is ignored", len(m.Pieces), size)
			break
		}
		v.Tokens[i], v.Scores[i], v.Types[i] = p.Text, p.Score, pieceTokenType(p.Type)
		v.Size = int64(i) + 1
	}
	if err := l.addedTokensFile(); err != nil {
		return err
	}
	if err := l.addedTokensDecoder(); err != nil {
		return err
	}
	v.keys.set(keyModel, v.Model)
	v.keys.set(keyPre, v.Pre)
	for _, key := range []string{keyTokens, keyScores, keyTypes} {
		v.keys.reserve(key)
	}
	return l.finish(defaultSpecials, size, false)
}

// maxPadding bounds the ids that only vocab_size names, so that one number in a
// config cannot claim any amount of memory. Published models have a few hundred.
const maxPadding = 1 << 20

func plausibleSize(size, defined int64) error {
	if size < 0 || size > defined+maxPadding {
		return fmt.Errorf("config.json says vocab_size %d, the tokenizer has %d ids: %w", size, defined, ErrVocabSize)
	}
	return nil
}

// checkAlgorithm warns of what readers of the "llama" model kind do not do: they
// merge by score, and change nothing of the text but its spaces.
func (l *loader) checkAlgorithm(m *SPModel) {
	if m.Type != SPBPE {
		l.warnf("tokenizer.model is not of type BPE: readers that merge by score get other ids")
	}
	if len(m.PrecompiledCharsmap) > 0 {
		l.warnf("tokenizer.model normalizes by %q: readers do not", m.NormalizerName)
	}
	if m.RemoveExtraWhitespaces {
		l.warnf("tokenizer.model drops extra spaces: readers do not")
	}
}

// pieceTokenType maps the piece's type. A user-defined piece counts as normal:
// only the added-token files make user-defined tokens.
func pieceTokenType(t PieceType) TokenType {
	switch t {
	case PieceUnknown:
		return Unknown
	case PieceControl:
		return Control
	case PieceUnused:
		return Unused
	case PieceByte:
		return Byte
	}
	return Normal
}

func padName(id int64) string { return "[PAD" + strconv.FormatInt(id, 10) + "]" }

func (l *loader) addedTokensFile() error {
	if l.addedTokens == nil {
		return nil
	}
	for _, text := range l.addedTokens.keys {
		id, ok := l.addedTokens.integer(text)
		if !ok || id < 0 {
			return fmt.Errorf("added_tokens.json: token %q has no id: %w", text, ErrFormat)
		}
		l.overlay("added_tokens.json", id, text, UserDefined)
	}
	return nil
}

func (l *loader) addedTokensDecoder() error {
	dec := l.side.config.object("added_tokens_decoder")
	if dec == nil {
		return nil
	}
	for _, key := range dec.keys {
		id, err := strconv.ParseInt(strings.TrimSpace(key), 10, 64)
		o := dec.object(key)
		text, ok := o.str("content")
		if err != nil || id < 0 || !ok {
			return fmt.Errorf("tokenizer_config.json: added_tokens_decoder %q is not an id with a content: %w", key, ErrFormat)
		}
		typ := UserDefined
		if truthy(o.get("special")) || looksSpecial(text) {
			typ = Control
		} else {
			text = plainSpaces(text)
		}
		l.overlay("tokenizer_config.json", id, text, typ)
	}
	return nil
}

// overlay replaces or defines one token.
func (l *loader) overlay(file string, id int64, text string, typ TokenType) {
	v := l.v
	if id >= int64(len(v.Tokens)) {
		l.warnf("%s: token %q has id %d, vocab_size is %d; ignored", file, text, id, len(v.Tokens))
		return
	}
	if old := v.Tokens[id]; v.Types[id] != Unused && old != text {
		l.warnf("%s: token %d changes from %q to %q", file, id, old, text)
	}
	v.Tokens[id], v.Scores[id], v.Types[id] = text, -1000, typ
	if id >= v.Size {
		v.Size = id + 1
	}
}

// plainSpaces undoes SentencePiece's mark for a space in a user-defined token,
// whose text is matched before any other step.
func plainSpaces(s string) string { return strings.ReplaceAll(s, "\u2581", " ") }

// looksSpecial tells by its text that a token ought to be a control token,
// whatever its file says.
func looksSpecial(s string) bool {
	switch s {
	case "<pad>", "<mask>", "<2mass>", "[@BOS@]":
		return true
	}
	around := func(left, right string) bool {
		return strings.HasPrefix(s, left) && strings.HasSuffix(s, right)
	}
	return around("<|", "|>") || around("<\uff5c", "\uff5c>") || around("<unused", ">")
}

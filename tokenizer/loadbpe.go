package tokenizer

import "fmt"

// isByteFallback tells a SentencePiece model written as BPE with byte tokens
// (Llama 2's tokenizer.json) from byte-level BPE.
func (t *hfTokenizer) isByteFallback() bool {
	return t != nil && t.model.kind == "BPE" && t.model.byteFallback && typeOf(t.decoder) == "Sequence"
}

func typeOf(o *jsonObject) string {
	s, _ := o.str("type")
	return s
}

// needTokenizer makes sure that there is a tokenizer.json or its forerunners.
func (l *loader) needTokenizer() error {
	if l.hf != nil {
		return nil
	}
	var err error
	if l.hf, err = l.oldBPE(); err != nil || l.hf != nil {
		return err
	}
	if l.spModel == nil {
		return fmt.Errorf("neither tokenizer.model nor tokenizer.json nor vocab.json with merges.txt: %w", ErrNoTokenizer)
	}
	return fmt.Errorf("tokenizer.model without tokenizer.json, for architecture %s: %w", l.cfg.Architecture, ErrUnsupported)
}

// vocab gives the texts by id of model and added tokens together.
func (a *autoTokenizer) vocab() (map[int32]string, int32, error) {
	m := &a.enc.t.model
	byID := make(map[int32]string, len(m.vocab)+len(a.added.ids))
	top := int32(-1)
	put := func(id int32, text string) error {
		if old, ok := byID[id]; ok && old != text {
			if old > text {
				old, text = text, old
			}
			return fmt.Errorf("%s: tokens %q and %q share id %d: %w", a.enc.t.name, old, text, id, ErrFormat)
		}
		byID[id] = text
		if id > top {
			top = id
		}
		return nil
	}
	for id, text := range m.byID {
		if !m.holes[int32(id)] {
			if err := put(int32(id), text); err != nil {
				return nil, 0, err
			}
		}
	}
	for id, tok := range a.added.byID {
		if err := put(id, tok.content); err != nil {
			return nil, 0, err
		}
	}
	return byID, top, nil
}

// bpe makes the vocabulary of a byte-level BPE tokenizer.json.
func (l *loader) bpe() error {
	if err := l.needTokenizer(); err != nil {
		return err
	}
	t := l.hf
	if t.model.kind != "BPE" {
		return t.kindError()
	}
	a, err := l.auto()
	if err != nil {
		return err
	}
	l.checkAddedIDs(a)
	byID, top, err := a.vocab()
	if err != nil {
		return err
	}
	size := l.cfg.VocabSize
	if size == 0 {
		size = int64(len(byID))
	}
	v := l.v
	v.Size = int64(top) + 1
	if v.Size > size {
		texts := &Vocabulary{Tokens: make([]string, v.Size)}
		for id, text := range byID {
			texts.Tokens[id] = text
		}
		return fmt.Errorf("the tokenizer has %d ids, vocab_size is %d; ids past it: %s: %w", v.Size, size, texts.sample(size, v.Size), ErrVocabSize)
	}
	if err := plausibleSize(size, v.Size); err != nil {
		return err
	}
	v.Model = ModelBPE
	if v.Pre = l.opt.Pre; v.Pre == "" {
		if v.Pre, err = l.preName(a); err != nil {
			return err
		}
	}
	v.Tokens = make([]string, size)
	v.Types = make([]TokenType, size)
	for id := range v.Tokens {
		text, ok := byID[int32(id)]
		if !ok {
			v.Tokens[id], v.Types[id] = padName(int64(id)), Unused
			continue
		}
		if v.Tokens[id], v.Types[id], err = a.entry(int32(id), text); err != nil {
			return err
		}
	}
	v.keys.set(keyModel, v.Model)
	v.keys.set(keyPre, v.Pre)
	v.keys.reserve(keyTokens)
	v.keys.reserve(keyTypes)
	return l.finish(defaultSpecials, -1, true)
}

// entry gives the text and type of one token. The text of an added token that
// is matched in raw text goes once through the encoder and decoder, so that the
// reader, which knows no normalizer, sees what the model saw.
func (a *autoTokenizer) entry(id int32, text string) (string, TokenType, error) {
	tok, ok := a.added.byID[id]
	if !ok {
		return text, Normal, nil
	}
	if !tok.normalized {
		ids, err := a.enc.encode(text, false)
		if err != nil {
			return "", 0, fmt.Errorf("added token %q: %w", text, err)
		}
		if text, err = a.enc.decode(ids); err != nil {
			return "", 0, fmt.Errorf("added token %q: %w", tok.content, err)
		}
		if a.cleanUp {
			text = cleanUp(text)
		}
	}
	if tok.special || looksSpecial(text) {
		return text, Control, nil
	}
	return plainSpaces(text), UserDefined, nil
}

// checkAddedIDs warns of added tokens whose id in the file is not the one the
// library gives them.
func (l *loader) checkAddedIDs(a *autoTokenizer) {
	for _, tok := range l.hf.added {
		if id, ok := a.added.ids[tok.content]; ok && int64(id) != tok.id {
			l.warnf("%s: added token %q says id %d but gets %d", l.hf.name, tok.content, tok.id, id)
		}
	}
}

// byteFallback makes the vocabulary of a BPE tokenizer.json with byte tokens.
// It has no scores, so all are -1000.
func (l *loader) byteFallback() error {
	a, err := l.auto()
	if err != nil {
		return err
	}
	m := &l.hf.model
	base := int32(len(m.vocab))
	byID, top, err := a.vocab()
	if err != nil {
		return err
	}
	l.warnf("tokenizer.json has merges but the vocabulary is written without scores, as the converter has it: readers merge leftmost pairs first and may get other ids; with a tokenizer.model they would not")
	v := l.v
	v.Model, v.Pre = ModelSPM, "default"
	for id := int32(0); id <= top; id++ {
		text, ok := byID[id]
		if !ok {
			return fmt.Errorf("tokenizer.json: no token has id %d: %w", id, ErrFormat)
		}
		typ := Normal
		_, isByte := byteTokenValue(text)
		switch {
		case id < base && isByte:
			typ = Byte
		case a.specials[text]:
			typ = Control
		case id >= base:
			typ = UserDefined
		}
		v.Tokens = append(v.Tokens, text)
		v.Scores = append(v.Scores, -1000)
		v.Types = append(v.Types, typ)
	}
	v.Size = int64(len(v.Tokens))
	v.keys.set(keyModel, v.Model)
	v.keys.set(keyPre, v.Pre)
	for _, key := range []string{keyTokens, keyScores, keyTypes} {
		v.keys.reserve(key)
	}
	return l.finish(defaultSpecials, v.Size, false)
}

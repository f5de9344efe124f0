package tokenizer

// Type gives what a token is for a reader: its type in the vocabulary, corrected
// by its text. A control token that is a mere reserve, such as <unused12>, is
// Unused: a sampler must not return it.
func (t *Tokenizer) Type(id int32) TokenType {
	if id < 0 || int(id) >= len(t.attrs) {
		return Undefined
	}
	switch a := t.attrs[id]; {
	case a&attrUnused != 0:
		return Unused
	case a&attrUnknown != 0:
		return Unknown
	case a&attrControl != 0:
		return Control
	case a&attrUser != 0:
		return UserDefined
	case a&attrByte != 0:
		return Byte
	case a&attrNormal != 0:
		return Normal
	}
	return Undefined
}

// ByteTokens are the tokens that stand for one byte each, so that every text can
// be spelled, by byte. A byte without a token is left out.
func (t *Tokenizer) ByteTokens() []int32 {
	var out []int32
	for b := range 256 {
		name := byteToken(byte(b))
		if t.v.Model == ModelBPE && !t.cut.rawUTF8 {
			name = string(byteChar(byte(b)))
		}
		if id, ok := t.id(name); ok {
			out = append(out, id)
		}
	}
	return out
}

// SpecialIDs are the tokens that the vocabulary's keys give a part to play, and
// those that end a generation.
func (t *Tokenizer) SpecialIDs() []int32 {
	var out []int32
	put := func(id int32) {
		if id >= 0 && int(id) < t.Size() {
			out = append(out, id)
		}
	}
	for _, typ := range []string{"bos", "eos", "unk", "sep", "pad", "mask", "eot", "eom"} {
		if id, ok := t.v.ID(typ); ok {
			put(id)
		}
	}
	put(t.bos)
	put(t.eos)
	for _, id := range t.ends {
		put(id)
	}
	return out
}

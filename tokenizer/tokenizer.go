package tokenizer

import (
	"fmt"
	"hash/maphash"
	"sort"
	"strings"
)

// A Tokenizer encodes and decodes text with a Vocabulary by the rules of
// llama.cpp v0.5.0. It is safe for use by several goroutines.
type Tokenizer struct {
	v      *Vocabulary // without Tokens, Types and Merges
	types  tokenTypes
	tokens texts
	byText index
	attrs  []attr
	ends   []int32

	bos, eos       int32 // -1: none
	addBOS, addEOS bool
	spacePrefix    bool
	cut            *cutter     // ModelBPE
	merges         *mergeTable // ModelBPE
	special        []int32     // control, user-defined and unknown tokens, longest text first
}

// New makes a tokenizer. It fails for a vocabulary with two tokens of one text,
// which has no inverse, and for an unknown pre-tokenizer name.
func New(v *Vocabulary) (*Tokenizer, error) {
	if len(v.Types) != len(v.Tokens) {
		return nil, fmt.Errorf("%d token types for %d tokens: %w", len(v.Types), len(v.Tokens), ErrFormat)
	}
	rest := *v
	rest.Tokens, rest.Types, rest.Merges = nil, nil, nil
	t := &Tokenizer{v: &rest, types: newTokenTypes(v.Types), byText: newIndex(len(v.Tokens)), attrs: make([]attr, len(v.Tokens))}
	var err error
	if t.tokens, err = newTexts(v.Tokens); err != nil {
		return nil, err
	}
	for id := range v.Tokens {
		text := t.text(int32(id))
		if old, ok := t.id(text); ok {
			return nil, fmt.Errorf("tokens %d and %d are both %q: %w", old, id, text, ErrFormat)
		}
		t.byText.put(maphash.String(seed, text), uint32(id))
	}
	switch v.Model {
	case ModelSPM:
		if len(v.Scores) != len(v.Tokens) {
			return nil, fmt.Errorf("%d scores for %d tokens: %w", len(v.Scores), len(v.Tokens), ErrFormat)
		}
		t.bos, t.eos = t.idOr("bos", 1), t.idOr("eos", 2)
		t.addBOS, t.spacePrefix = true, true
	case ModelBPE, modelGemma4:
		pre, id := v.Pre, int32(11)
		if v.Model == modelGemma4 {
			pre, id = modelGemma4, -1
		}
		if t.cut, err = cutterFor(pre); err != nil {
			return nil, err
		}
		if t.merges, err = t.newMerges(v.Merges); err != nil {
			return nil, err
		}
		t.bos, t.eos = t.idOr("bos", id), t.idOr("eos", id)
		t.addBOS = t.cut.addBOS
	default:
		return nil, fmt.Errorf("tokenizer model %q: %w", v.Model, ErrUnsupported)
	}
	for _, f := range []struct {
		flag *bool
		typ  string
	}{{&t.addBOS, "bos"}, {&t.addEOS, "eos"}} {
		if add, set := v.Adds(f.typ); set {
			*f.flag = add
		}
	}
	if t.cut != nil && t.cut.forceBOS {
		t.addBOS = true
	}
	if add, set := v.AddSpacePrefix(); set {
		t.spacePrefix = add
	}
	t.settle(v.Types)
	for id, a := range t.attrs {
		if a&(attrControl|attrUser|attrUnknown) != 0 {
			t.special = append(t.special, int32(id))
		}
	}
	sort.SliceStable(t.special, func(i, j int) bool { return len(t.text(t.special[i])) > len(t.text(t.special[j])) })
	return t, nil
}

// text is a token's text; an empty one gets a name, as in llama.cpp.
func (t *Tokenizer) text(id int32) string {
	if s := t.tokens.at(int(id)); s != "" {
		return s
	}
	return fmt.Sprintf("[EMPTY_%d]", id)
}

// idOr finds a special id, or a default if the vocabulary reaches that far.
func (t *Tokenizer) idOr(typ string, def int32) int32 {
	if id, ok := t.ID(typ); ok {
		return id
	}
	if int(def) < t.Size() {
		return def
	}
	return -1
}

// BOS and EOS return the special ids, -1 for none.
func (t *Tokenizer) BOS() int32 { return t.bos }
func (t *Tokenizer) EOS() int32 { return t.eos }

// AddsBOS and AddsEOS report what Encode does with special set.
func (t *Tokenizer) AddsBOS() bool { return t.addBOS }
func (t *Tokenizer) AddsEOS() bool { return t.addEOS }

// EndIDs are the ids that end a generation, ascending: those of the vocabulary
// and those whose text is known to mean an end.
func (t *Tokenizer) EndIDs() []int32 { return append([]int32(nil), t.ends...) }

// IsEnd reports whether an id ends a generation.
func (t *Tokenizer) IsEnd(id int32) bool {
	i := sort.Search(len(t.ends), func(i int) bool { return t.ends[i] >= id })
	return i < len(t.ends) && t.ends[i] == id
}

// IsUnused reports whether an id is padding or reserved: a sampler must not
// return it.
func (t *Tokenizer) IsUnused(id int32) bool {
	return id < 0 || int(id) >= len(t.attrs) || t.attrs[id]&attrUnused != 0
}

// EncodeOptions steer Encode. The zero value encodes plain text.
type EncodeOptions struct {
	// Special puts BOS before and EOS behind the text, if the vocabulary says
	// so.
	Special bool
	// Parse takes the texts of control tokens in the input for these tokens.
	// User-defined tokens always are.
	Parse bool
}

// Encode gives the ids of a text. It fails only for a vocabulary in which a
// byte of the text has no token.
func (t *Tokenizer) Encode(text string, opt EncodeOptions) ([]int32, error) {
	ids := []int32{}
	if opt.Special && t.addBOS {
		if t.bos < 0 {
			return nil, fmt.Errorf("the vocabulary adds a bos token but has none: %w", ErrSpecialID)
		}
		ids = append(ids, t.bos)
	}
	afterSpecial := true
	var err error
	for _, f := range t.fragments(text, opt.Parse) {
		if f.id >= 0 {
			ids = append(ids, f.id)
			afterSpecial = true
			continue
		}
		if t.v.Model == ModelSPM {
			s := f.text
			if t.spacePrefix && afterSpecial {
				s = " " + s
			}
			ids, err = t.encodeSPM(ids, strings.ReplaceAll(s, " ", "\u2581"))
			afterSpecial = false
		} else {
			ids, err = t.encodeBPE(ids, f.text)
		}
		if err != nil {
			return nil, err
		}
	}
	if opt.Special && t.addEOS {
		if t.eos < 0 {
			return nil, fmt.Errorf("the vocabulary adds an eos token but has none: %w", ErrSpecialID)
		}
		ids = append(ids, t.eos)
	}
	return ids, nil
}

// eatsSpace reports whether a special token takes along the white space behind
// it, which is known of one family of models only, by name.
func (t *Tokenizer) eatsSpace(id int32) bool {
	if !t.v.eatSpace {
		return false
	}
	switch t.text(id) {
	case "<unk>", "<s>", "<|endoftext|>":
		return false
	}
	return true
}

// fragments cuts a text at special tokens: for each token, longest text first,
// every occurrence in what is still text, left to right.
func (t *Tokenizer) fragments(text string, parse bool) []segment {
	if text == "" {
		return nil
	}
	frags := []segment{{text: text, id: -1}}
	for _, id := range t.special {
		if !parse && t.attrs[id]&(attrControl|attrUnknown) != 0 {
			continue
		}
		want := t.text(id)
		if !strings.Contains(text, want) {
			continue
		}
		var next []segment
		for _, f := range frags {
			if f.id >= 0 {
				next = append(next, f)
				continue
			}
			rest := f.text
			for {
				before, after, ok := strings.Cut(rest, want)
				if !ok {
					break
				}
				if t.eatsSpace(id) {
					after = strings.TrimLeft(after, " \t\n\v\f\r")
				}
				if before != "" {
					next = append(next, segment{text: before, id: -1})
				}
				next = append(next, segment{id: id})
				rest = after
			}
			if rest != "" {
				next = append(next, segment{text: rest, id: -1})
			}
		}
		frags = next
	}
	return frags
}

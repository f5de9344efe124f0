package tokenizer

import (
	"fmt"
	"math"
	"strings"
)

// hfTokenizer is a parsed tokenizer.json. The steps around the model stay
// generic objects here; hfEncoder compiles them.
type hfTokenizer struct {
	name       string
	model      hfModel
	added      []addedToken
	normalizer *jsonObject // nil when null or absent, as are the next three
	pre        *jsonObject
	post       *jsonObject
	decoder    *jsonObject
}

// hfModel is the "model" of a tokenizer.json: BPE or Unigram.
type hfModel struct {
	kind  string           // "BPE", "Unigram", "WordPiece", "WordLevel"
	vocab map[string]int32 // text to id
	byID  []string         // id to text
	holes map[int32]bool   // ids below len(byID) that no text has

	scores []float64 // Unigram only, by id
	unkID  int32     // Unigram only, -1 for none

	merges       [][2]string
	pairs        bool // merges are written as pairs, not as "left right"
	unk          string
	hasUnk       bool
	byteFallback bool
	ignoreMerges bool
	fuseUnk      bool
	prefix       string // continuing_subword_prefix
	suffix       string // end_of_word_suffix

	hasByteFallback bool // the key is present
	hasIgnoreMerges bool
}

// addedToken is one of "added_tokens": text that is cut out of the input before
// the model sees it.
type addedToken struct {
	id         int64
	content    string
	singleWord bool
	lstrip     bool
	rstrip     bool
	normalized bool
	special    bool
}

// maxTokenID bounds ids so that an id-indexed table stays small.
const maxTokenID = 1 << 24

// parseHF reads a tokenizer.json. Repeated keys are errors: two ids for one
// text, or two models, have no right reading.
func parseHF(name string, data []byte) (*hfTokenizer, error) {
	r, err := newJSONReader(name, data, false)
	if err != nil {
		return nil, err
	}
	t := &hfTokenizer{name: name}
	seen := map[string]bool{}
	hasModel := false
	if r.peek() != '{' {
		return nil, r.errorf("want an object")
	}
	err = r.object(func(key string) error {
		if seen[key] {
			return r.errorf("repeated key %q", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "model":
			hasModel = true
			return t.model.parse(r)
		case "added_tokens":
			t.added, err = parseAdded(r)
		case "normalizer":
			t.normalizer, err = component(r, key)
		case "pre_tokenizer":
			t.pre, err = component(r, key)
		case "post_processor":
			t.post, err = component(r, key)
		case "decoder":
			t.decoder, err = component(r, key)
		default:
			_, err = r.value()
		}
		return err
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, err
	}
	if !hasModel {
		return nil, r.errorAt(0, "no \"model\"")
	}
	return t, nil
}

// component reads an object or null.
func component(r *jsonReader, key string) (*jsonObject, error) {
	v, err := r.value()
	if err != nil {
		return nil, err
	}
	o, ok := v.(*jsonObject)
	if v != nil && !ok {
		return nil, r.errorf("%s is neither an object nor null", key)
	}
	return o, nil
}

func parseAdded(r *jsonReader) ([]addedToken, error) {
	if r.peek() == 'n' {
		_, err := r.value()
		return nil, err
	}
	var out []addedToken
	err := r.array(func(i int) error {
		start := r.pos
		v, err := r.value()
		if err != nil {
			return err
		}
		o, _ := v.(*jsonObject)
		a, ok := addedFrom(o)
		if !ok {
			return r.errorAt(start, "added token %d has no content", i)
		}
		id, ok := o.integer("id")
		if !ok || id < 0 || id >= maxTokenID {
			return r.errorAt(start, "added token %q: bad id %v", a.content, o.get("id"))
		}
		a.id = id
		out = append(out, a)
		return nil
	})
	return out, err
}

// addedFrom reads the fields that tokenizer.json and tokenizer_config.json
// share.
func addedFrom(o *jsonObject) (addedToken, bool) {
	a := addedToken{normalized: true}
	var ok bool
	if a.content, ok = o.str("content"); !ok {
		return a, false
	}
	a.singleWord, _ = o.boolean("single_word")
	a.lstrip, _ = o.boolean("lstrip")
	a.rstrip, _ = o.boolean("rstrip")
	a.special, _ = o.boolean("special")
	if n, ok := o.boolean("normalized"); ok {
		a.normalized = n
	} else {
		a.normalized = !a.special
	}
	return a, true
}

func (m *hfModel) parse(r *jsonReader) error {
	seen := map[string]bool{}
	m.unkID = -1
	start := r.pos
	rawVocab := -1
	err := r.object(func(key string) error {
		if seen[key] {
			return r.errorf("model: repeated key %q", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "vocab":
			r.space()
			rawVocab = r.pos
			if r.peek() == '[' {
				return m.parseScored(r)
			}
			return m.parseVocab(r)
		case "merges":
			return m.parseMerges(r)
		}
		v, err := r.value()
		if err != nil {
			return err
		}
		switch key {
		case "type":
			m.kind, _ = v.(string)
		case "unk_token":
			m.unk, m.hasUnk = v.(string)
		case "unk_id":
			if n, ok := v.(jsonNumber); ok {
				if id, ok := n.integer(); ok && id >= 0 && id < maxTokenID {
					m.unkID = int32(id)
				}
			}
		case "byte_fallback":
			m.byteFallback, m.hasByteFallback = v.(bool)
		case "ignore_merges":
			m.ignoreMerges, m.hasIgnoreMerges = v.(bool)
		case "fuse_unk":
			m.fuseUnk, _ = v.(bool)
		case "continuing_subword_prefix":
			m.prefix, _ = v.(string)
		case "end_of_word_suffix":
			m.suffix, _ = v.(string)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if rawVocab < 0 {
		return r.errorAt(start, "model has no vocab")
	}
	if m.kind == "" {
		// Files older than the type field.
		switch {
		case seen["merges"]:
			m.kind = "BPE"
		case m.scores != nil:
			m.kind = "Unigram"
		default:
			return r.errorAt(start, "model has no type")
		}
	}
	if m.kind == "Unigram" && m.scores == nil || m.kind != "Unigram" && m.scores != nil {
		return r.errorAt(rawVocab, "vocab is not of the form that a %s model has", m.kind)
	}
	return nil
}

// parseVocab reads {"text": id}.
func (m *hfModel) parseVocab(r *jsonReader) error {
	m.vocab = map[string]int32{}
	top := int64(-1)
	err := r.object(func(text string) error {
		n, err := r.numberAfterSpace()
		if err != nil {
			return err
		}
		id, ok := n.integer()
		if !ok || id < 0 || id >= maxTokenID {
			return r.errorf("token %q: bad id %s", text, n)
		}
		if old, dup := m.vocab[text]; dup {
			return r.errorf("token %q has ids %d and %d", text, old, id)
		}
		m.vocab[text] = int32(id)
		if id > top {
			top = id
		}
		return nil
	})
	if err != nil {
		return err
	}
	// A huge id in a tiny vocabulary would buy a large table with few bytes.
	if top >= 8*int64(len(m.vocab))+1<<16 {
		return r.errorf("highest token id is %d in a vocabulary of %d tokens", top, len(m.vocab))
	}
	m.byID = make([]string, top+1)
	used := make([]bool, top+1)
	for text, id := range m.vocab {
		if used[id] {
			a, b := m.byID[id], text
			if a > b {
				a, b = b, a
			}
			return r.errorf("tokens %q and %q share id %d", a, b, id)
		}
		used[id] = true
		m.byID[id] = text
	}
	for id, ok := range used {
		if !ok {
			if m.holes == nil {
				m.holes = map[int32]bool{}
			}
			m.holes[int32(id)] = true
		}
	}
	return nil
}

// numberAfterSpace skips space before a number.
func (r *jsonReader) numberAfterSpace() (jsonNumber, error) {
	r.space()
	return r.number()
}

// parseScored reads the Unigram form [["text", score], ...].
func (m *hfModel) parseScored(r *jsonReader) error {
	m.vocab = map[string]int32{}
	m.scores = []float64{}
	return r.array(func(i int) error {
		if i >= maxTokenID {
			return r.errorf("more than %d tokens", maxTokenID)
		}
		text, score := "", jsonNumber("")
		err := r.array(func(j int) error {
			var err error
			switch j {
			case 0:
				text, err = r.str()
			case 1:
				score, err = r.numberAfterSpace()
			default:
				return r.errorf("token %d has more than a text and a score", i)
			}
			return err
		})
		if err != nil {
			return err
		}
		s, ok := score.float()
		if !ok || math.IsInf(s, 0) {
			return r.errorf("token %d %q: bad score %q", i, text, score)
		}
		if old, dup := m.vocab[text]; dup {
			return r.errorf("token %q has ids %d and %d", text, old, i)
		}
		m.vocab[text] = int32(i)
		m.byID = append(m.byID, text)
		m.scores = append(m.scores, s)
		return nil
	})
}

// parseMerges reads ["a b", ...] or [["a", "b"], ...].
func (m *hfModel) parseMerges(r *jsonReader) error {
	if r.peek() == 'n' {
		_, err := r.value()
		return err
	}
	return r.array(func(i int) error {
		pairs := r.peek() == '['
		if i == 0 {
			m.pairs = pairs
		} else if pairs != m.pairs {
			return r.errorf("merge %d: strings and pairs are mixed", i)
		}
		var pair [2]string
		if !pairs {
			s, err := r.str()
			if err != nil {
				return err
			}
			left, right, ok := strings.Cut(s, " ")
			if !ok || strings.Contains(right, " ") {
				return r.errorf("merge %d %q: want two parts with one space between", i, s)
			}
			pair = [2]string{left, right}
		} else {
			n := 0
			err := r.array(func(j int) error {
				if j > 1 {
					return r.errorf("merge %d has more than two parts", i)
				}
				var err error
				pair[j], err = r.str()
				n = j + 1
				return err
			})
			if err != nil {
				return err
			}
			if n != 2 {
				return r.errorf("merge %d has %d parts, want 2", i, n)
			}
		}
		m.merges = append(m.merges, pair)
		return nil
	})
}

// mergeLines gives the merges as GGUF stores them, "left right". In the pair
// form a part may hold spaces; they become U+0120, the byte-level alphabet's
// space.
func (t *hfTokenizer) mergeLines() []string {
	out := make([]string, len(t.model.merges))
	for i, p := range t.model.merges {
		if t.model.pairs {
			p[0] = strings.ReplaceAll(p[0], " ", "\u0120")
			p[1] = strings.ReplaceAll(p[1], " ", "\u0120")
		}
		out[i] = p[0] + " " + p[1]
	}
	return out
}

// kindError says that a model kind has no GGUF form here.
func (t *hfTokenizer) kindError() error {
	return fmt.Errorf("%s: a %s model: %w", t.name, t.model.kind, ErrUnsupported)
}

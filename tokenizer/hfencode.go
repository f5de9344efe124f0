package tokenizer

import (
	"fmt"
)

// hfEncoder encodes text as the Hugging Face tokenizers library does with the
// same tokenizer.json. It serves the probe hash and the check of golden texts;
// the runtime's own way is Tokenizer's.
type hfEncoder struct {
	t         *hfTokenizer
	added     *addedVocab
	normalize step
	pre       splitter
	post      []postStep
	merges    map[uint64]mergeRule
	unigram   *unigramLattice
	cache     map[string][]int32
}

// postStep puts special tokens around the ids of a text.
type postStep struct{ before, after []int32 }

// newHFEncoder compiles t with its added tokens and the post-processor.
func newHFEncoder(t *hfTokenizer, added *addedVocab, pre, post *jsonObject) (*hfEncoder, error) {
	e := &hfEncoder{t: t, added: added, cache: map[string][]int32{}}
	var err error
	if e.normalize, err = t.normalizeStep(); err != nil {
		return nil, err
	}
	if err = added.build(e.normalize); err != nil {
		return nil, err
	}
	if e.pre, err = compilePre(t.name, pre); err != nil {
		return nil, err
	}
	if err = e.compilePost(post); err != nil {
		return nil, err
	}
	switch t.model.kind {
	case "BPE":
		if e.merges, err = t.model.mergeTable(); err != nil {
			err = fmt.Errorf("%s: %w", t.name, err)
		}
	case "Unigram":
		e.unigram, err = newUnigramLattice(&t.model)
	default:
		err = t.kindError()
	}
	return e, err
}

// encode gives the ids of a text, with the post-processor's special tokens if
// asked. Invalid UTF-8 is replaced first.
func (e *hfEncoder) encode(text string, special bool) ([]int32, error) {
	ids := []int32{}
	for _, raw := range e.added.split(lossyUTF8(text), &e.added.raw, true) {
		if raw.id >= 0 {
			ids = append(ids, raw.id)
			continue
		}
		normal, err := e.normalize(raw.text)
		if err != nil {
			return nil, err
		}
		for _, seg := range e.added.split(normal, &e.added.normed, raw.first) {
			if seg.id >= 0 {
				ids = append(ids, seg.id)
				continue
			}
			parts, err := e.pre([]part{{seg.text, seg.first}})
			if err != nil {
				return nil, err
			}
			for _, p := range parts {
				word, err := e.word(p.text)
				if err != nil {
					return nil, err
				}
				ids = append(ids, word...)
			}
		}
	}
	if special {
		for _, p := range e.post {
			around := append([]int32(nil), p.before...)
			ids = append(append(around, ids...), p.after...)
		}
	}
	return ids, nil
}

func (e *hfEncoder) word(s string) ([]int32, error) {
	if e.unigram != nil {
		return e.unigram.encode(s)
	}
	return e.bpeWord(s)
}

// compilePost compiles a "post_processor" for single texts.
func (e *hfEncoder) compilePost(p *jsonObject) error {
	if p == nil {
		return nil
	}
	bad := func(what string) error {
		return fmt.Errorf("%s: post_processor: %s: %w", e.t.name, what, ErrFormat)
	}
	switch typ, _ := p.str("type"); typ {
	case "ByteLevel":
		return nil
	case "Sequence":
		for _, q := range p.list("processors") {
			o, ok := q.(*jsonObject)
			if !ok {
				return bad("not an object in a Sequence")
			}
			if err := e.compilePost(o); err != nil {
				return err
			}
		}
		return nil
	case "BertProcessing", "RobertaProcessing":
		var s postStep
		for _, key := range []string{"cls", "sep"} {
			pair := p.list(key)
			if len(pair) != 2 {
				return bad(key + " is not a text and an id")
			}
			ids := integers(pair[1:])
			if len(ids) != 1 {
				return bad(key + " has no id")
			}
			if key == "cls" {
				s.before = []int32{int32(ids[0])}
			} else {
				s.after = []int32{int32(ids[0])}
			}
		}
		e.post = append(e.post, s)
		return nil
	case "TemplateProcessing":
		return e.compileTemplate(p, bad)
	default:
		return fmt.Errorf("%s: post_processor %q: %w", e.t.name, typ, ErrUnsupported)
	}
}

func (e *hfEncoder) compileTemplate(p *jsonObject, bad func(string) error) error {
	var s postStep
	texts := 0
	for _, q := range p.list("single") {
		o, _ := q.(*jsonObject)
		if seq := o.object("Sequence"); seq != nil {
			texts++
			continue
		}
		name, ok := o.object("SpecialToken").str("id")
		if !ok {
			return bad("a part is neither Sequence nor SpecialToken")
		}
		def := p.object("special_tokens").object(name)
		ids := integers(def.list("ids"))
		if len(ids) == 0 {
			return bad(fmt.Sprintf("special token %q is not defined", name))
		}
		for _, id := range ids {
			if id < 0 || id >= maxTokenID {
				return bad(fmt.Sprintf("special token %q has id %d", name, id))
			}
			if texts == 0 {
				s.before = append(s.before, int32(id))
			} else {
				s.after = append(s.after, int32(id))
			}
		}
	}
	if texts != 1 {
		return fmt.Errorf("%s: post_processor: the single template holds the text %d times: %w", e.t.name, texts, ErrUnsupported)
	}
	e.post = append(e.post, s)
	return nil
}

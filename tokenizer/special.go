package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
)

// defaultSpecials are the special tokens the converter looks for, in order.
var defaultSpecials = []string{"bos", "eos", "unk", "sep", "pad", "cls", "mask"}

// A specialSet is what the converter learns about special tokens, in the order
// in which it finds them.
type specialSet struct {
	types  []string // names looked for; post-processing may append eot and eom
	limit  int64    // ids from here on are refused; negative: no limit
	ids    []specialID
	adds   []addFlag
	tmpl   chatTemplate
	lower  *bool
	strip  *bool
	merges []string
	warns  []string
}

type specialID struct {
	typ string
	id  int64
}

type addFlag struct {
	typ string
	add bool
}

// sideFiles are the parsed side files of a model folder, nil when absent.
type sideFiles struct {
	tokenizer *hfTokenizer // tokenizer.json
	config    *jsonObject  // tokenizer_config.json
	templates templateFiles
	mergesTxt []byte
	model     Config // config.json
}

func (s *specialSet) warnf(format string, args ...any) {
	s.warns = append(s.warns, fmt.Sprintf(format, args...))
}

func (s *specialSet) setAdd(typ string, add bool) {
	for i := range s.adds {
		if s.adds[i].typ == typ {
			s.adds[i].add = add
			return
		}
	}
	s.adds = append(s.adds, addFlag{typ, add})
}

func (s *specialSet) has(typ string) bool {
	for _, t := range s.types {
		if t == typ {
			return true
		}
	}
	return false
}

// setID keeps the first id found for a type. Ids outside the vocabulary are
// left out with a warning, as the converter does, except bos and eos: a model
// whose end token does not exist never stops.
func (s *specialSet) setID(typ string, id int64) error {
	if id < 0 {
		return fmt.Errorf("%s token id %d is negative: %w", typ, id, ErrSpecialID)
	}
	if s.limit >= 0 && id >= s.limit {
		if typ == "bos" || typ == "eos" {
			return fmt.Errorf("%s token id %d, the vocabulary has %d tokens: %w", typ, id, s.limit, ErrSpecialID)
		}
		s.warnf("%s token id %d is outside the vocabulary of %d tokens and left out", typ, id, s.limit)
		return nil
	}
	for _, have := range s.ids {
		if have.typ == typ {
			return nil
		}
	}
	s.ids = append(s.ids, specialID{typ, id})
	return nil
}

// findSpecials gathers special ids, add flags and the chat template in the
// converter's order: tokenizer.json and tokenizer_config.json, then config.json.
func findSpecials(f *sideFiles, types []string, limit int64, merges bool) (*specialSet, error) {
	s := &specialSet{types: append([]string(nil), types...), limit: limit}
	cfg := f.config.clone()
	if t := f.tokenizer; t != nil {
		if merges {
			s.merges = t.mergeLines()
		}
		s.parseNormalizer(t.normalizer)
		if err := s.postProcessor(t.post, cfg); err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", err)
		}
	}
	if cfg.nonEmpty() {
		s.tmpl = pickTemplate(cfg, f.templates, s.warnf)
		for i := 0; i < len(s.types); i++ {
			if err := s.fromConfig(s.types[i], cfg, f.tokenizer); err != nil {
				return nil, fmt.Errorf("tokenizer_config.json: %w", err)
			}
		}
	} else if f.templates.any() {
		s.warnf("chat template files are ignored since tokenizer_config.json is missing or empty")
	}
	for _, typ := range s.types {
		id, ok := f.model.TokenIDs[typ]
		if !ok && typ == "eos" && len(f.model.EndIDs) > 0 && !s.found("eos") {
			s.warnf("eos_token_id of config.json is a list %v and no other file names the token: no eos key is written, as the converter has it, and readers assume a default", f.model.EndIDs)
		}
		if ok {
			if err := s.setID(typ, id); err != nil {
				return nil, fmt.Errorf("config.json: %s_token_id: %w", typ, err)
			}
		}
	}
	if merges && len(s.merges) == 0 && f.mergesTxt != nil {
		s.parseMergesTxt(f.mergesTxt)
	}
	return s, nil
}

func (s *specialSet) found(typ string) bool {
	for _, have := range s.ids {
		if have.typ == typ {
			return true
		}
	}
	return false
}

// fromConfig resolves one special token of tokenizer_config.json by its text.
func (s *specialSet) fromConfig(typ string, cfg *jsonObject, t *hfTokenizer) error {
	if add, ok := cfg.boolean("add_" + typ + "_token"); ok {
		s.setAdd(typ, add)
	}
	text, ok := tokenText(cfg.get(typ + "_token"))
	if !ok || t == nil {
		return nil
	}
	for _, a := range t.added {
		if a.content == text {
			if err := s.setID(typ, a.id); err != nil {
				return fmt.Errorf("%s_token %q: %w", typ, text, err)
			}
			break
		}
	}
	return nil
}

// tokenText reads a token given as a string or as an object with "content".
func tokenText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case *jsonObject:
		return v.str("content")
	}
	return "", false
}

// parseNormalizer finds lower-casing and accent stripping.
func (s *specialSet) parseNormalizer(n *jsonObject) {
	t := true
	switch typ, _ := n.str("type"); typ {
	case "Lowercase":
		s.lower = &t
	case "StripAccents":
		s.strip = &t
	case "BertNormalizer":
		if b, ok := n.boolean("lowercase"); ok {
			s.lower = &b
		}
		if b, ok := n.boolean("strip_accents"); ok {
			s.strip = &b
		}
	case "Sequence":
		for _, e := range n.list("normalizers") {
			if o, ok := e.(*jsonObject); ok {
				s.parseNormalizer(o)
			}
		}
	}
}

// parseMergesTxt reads merges.txt: one pair a line after an optional comment.
func (s *specialSet) parseMergesTxt(data []byte) {
	lines := strings.Split(strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\r", "\n"), "\n")
	if len(lines) > 0 && strings.HasPrefix(strings.TrimFunc(lines[0], unicode.IsSpace), "#") {
		lines[0] = ""
	}
	for i, line := range lines {
		parts := strings.FieldsFunc(line, unicode.IsSpace)
		if len(parts) == 0 {
			continue
		}
		if len(parts) != 2 {
			s.warnf("merges.txt:%d: not a pair, ignored", i+1)
			continue
		}
		s.merges = append(s.merges, parts[0]+" "+parts[1])
	}
}

// write adds what was found to the key list.
func (s *specialSet) write(k *keyList) error {
	for _, e := range s.ids {
		key := specialKey(e.typ)
		if key == "" {
			continue
		}
		if e.id > 0xFFFFFFFF {
			return fmt.Errorf("%s: id %d does not fit 32 bits: %w", key, e.id, ErrSpecialID)
		}
		k.set(key, uint32(e.id))
	}
	for _, e := range s.adds {
		if key := addKey(e.typ); key != "" {
			k.set(key, e.add)
		}
	}
	s.tmpl.write(k)
	if s.lower != nil {
		k.set(keyLowercase, *s.lower)
	}
	if s.strip != nil {
		k.set(keyStripAccents, *s.strip)
	}
	return nil
}

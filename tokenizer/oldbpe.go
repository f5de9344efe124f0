package tokenizer

import (
	"fmt"
	"strings"
)

// Before tokenizer.json there were vocab.json, {"text": id}, and merges.txt, a
// pair a line. The steps around them were code of the tokenizer class. oldBPE
// makes of them the tokenizer that the transformers library would.

// oldBPE returns nil without an error when the files are not there.
func (l *loader) oldBPE() (*hfTokenizer, error) {
	vocab, err := l.read("vocab.json", limitTokenizer)
	if err != nil || vocab == nil || l.side.mergesTxt == nil {
		return nil, err
	}
	t := &hfTokenizer{name: "vocab.json", model: hfModel{kind: "BPE", unkID: -1}}
	r, err := newJSONReader(t.name, vocab, false)
	if err != nil {
		return nil, err
	}
	if err := t.model.parseVocab(r); err != nil {
		return nil, err
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	s := specialSet{}
	s.parseMergesTxt(l.side.mergesTxt)
	for _, line := range s.merges {
		left, right, _ := strings.Cut(line, " ")
		t.model.merges = append(t.model.merges, [2]string{left, right})
	}
	prefix, _ := l.side.config.boolean("add_prefix_space")
	switch name := strings.TrimSuffix(l.className(), "Fast"); name {
	case "Qwen2Tokenizer":
		t.normalizer = object("type", "NFC")
		t.pre = object("type", "Sequence", "pretokenizers", []any{
			object("type", "Split", "pattern", object("Regex", patternQwen2), "behavior", "Isolated"),
			object("type", "ByteLevel", "add_prefix_space", prefix, "use_regex", false),
		})
	case "GPT2Tokenizer":
		t.pre = object("type", "ByteLevel", "add_prefix_space", prefix)
	default:
		return nil, fmt.Errorf("vocab.json and merges.txt of tokenizer class %s: %w", name, ErrUnsupported)
	}
	t.decoder = object("type", "ByteLevel")
	return t, nil
}

// object makes an object from keys and values in turn.
func object(pairs ...any) *jsonObject {
	o := &jsonObject{vals: map[string]any{}}
	for i := 0; i < len(pairs); i += 2 {
		o.set(pairs[i].(string), pairs[i+1])
	}
	return o
}

package tokenizer

import (
	"errors"
	"strings"
	"testing"
)

func TestParseHF(t *testing.T) {
	tok, err := parseHF("tokenizer.json", []byte(`{
		"version": "1.0", "truncation": null, "normalizer": {"type": "NFC"}, "pre_tokenizer": null,
		"added_tokens": [{"id": 3, "content": "<s>", "special": true}, {"id": 9, "content": "x y", "normalized": false, "lstrip": true}],
		"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 4}, "merges": ["a b"], "unk_token": null, "byte_fallback": false, "ignore_merges": true}}`))
	if err != nil {
		t.Fatal(err)
	}
	m := tok.model
	if m.kind != "BPE" || m.hasUnk || m.byteFallback || !m.ignoreMerges || m.pairs || len(m.byID) != 5 || m.byID[4] != "ab" || !m.holes[2] || !m.holes[3] || m.holes[1] {
		t.Errorf("model %+v", m)
	}
	if len(tok.added) != 2 || tok.added[0].normalized || !tok.added[0].special || tok.added[1].normalized || !tok.added[1].lstrip || tok.added[1].id != 9 {
		t.Errorf("added %+v", tok.added)
	}
	if typeOf(tok.normalizer) != "NFC" || tok.pre != nil || tok.decoder != nil {
		t.Errorf("steps %v %v %v", tok.normalizer, tok.pre, tok.decoder)
	}
	if got := strings.Join(tok.mergeLines(), "|"); got != "a b" {
		t.Errorf("merges %q", got)
	}
}

// TestMergePairs: in the newer form a part may hold a space, which the line
// form cannot have.
func TestMergePairs(t *testing.T) {
	tok, err := parseHF("tokenizer.json", []byte(`{"model": {"type": "BPE", "vocab": {" ": 0, "b": 1, " b": 2}, "merges": [[" ", "b"]]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(tok.mergeLines(), "|"); got != "\u0120 b" || !tok.model.pairs {
		t.Errorf("merges %q", got)
	}
}

func TestParseHFRejects(t *testing.T) {
	model := func(s string) string { return `{"model":{"type":"BPE",` + s + `}}` }
	for _, c := range []struct{ name, text, want string }{
		{"not an object", `[]`, "want an object"},
		{"no model", `{"version":"1.0"}`, `no "model"`},
		{"model is no object", `{"model":[]}`, "want '{'"},
		{"two models", `{"model":{"type":"BPE","vocab":{}},"model":{"type":"BPE","vocab":{}}}`, "repeated key"},
		{"no vocab", model(`"merges":[]`), "no vocab"},
		{"no type", `{"model":{"vocab":{}}}`, "no type"},
		{"repeated text", model(`"vocab":{"a":0,"a":1}`), `"a" has ids 0 and 1`},
		{"shared id", model(`"vocab":{"b":0,"a":0}`), `"a" and "b" share id 0`},
		{"negative id", model(`"vocab":{"a":-1}`), "bad id"},
		{"fractional id", model(`"vocab":{"a":1.5}`), "bad id"},
		{"text id", model(`"vocab":{"a":"1"}`), "bad number"},
		{"lonely huge id", model(`"vocab":{"a":9999999}`), "highest token id"},
		{"too large id", model(`"vocab":{"a":4294967296}`), "bad id"},
		{"merge without space", model(`"vocab":{"a":0},"merges":["aa"]`), "one space"},
		{"merge of three", model(`"vocab":{"a":0},"merges":["a a a"]`), "one space"},
		{"pair of one", model(`"vocab":{"a":0},"merges":[["a"]]`), "want 2"},
		{"pair of three", model(`"vocab":{"a":0},"merges":[["a","a","a"]]`), "more than two"},
		{"mixed merges", model(`"vocab":{"a":0,"aa":1},"merges":["a a",["a","a"]]`), "mixed"},
		{"scores in BPE", model(`"vocab":[["a",1]]`), "not of the form"},
		{"map in Unigram", `{"model":{"type":"Unigram","vocab":{"a":0}}}`, "not of the form"},
		{"score is text", `{"model":{"type":"Unigram","vocab":[["a","1"]]}}`, "bad number"},
		{"huge score", `{"model":{"type":"Unigram","vocab":[["a",1e999]]}}`, "bad score"},
		{"added without content", `{"added_tokens":[{"id":1}],"model":{}}`, "no content"},
		{"added without id", `{"added_tokens":[{"content":"a"}],"model":{}}`, "bad id"},
		{"added with huge id", `{"added_tokens":[{"content":"a","id":99999999}],"model":{}}`, "bad id"},
		{"normalizer is text", `{"normalizer":"NFC","model":{}}`, "neither an object nor null"},
		{"lone surrogate in a token", model(`"vocab":{"\ud800":0}`), "lone surrogate"},
		{"trailing text", `{"model":{"type":"BPE","vocab":{}}}x`, "after"},
		{"bare infinity", `{"x":Infinity,"model":{"type":"BPE","vocab":{}}}`, "unexpected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseHF("tokenizer.json", []byte(c.text))
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "tokenizer.json:1:") {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestMergeOutside: a merge of texts that are no tokens is an error before
// anything is encoded.
func TestMergeOutside(t *testing.T) {
	for _, merge := range []string{"a b", "a c", "c a"} {
		tok, err := parseHF("tokenizer.json", []byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["`+merge+`"]}}`))
		if err != nil {
			t.Fatal(err)
		}
		_, err = newHFEncoder(tok, newAddedVocab(), nil, nil)
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "tokenizer.json: merge 0") || !strings.Contains(err.Error(), "is not in the vocabulary") {
			t.Errorf("%s: error %v", merge, err)
		}
	}
}

func TestUnsupportedSteps(t *testing.T) {
	base := func(fields string) []byte {
		return []byte(`{"model":{"type":"BPE","vocab":{"a":0}},` + fields + `}`)
	}
	for _, c := range []struct {
		fields string
		want   error
	}{
		{`"normalizer":{"type":"Precompiled"}`, ErrUnsupported},
		{`"normalizer":{"type":"Replace","pattern":{"Regex":"["},"content":""}`, ErrFormat},
		{`"normalizer":{"type":"Replace","pattern":{"Regex":"a(?<b"},"content":""}`, ErrUnsupported},
		{`"normalizer":{"type":"Replace","pattern":{"String":"a"}}`, ErrFormat},
		{`"normalizer":{"type":"Sequence","normalizers":[1]}`, ErrFormat},
		{`"pre_tokenizer":{"type":"UnicodeScripts"}`, ErrUnsupported},
		{`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"Sideways"}`, ErrFormat},
		{`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&[^b]]"},"behavior":"Isolated"}`, ErrUnsupported},
		{`"pre_tokenizer":{"type":"Split","behavior":"Isolated"}`, ErrFormat},
		{`"pre_tokenizer":{"type":"Sequence","pretokenizers":["x"]}`, ErrFormat},
		{`"pre_tokenizer":{"type":"Metaspace","replacement":"xy"}`, ErrFormat},
		{`"pre_tokenizer":{"type":"Metaspace","prepend_scheme":"twice"}`, ErrFormat},
		{`"post_processor":{"type":"Other"}`, ErrUnsupported},
		{`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{}}`, ErrFormat},
		{`"post_processor":{"type":"TemplateProcessing","single":[]}`, ErrUnsupported},
		{`"post_processor":{"type":"BertProcessing","cls":["a"],"sep":["b",1]}`, ErrFormat},
	} {
		tok, err := parseHF("tokenizer.json", base(c.fields))
		if err != nil {
			t.Fatalf("%s: %v", c.fields, err)
		}
		_, err = newHFEncoder(tok, newAddedVocab(), tok.pre, tok.post)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.fields, err, c.want)
		}
	}
}

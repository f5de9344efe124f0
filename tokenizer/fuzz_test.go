package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzParseSPModel(f *testing.F) {
	f.Add(readTestFile(f, "../testdata/convert/tokenizers/stories.model"))
	f.Add((&spBuilder{}).piece("<unk>", 0, PieceUnknown).piece("\u2581a", -1, PieceNormal).set(3, 2).bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseSPModel("tokenizer.model", data)
		if err != nil {
			return
		}
		if len(m.Pieces) > len(data) {
			t.Fatalf("%d pieces from %d bytes", len(m.Pieces), len(data))
		}
		for i, p := range m.Pieces {
			if p.Text == "" || !utf8.ValidString(p.Text) || p.Score != p.Score || p.Type < PieceNormal || p.Type > PieceByte {
				t.Fatalf("piece %d: %+v", i, p)
			}
		}
		files := memFiles{"config.json": `{"architectures":["LlamaForCausalLM"]}`, "tokenizer.model": string(data)}
		v, err := files.load(t)
		if err != nil {
			t.Fatalf("a model that parses does not load: %v", err)
		}
		tok, err := New(v)
		if err != nil {
			t.Fatal(err)
		}
		if ids, err := tok.Encode("Hi <s> \xff\u00e9", EncodeOptions{Special: true, Parse: true}); err == nil {
			checkIDs(t, ids, len(v.Tokens))
		}
	})
}

func checkIDs(t *testing.T, ids []int32, n int) {
	t.Helper()
	for _, id := range ids {
		if id < 0 || int(id) >= n {
			t.Fatalf("id %d of %d tokens", id, n)
		}
	}
}

func FuzzTokenizerJSON(f *testing.F) {
	for _, c := range loadHFGoldens(f).Cases {
		if c.File != "" {
			continue
		}
		// The steps of each toy around a model small enough to mutate fast.
		var doc map[string]json.RawMessage
		unmarshal(f, c.Tokenizer, &doc)
		doc["model"] = json.RawMessage(`{"type":"BPE","unk_token":"a","vocab":{"a":0,"b":1,"ab":2,"<s>":3,"</s>":4},"merges":["a b"]}`)
		doc["added_tokens"] = json.RawMessage(`[{"id":3,"content":"<s>","special":true,"lstrip":true},{"id":5,"content":"b b","normalized":true}]`)
		delete(doc, "version")
		data, err := json.Marshal(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "ab 12")
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`), "abab")
	f.Add([]byte(`{"added_tokens":[{"id":0,"content":"x","single_word":true}],"model":{"type":"Unigram","unk_id":0,"vocab":[["a",-1.5]]}}`), "xax")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := parseHF("tokenizer.json", data)
		if err != nil {
			return
		}
		if len(tok.model.byID) > 8*len(data)+1<<17 {
			t.Fatalf("%d ids from %d bytes", len(tok.model.byID), len(data))
		}
		files := memFiles{"config.json": `{"architectures":["LlamaForCausalLM"]}`, "tokenizer.json": string(data)}
		if v, err := files.load(t); err == nil && len(v.Tokens) != len(v.Types) {
			t.Fatalf("%d tokens, %d types", len(v.Tokens), len(v.Types))
		}
		added := newAddedVocab()
		added.add(tok.added, &tok.model)
		e, err := newHFEncoder(tok, added, tok.pre, tok.post)
		if err != nil || len(text) > 12 {
			return
		}
		ids, err := e.encode(text, true)
		if err != nil {
			return
		}
		if _, err := e.decode(ids); err != nil {
			return
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"architectures":["Gemma3ForConditionalGeneration"],"text_config":{"vocab_size":5,"eos_token_id":[1,106]},"x":[0.0,Infinity]}`))
	f.Add([]byte(`{"eos_token_id":"\ud83e\udd99"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := ParseConfig("config.json", data); err == nil && !utf8.Valid(data) {
			t.Fatal("invalid UTF-8 accepted")
		}
		endsOf(data)
	})
}

// FuzzRoundTrip: a byte-complete vocabulary gives every text back.
func FuzzRoundTrip(f *testing.F) {
	g := loadRunGoldens(f)
	for _, text := range g.Texts {
		f.Add(text)
	}
	var toks []*Tokenizer
	for _, c := range g.Cases {
		if c.Name == "stories-plain" || c.Name == "qwen2" || c.Name == "deepseek-llm" || c.Name == "smollm" {
			toks = append(toks, g.tokenizer(f, c))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range toks {
			ids, err := tok.Encode(text, EncodeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			checkIDs(t, ids, tok.Size())
			got, streamed := tok.Decode(ids, DecodeOptions{Special: true}), ""
			s := tok.NewStream(true)
			for _, id := range ids {
				streamed += s.Next(id)
			}
			streamed += s.Flush()
			if streamed != lossyUTF8(got) {
				t.Fatalf("streamed %q, decoded %q", streamed, got)
			}
			if tok.v.Model == ModelSPM {
				text = strings.ReplaceAll(text, "\u2581", " ")
			}
			if utf8.ValidString(text) && got != text {
				t.Fatalf("%s: %q comes back as %q", tok.v.Pre, text, got)
			}
		}
	})
}

// FuzzWords: the words of a text cover it, none is empty.
func FuzzWords(f *testing.F) {
	for _, text := range loadRunGoldens(f).Texts {
		f.Add(text)
	}
	rules := []wordRule{{gpt2: true}, {maxDigits: 3, longS: true}, {maxDigits: 1, marks: true}}
	f.Fuzz(func(t *testing.T, text string) {
		text = lossyUTF8(text)
		for _, r := range rules {
			joined := ""
			r.fast().words(text, func(start, end int) {
				if start == end {
					t.Fatal("empty word")
				}
				joined += text[start:end]
			})
			if joined != text {
				t.Fatalf("%+v: words join to %q, want %q", r, joined, text)
			}
		}
	})
}

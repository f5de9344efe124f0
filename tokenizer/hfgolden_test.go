package tokenizer

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
)

// hfGoldens is testdata/tokenizer/hf.json.gz: what the Hugging Face tokenizers
// library makes of the texts.
type hfGoldens struct {
	Texts []string
	Cases []struct {
		Name      string
		Tokenizer json.RawMessage
		File      string
		IDs       [][]int32
		Special   [][]int32
		Decoded   []string
		Probe     string
	}
}

func loadHFGoldens(t testing.TB) hfGoldens {
	t.Helper()
	var g hfGoldens
	if err := json.Unmarshal(readTestFile(t, "../testdata/tokenizer/hf.json.gz"), &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases) < 20 || len(g.Texts) < 60 {
		t.Fatalf("%d cases, %d texts", len(g.Cases), len(g.Texts))
	}
	return g
}

func newTestEncoder(t testing.TB, data []byte) *hfEncoder {
	t.Helper()
	tok, err := parseHF("tokenizer.json", data)
	if err != nil {
		t.Fatal(err)
	}
	added := newAddedVocab()
	added.add(tok.added, &tok.model)
	e, err := newHFEncoder(tok, added, tok.pre, tok.post)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestHFEncoder(t *testing.T) {
	g := loadHFGoldens(t)
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			data := []byte(c.Tokenizer)
			if c.File != "" {
				data = readTestFile(t, filepath.Join("..", "testdata", filepath.FromSlash(c.File)))
			}
			e := newTestEncoder(t, data)
			for i, text := range g.Texts {
				for _, special := range []bool{false, true} {
					want := c.IDs[i]
					if special {
						want = c.Special[i]
					}
					ids, err := e.encode(text, special)
					if err != nil {
						t.Fatalf("%q: %v", text, err)
					}
					if fmt.Sprint(ids) != fmt.Sprint(want) {
						t.Errorf("%q special %v:\n got %v\nwant %v", text, special, ids, want)
					}
				}
				got, err := e.decode(c.IDs[i])
				if err != nil {
					t.Fatalf("%q: %v", text, err)
				}
				if got != c.Decoded[i] {
					t.Errorf("decoding %v:\n got %q\nwant %q", c.IDs[i], got, c.Decoded[i])
				}
			}
			ids, err := e.encode(probeText, true)
			if err != nil {
				t.Fatal(err)
			}
			if got := hashIDs(ids); got != c.Probe {
				t.Errorf("probe hash %s, want %s", got, c.Probe)
			}
		})
	}
}

// TestLiteralPattern: a pattern given as String is text. Models were trained
// with such patterns that look like regular expressions and never match.
func TestLiteralPattern(t *testing.T) {
	g := loadHFGoldens(t)
	ids := map[string][]int32{}
	for _, c := range g.Cases {
		for i, text := range g.Texts {
			if text == "1 12 123 1234 12345 123456 1234567" {
				ids[c.Name] = c.IDs[i]
			}
		}
	}
	if fmt.Sprint(ids["literal"]) == fmt.Sprint(ids["literal-regex"]) {
		t.Fatal("the two goldens are alike: the case tests nothing")
	}
}

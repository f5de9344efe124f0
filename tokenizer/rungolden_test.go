package tokenizer

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sort"
	"sync"
	"testing"

	"quern/formats/gguf"
)

// runGoldens is testdata/tokenizer/run.json.gz: what llama.cpp v0.5.0 makes of
// the texts.
type runGoldens struct {
	Texts      []string
	Byte, Char map[string]json.RawMessage
	Cases      []runCase
}

type runCase struct {
	Name, Vocab, Pre string
	Keys             map[string]json.RawMessage
	IDs, Parsed      [][]int32
	Ends             []int32
	Text             []string
	TextSpecial      []string `json:"text_special"`
}

func loadRunGoldens(t testing.TB) runGoldens {
	t.Helper()
	var g runGoldens
	if err := json.Unmarshal(readTestFile(t, "../testdata/tokenizer/run.json.gz"), &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases) < 40 {
		t.Fatalf("only %d cases", len(g.Cases))
	}
	return g
}

// metadata turns keys in JSON into GGUF metadata; the type follows from the key.
func metadata(t testing.TB, keys map[string]json.RawMessage) *gguf.Metadata {
	t.Helper()
	m := gguf.NewMetadata()
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		raw := keys[name]
		into := func(v any) {
			if err := json.Unmarshal(raw, v); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		switch name {
		case keyTokens, keyMerges:
			var v []string
			into(&v)
			m.Set(name, gguf.List(v))
		case keyScores:
			var v []float32
			into(&v)
			m.Set(name, gguf.List(v))
		case keyTypes:
			var v []int32
			into(&v)
			m.Set(name, gguf.List(v))
		case keyModel, keyPre:
			var v string
			into(&v)
			m.Set(name, gguf.Scalar(v))
		case keyAddPrefix, addKey("bos"), addKey("eos"):
			var v bool
			into(&v)
			m.Set(name, gguf.Scalar(v))
		default:
			var v uint32
			into(&v)
			m.Set(name, gguf.Scalar(v))
		}
	}
	return m
}

func (g runGoldens) tokenizer(t testing.TB, c runCase) *Tokenizer {
	t.Helper()
	keys := c.Keys
	switch c.Vocab {
	case "byte":
		keys = g.Byte
	case "char":
		keys = g.Char
	}
	m := metadata(t, keys)
	if c.Pre != "" {
		m.Set(keyPre, gguf.Scalar(c.Pre))
	}
	v, err := FromGGUF(m)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTokenizerAgainstLlama(t *testing.T) {
	g := loadRunGoldens(t)
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			tok := g.tokenizer(t, c)
			if fmt.Sprint(tok.EndIDs()) != fmt.Sprint(c.Ends) {
				t.Errorf("end ids %v, want %v", tok.EndIDs(), c.Ends)
			}
			for i, text := range g.Texts {
				for _, parse := range []bool{false, true} {
					want := c.IDs[i]
					if parse {
						want = c.Parsed[i]
					}
					ids, err := tok.Encode(text, EncodeOptions{Special: parse, Parse: parse})
					if err != nil {
						t.Fatalf("%q: %v", text, err)
					}
					if fmt.Sprint(ids) != fmt.Sprint(want) {
						t.Errorf("%q special %v:\n got %v\nwant %v", text, parse, ids, want)
					}
				}
				for _, d := range []struct {
					opt  DecodeOptions
					want string
				}{{DecodeOptions{Trim: true}, c.Text[i]}, {DecodeOptions{Special: true}, c.TextSpecial[i]}} {
					if got := hex.EncodeToString([]byte(tok.Decode(c.Parsed[i], d.opt))); got != d.want {
						want, _ := hex.DecodeString(d.want)
						t.Errorf("decoding %v with %+v:\n got %q\nwant %q", c.Parsed[i], d.opt, tok.Decode(c.Parsed[i], d.opt), want)
					}
				}
			}
		})
	}
}

// TestConcurrentUse: one tokenizer serves several goroutines (run with -race).
func TestConcurrentUse(t *testing.T) {
	g := loadRunGoldens(t)
	for _, c := range g.Cases {
		if c.Name != "deepseek-v3" && c.Name != "llama-bpe" && c.Name != "stories" {
			continue
		}
		tok := g.tokenizer(t, c)
		var wg sync.WaitGroup
		for n := 0; n < 4; n++ {
			wg.Go(func() {
				for i, text := range g.Texts {
					ids, err := tok.Encode(text, EncodeOptions{})
					if err != nil || fmt.Sprint(ids) != fmt.Sprint(c.IDs[i]) {
						t.Errorf("%q: %v, %v", text, ids, err)
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestStream: the pieces of a stream join to the text, and each is UTF-8.
func TestStream(t *testing.T) {
	g := loadRunGoldens(t)
	for _, c := range g.Cases {
		if c.Name != "gpt-2" && c.Name != "stories" {
			continue
		}
		tok := g.tokenizer(t, c)
		for i, text := range g.Texts {
			want, got := "", ""
			s := tok.NewStream(true)
			for _, id := range c.IDs[i] {
				want += tok.Piece(id, true)
				got += s.Next(id)
			}
			got += s.Flush()
			if got != want {
				t.Errorf("%s %q: streamed %q, want %q", c.Name, text, got, want)
			}
		}
	}
}

func TestStreamHoldsBack(t *testing.T) {
	tok := byteTokenizer(t)
	s := tok.NewStream(false)
	steps := []struct {
		b    byte
		want string
	}{
		{'a', "a"}, {0xF0, ""}, {0x9F, ""}, {0x98, ""}, {0x80, "\U0001f600"}, // one character from four tokens
		{0xC3, ""}, {'b', "\ufffdb"}, // a character that breaks off
		{0x80, "\ufffd"}, {0xC0, "\ufffd"}, {0xFF, "\ufffd"}, // bytes that begin nothing
		{0xE2, ""}, {0x82, ""}, {0xE2, "\ufffd"}, {0x82, ""}, {0xAC, "\u20ac"},
		{0xED, ""}, {0xA0, "\ufffd\ufffd"}, // a surrogate
		{0xE4, ""}, {0xBD, ""},
	}
	for i, st := range steps {
		if got := s.Next(int32(st.b)); got != st.want {
			t.Errorf("step %d, byte %02X: %q, want %q", i, st.b, got, st.want)
		}
	}
	if got := s.Flush(); got != "\ufffd" {
		t.Errorf("flush gives %q, want one replacement character", got)
	}
	if got := s.Flush(); got != "" {
		t.Errorf("second flush gives %q", got)
	}
}

// byteTokenizer has one token a byte, in order.
func byteTokenizer(t testing.TB) *Tokenizer {
	t.Helper()
	v := &Vocabulary{Model: ModelSPM, keys: newKeyList()}
	for b := 0; b < 256; b++ {
		v.Tokens = append(v.Tokens, byteToken(byte(b)))
		v.Scores = append(v.Scores, 0)
		v.Types = append(v.Types, Byte)
	}
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

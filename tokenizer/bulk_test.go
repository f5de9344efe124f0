package tokenizer

import (
	"fmt"
	"math"
	"math/rand"
	"strings"
	"testing"
)

// countTexts are texts of words, numbers, marks and white space as pre-tokenizers
// tell them apart.
func countText(rng *rand.Rand) string {
	var b strings.Builder
	for n := 1 + rng.Intn(12); n > 0; n-- {
		switch rng.Intn(7) {
		case 0:
			b.WriteString(randomText(rng))
		case 1:
			b.WriteString([]string{" the", " of", "and ", "\nWe'll", "\n\n", "    ", "\t\t", " 2024, ", "x.\n", "\r\n", "<x>", "</x> ", "a b", "aab"}[rng.Intn(14)])
		case 2:
			b.WriteString([]string{"\u4f60\u597d\u3002\n\u4e16\u754c", "caf\u00e9 ", "\u3000\n\u4f60", "e\u0301\n", "\u00a0\na", "\u200b \u200ba"}[rng.Intn(6)])
		case 3:
			b.WriteString([]string{"\xff", "\xe2\x82", "\xf0a", "\xc1\x81", "\xf0\x9f\x98", "\xe2a b"}[rng.Intn(6)])
		default:
			for k := 1 + rng.Intn(4); k > 0; k-- {
				for m := 1 + rng.Intn(5); m > 0; m-- {
					b.WriteByte("etaoinshrdlEA"[rng.Intn(13)])
				}
				b.WriteByte("    ,\n"[rng.Intn(6)])
			}
		}
	}
	return b.String()
}

// sameCounts holds a Counter against Encode, for the whole text and for the text
// cut at every place where it may be cut.
func sameCounts(t testing.TB, tok *Tokenizer, c *Counter, text string) {
	t.Helper()
	ids, err := tok.Encode(text, EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := make([]uint64, tok.Size())
	for _, id := range ids {
		want[id]++
	}
	check := func(what string, y *Tally) {
		t.Helper()
		got, err := y.Counts()
		if err != nil {
			t.Fatalf("%s: %q: %v", what, text, err)
		}
		for id := range got {
			if got[id] != want[id] {
				t.Fatalf("%s: %q: token %d %q %d times, want %d", what, text, id, tok.tokens.at(id), got[id], want[id])
			}
		}
	}
	y := c.NewTally()
	if err := y.Add([]byte(text), true); err != nil {
		t.Fatal(err)
	}
	check("whole", y)
	y = c.NewTally()
	start, cuts := 0, ""
	for i := 1; i < len(text); i++ {
		if c.units.cuttable(text, i) {
			if err := y.Add([]byte(text[start:i]), start == 0); err != nil {
				t.Fatal(err)
			}
			cuts += fmt.Sprint(" ", i)
			start = i
		}
	}
	if err := y.Add([]byte(text[start:]), start == 0); err != nil {
		t.Fatal(err)
	}
	check("cut at"+cuts, y)
}

// withUserTokens adds tokens that are found in plain text to a vocabulary, some of
// them one inside another.
func withUserTokens(t testing.TB, tok *Tokenizer, eat bool) *Tokenizer {
	t.Helper()
	v := *tok.Vocabulary()
	v.keys = v.keys.clone()
	for _, s := range []string{"<x>", "</x>", "a b", "aab", "ab", "  ", "   ", "\n\n", "\n\n\n", "\t", "\u597d\u3002"} {
		if _, ok := tok.id(s); ok {
			continue
		}
		v.Tokens = append(v.Tokens[:len(v.Tokens):len(v.Tokens)], s)
		v.Types = append(v.Types[:len(v.Types):len(v.Types)], UserDefined)
		if v.Scores != nil {
			v.Scores = append(v.Scores[:len(v.Scores):len(v.Scores)], 0)
		}
	}
	v.eatSpace = eat
	out, err := New(&v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestCounterCountsWhatEncodeGives goes through every pre-tokenizer there is.
func TestCounterCountsWhatEncodeGives(t *testing.T) {
	g := loadRunGoldens(t)
	toks := map[string]*Tokenizer{}
	for _, c := range g.Cases {
		toks[c.Name] = g.tokenizer(t, c)
	}
	for _, row := range cutterTable() {
		vocab := "byte"
		if row.flags.rawUTF8 {
			vocab = "char"
		}
		toks["row "+row.names[0]] = g.tokenizer(t, runCase{Vocab: vocab, Pre: row.names[0]})
	}
	for name, tok := range toks {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewSource(int64(len(name))))
			variants := []*Tokenizer{tok, withUserTokens(t, tok, false)}
			if tok.v.Model == ModelSPM {
				variants = append(variants, withUserTokens(t, tok, true))
			}
			for _, tok := range variants {
				c, err := tok.NewCounter()
				if err != nil {
					t.Fatal(err)
				}
				for _, text := range g.Texts {
					sameCounts(t, tok, c, text)
				}
				for range 20 {
					sameCounts(t, tok, c, countText(rng))
				}
			}
		})
	}
}

// TestLongUnits: what is too long for the table of words, and merges with a
// queue, counts alike.
func TestLongUnits(t *testing.T) {
	g := loadRunGoldens(t)
	rng := rand.New(rand.NewSource(3))
	for _, name := range []string{"stories", "gpt-2", "row gemma4"} {
		c := runCase{Vocab: "char", Pre: "gemma4"}
		for _, have := range g.Cases {
			if have.Name == name {
				c = have
			}
		}
		tok := g.tokenizer(t, c)
		counter, err := tok.NewCounter()
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			var b strings.Builder
			for n := 100 + rng.Intn(900); n > 0; n-- {
				b.WriteByte("etaoinshrdl"[rng.Intn(11)])
			}
			sameCounts(t, tok, counter, b.String())
		}
	}
}

// TestTallyFlushes: the numbers do not depend on when words are encoded.
func TestTallyFlushes(t *testing.T) {
	g := loadRunGoldens(t)
	tok := g.tokenizer(t, runCase{Vocab: "byte", Pre: "qwen2"})
	c, err := tok.NewCounter()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewSource(9))
	once, often := c.NewTally(), c.NewTally()
	for range 200 {
		text := []byte(countText(rng))
		for _, y := range []*Tally{once, often} {
			if err := y.Add(text, true); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := often.Counts(); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := once.Counts()
	b, _ := often.Counts()
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("the counts differ")
	}
}

// TestCut: the place is inside the text and may be cut there; texts without one
// give 0.
func TestCut(t *testing.T) {
	g := loadRunGoldens(t)
	tok := g.tokenizer(t, runCase{Vocab: "byte", Pre: "llama-bpe"})
	c, err := tok.NewCounter()
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 100000)
	for _, x := range []struct {
		text string
		want int
	}{
		{"", 0}, {"a", 0}, {"one two three four", 13}, {long, 0}, {"one two" + long, 3}, {long + " two" + long, len(long)},
		{"\u4f60\u597d\u3002\n\u4e16\u754c\u4e16\u754c", 10}, {strings.Repeat("\n", 5000), 0},
	} {
		if got := c.Cut([]byte(x.text)); got != x.want {
			t.Errorf("%.20q, %d bytes: %d, want %d", x.text, len(x.text), got, x.want)
		}
	}
}

// TestCounterErrors: a byte without a token is an error of the text, a score that
// is no number one of the vocabulary.
func TestCounterErrors(t *testing.T) {
	v := &Vocabulary{Model: ModelSPM, Tokens: []string{"a", "\u2581"}, Types: []TokenType{Normal, Normal}, Scores: []float32{0, 0}, keys: newKeyList()}
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tok.NewCounter()
	if err != nil {
		t.Fatal(err)
	}
	y := c.NewTally()
	err = y.Add([]byte("a b"), true)
	if err == nil {
		_, err = y.Counts()
	}
	if err == nil || !strings.Contains(err.Error(), "0x62") {
		t.Errorf("error %v", err)
	}
	v.Scores[0] = float32(math.NaN())
	if _, err := tok.NewCounter(); err == nil {
		t.Error("a score NaN is counted with")
	}
}

// FuzzCounter holds a Counter against Encode.
func FuzzCounter(f *testing.F) {
	g := loadRunGoldens(f)
	for _, text := range g.Texts {
		f.Add(text)
	}
	rng := rand.New(rand.NewSource(1))
	for range 40 {
		f.Add(countText(rng))
	}
	type pair struct {
		tok *Tokenizer
		c   *Counter
	}
	var all []pair
	add := func(tok *Tokenizer) {
		c, err := tok.NewCounter()
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, pair{tok, c})
	}
	for _, row := range cutterTable() {
		vocab := "byte"
		if row.flags.rawUTF8 {
			vocab = "char"
		}
		add(g.tokenizer(f, runCase{Vocab: vocab, Pre: row.names[0]}))
	}
	for _, c := range g.Cases {
		if c.Name == "stories" || c.Name == "stories-plain" {
			tok := g.tokenizer(f, c)
			add(tok)
			add(withUserTokens(f, tok, false))
			add(withUserTokens(f, tok, true))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range all {
			sameCounts(t, p.tok, p.c, text)
		}
	})
}

package tokenizer

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"

	"quern/formats/gguf"
)

// pruneVocabularies are those that pruning is tried on: toys under every
// pre-tokenizer name, the stories' SentencePiece vocabulary, and two published ones.
func pruneVocabularies(t *testing.T) map[string]*Vocabulary {
	t.Helper()
	pruneOnce.Do(func() { pruneLoaded = loadPruneVocabularies(t) })
	return pruneLoaded
}

var (
	pruneOnce   sync.Once
	pruneLoaded map[string]*Vocabulary // read alone
)

func loadPruneVocabularies(t *testing.T) map[string]*Vocabulary {
	t.Helper()
	out := map[string]*Vocabulary{}
	g := loadRunGoldens(t)
	for _, c := range g.Cases {
		out[c.Name] = g.tokenizer(t, c).Vocabulary()
	}
	for _, dir := range []string{"../testdata/models/stories260k", "../testdata/convert/models/tiny-llama3", "../testdata/convert/models/tiny-qwen3", "../testdata/convert/models/tiny-gemma3"} {
		v, err := readFolder(t, dir).load(t)
		if err != nil {
			t.Fatal(err)
		}
		out[dir[strings.LastIndexByte(dir, '/')+1:]] = v
	}
	return out
}

// pruneTexts mixes the goldens' texts, words of the corpus, and random bytes and
// characters.
func pruneTexts(t *testing.T, rnd *rand.Rand) []string {
	texts := append(loadRunGoldens(t).Texts, SampleTexts()...)
	words := strings.Fields(string(readTestFile(t, "../testdata/tokenizer/corpus.txt")))
	for range 60 {
		var b strings.Builder
		for range 1 + rnd.Intn(12) {
			b.WriteString(words[rnd.Intn(len(words))])
			b.WriteString([]string{" ", "  ", "\n", ", ", ""}[rnd.Intn(5)])
		}
		texts = append(texts, b.String())
	}
	for range 40 {
		b := make([]byte, 1+rnd.Intn(24))
		for i := range b {
			b[i] = byte(rnd.Intn(256))
		}
		runes := make([]rune, 1+rnd.Intn(16))
		for i := range runes {
			runes[i] = rune(0x20 + rnd.Intn(0x3000))
		}
		texts = append(texts, string(b), string(runes))
	}
	return texts
}

// TestPrune: what any text is encoded to decodes to the same text as before, and a
// text that the whole vocabulary encodes with kept tokens gets the very same ones.
func TestPrune(t *testing.T) {
	for name, v := range pruneVocabularies(t) {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewSource(7))
			texts := pruneTexts(t, rnd)
			whole, err := New(v)
			if err != nil {
				t.Fatal(err)
			}
			var kept []int32
			for i := 0; i < len(texts); i += 2 {
				ids, err := whole.Encode(texts[i], EncodeOptions{})
				if err != nil {
					continue
				}
				for _, id := range ids {
					if rnd.Intn(4) > 0 {
						kept = append(kept, id)
					}
				}
			}
			p, err := v.Prune(kept, PruneOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if n := p.Asked + p.Protected + p.Parts + p.Filled; n != len(p.IDs) || len(p.IDs) != len(p.Vocab.Tokens) || !slices.IsSorted(p.IDs) {
				t.Fatalf("%d + %d + %d + %d tokens of %d", p.Asked, p.Protected, p.Parts, p.Filled, len(p.IDs))
			}
			same, fewer := comparePruned(t, whole, p, texts)
			if same < 10 || fewer < 10 && len(p.IDs) < len(v.Tokens)*9/10 {
				t.Errorf("%d texts of kept tokens and %d others: the test shows little", same, fewer)
			}
			everyTokenIsReached(t, whole, p)
		})
	}
}

// comparePruned holds encodings of a pruned vocabulary against those of the whole
// one.
func comparePruned(t *testing.T, whole *Tokenizer, p *Pruned, texts []string) (same, fewer int) {
	t.Helper()
	pruned, err := New(p.Vocab)
	if err != nil {
		t.Fatal(err)
	}
	now := map[int32]int32{}
	for i, id := range p.IDs {
		now[id] = int32(i)
	}
	for _, text := range texts {
		for _, opt := range []EncodeOptions{{}, {Special: true, Parse: true}} {
			want, err := whole.Encode(text, opt)
			if err != nil {
				continue // no byte of it has a token
			}
			got, err := pruned.Encode(text, opt)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if a, b := whole.Decode(want, DecodeOptions{}), pruned.Decode(got, DecodeOptions{}); a != b {
				t.Fatalf("%q decodes to %q, with all tokens to %q", text, b, a)
			}
			mapped := make([]int32, 0, len(want))
			for _, id := range want {
				if n, ok := now[id]; ok {
					mapped = append(mapped, n)
				}
			}
			if len(mapped) < len(want) {
				fewer++
				continue
			}
			if same++; !slices.Equal(mapped, got) {
				t.Fatalf("%q: %v, with all tokens %v", text, got, mapped)
			}
		}
	}
	return same, fewer
}

// everyTokenIsReached encodes the text of every token that the whole vocabulary
// gives a token of its own.
func everyTokenIsReached(t *testing.T, whole *Tokenizer, p *Pruned) {
	t.Helper()
	var texts []string
	for i, id := range p.IDs {
		if a, b := whole.text(id), p.Vocab.Tokens[i]; a != b && b != "" {
			t.Fatalf("token %d is %q, it was %q", i, b, a)
		}
		if s := whole.Piece(id, true); s != "" {
			texts = append(texts, s)
		}
	}
	comparePruned(t, whole, p, texts)
}

// TestPruneKeepsRoles: special ids are translated, types and scores go along, and
// ids that readers assume where there is no key become keys.
func TestPruneKeepsRoles(t *testing.T) {
	for name, v := range pruneVocabularies(t) {
		whole, err := New(v)
		if err != nil {
			t.Fatal(err)
		}
		p, err := v.Prune([]int32{int32(len(v.Tokens) / 2)}, PruneOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pruned, err := New(p.Vocab)
		if err != nil {
			t.Fatal(err)
		}
		old := func(id int32) int32 {
			if id < 0 {
				return id
			}
			return p.IDs[id]
		}
		if a, b := old(pruned.BOS()), whole.BOS(); a != b {
			t.Errorf("%s: bos is %d, it was %d", name, a, b)
		}
		if a, b := old(pruned.EOS()), whole.EOS(); a != b {
			t.Errorf("%s: eos is %d, it was %d", name, a, b)
		}
		if pruned.AddsBOS() != whole.AddsBOS() || pruned.AddsEOS() != whole.AddsEOS() || p.Vocab.ChatTemplate() != v.ChatTemplate() {
			t.Errorf("%s: bos %v, eos %v are added", name, pruned.AddsBOS(), pruned.AddsEOS())
		}
		var ends []int32
		for _, id := range pruned.EndIDs() {
			ends = append(ends, old(id))
		}
		if fmt.Sprint(ends) != fmt.Sprint(whole.EndIDs()) {
			t.Errorf("%s: ends %v, they were %v", name, ends, whole.EndIDs())
		}
		for _, key := range v.keys.order {
			if id, ok := v.keys.vals[key].(uint32); ok && isIDKey(key) {
				n, ok := p.Vocab.keys.vals[key].(uint32)
				if !ok || old(int32(n)) != int32(id) {
					t.Errorf("%s: %s is %v, it was %d", name, key, p.Vocab.keys.vals[key], id)
				}
			}
		}
		for i, id := range p.IDs {
			if p.Vocab.Types[i] != v.Types[id] || v.Scores != nil && p.Vocab.Scores[i] != v.Scores[id] {
				t.Fatalf("%s: type or score of token %d changed", name, id)
			}
		}
		for id, typ := range v.Types {
			if (typ == Control || typ == UserDefined || typ == Byte || typ == Unknown) && !slices.Contains(p.IDs, int32(id)) {
				t.Errorf("%s: token %d, which is %s, is gone", name, id, typ)
			}
		}
	}
}

// TestPruneFills: the count becomes a multiple, and the tokens that fill it up are
// reached.
func TestPruneFills(t *testing.T) {
	v := pruneVocabularies(t)["tiny-qwen3"]
	p, err := v.Prune([]int32{1000, 50000}, PruneOptions{MultipleOf: 512})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.IDs)%512 != 0 || p.Filled == 0 || p.Asked != 2 || p.Parts == 0 {
		t.Errorf("%d tokens: %d asked for, %d parts, %d filled", len(p.IDs), p.Asked, p.Parts, p.Filled)
	}
	whole, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	everyTokenIsReached(t, whole, p)
	if _, err := v.Prune([]int32{0}, PruneOptions{MultipleOf: 1 << 20}); !errors.Is(err, ErrVocabSize) {
		t.Errorf("a multiple beyond the vocabulary: %v", err)
	}
	for _, id := range []int32{-1, int32(len(v.Tokens))} {
		if _, err := v.Prune([]int32{id}, PruneOptions{}); !errors.Is(err, ErrVocabSize) {
			t.Errorf("token %d: %v", id, err)
		}
	}
}

// TestPruneByHand: the parts of "abc" by the rules of its making stay, and no more;
// ids that no key gives become keys.
func TestPruneByHand(t *testing.T) {
	m := gguf.NewMetadata()
	m.Set(keyModel, gguf.Scalar(ModelBPE))
	m.Set(keyPre, gguf.Scalar("gpt-2"))
	//                            0    1    2    3    4     5     6     7      8       9     10    11   12
	m.Set(keyTokens, gguf.List([]string{"a", "b", "c", "d", "ab", "bc", "cd", "abc", "abcd", "da", "db", "e", "<x>"}))
	m.Set(keyTypes, gguf.List([]int32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3}))
	m.Set(keyMerges, gguf.List([]string{"b c", "a b", "c d", "a bc", "ab c", "abc d", "ab cd", "d a", "d b"}))
	m.Set(keySuppress, gguf.List([]int32{10, 12}))
	m.Set(keyJSON, gguf.Scalar("{}"))
	v, err := FromGGUF(m)
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.Prune([]int32{7, 9}, PruneOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(p.IDs) != "[0 1 2 3 5 7 9 11 12]" || fmt.Sprint(p.Vocab.Merges) != "[b c a bc d a]" {
		t.Errorf("ids %v, merges %q", p.IDs, p.Vocab.Merges)
	}
	if s := fmt.Sprint(p.Vocab.SourceIDs()); s != fmt.Sprint(p.IDs) || v.SourceIDs() != nil {
		t.Errorf("source ids %s", s)
	}
	again, err := p.Vocab.Prune([]int32{4}, PruneOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprint(again.Vocab.SourceIDs()); s != "[0 1 2 3 5 11 12]" || fmt.Sprint(again.IDs) != "[0 1 2 3 4 7 8]" {
		t.Errorf("pruned twice: ids %v, source ids %s", again.IDs, s)
	}
	if n := again.Vocab.keys.vals[KeySourceSize]; n != uint32(13) {
		t.Errorf("%s is %v", KeySourceSize, n)
	}
	// e was bos and eos by being number 11.
	if id, ok := p.Vocab.ID("eos"); !ok || id != 7 {
		t.Errorf("eos %d, %v", id, ok)
	}
	if s := fmt.Sprint(p.Vocab.keys.vals[keySuppress]); s != "[8]" {
		t.Errorf("%s: %s", keySuppress, s)
	}
	if _, ok := p.Vocab.keys.vals[keyJSON]; ok {
		t.Errorf("%s is of another vocabulary", keyJSON)
	}
	none, err := v.Prune([]int32{0}, PruneOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(none.Vocab.Keys(), func(kv KV) bool { return kv.Key == keyMerges }) {
		t.Errorf("without a merge, the key %s is gone, which readers demand", keyMerges)
	}
	m.Set(KeySourceIDs, gguf.List([]int32{1, 2}))
	if _, err := FromGGUF(m); !errors.Is(err, ErrFormat) {
		t.Errorf("%s of another length: %v", KeySourceIDs, err)
	}
	m.Delete(KeySourceIDs)
	for _, kind := range []string{"bert", "rwkv", "none"} {
		m.Set(keyModel, gguf.Scalar(kind))
		if v, err = FromGGUF(m); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Prune([]int32{7}, PruneOptions{}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestPruneUnigram: a best way through kept pieces stays the best one, so none is
// added but single characters.
func TestPruneUnigram(t *testing.T) {
	m := gguf.NewMetadata()
	m.Set(keyModel, gguf.Scalar(modelUGM))
	m.Set(keyTokens, gguf.List([]string{"<pad>", "</s>", "<unk>", "\u2581", "a", "b", "ab", "abc", "abab", "c"}))
	m.Set(keyScores, gguf.List([]float32{0, 0, 0, -2, -3, -3, -4, -5, -6, -7}))
	m.Set(keyTypes, gguf.List([]int32{3, 3, 2, 1, 1, 1, 1, 1, 1, 1}))
	m.Set("tokenizer.ggml.eos_token_id", gguf.Scalar(uint32(1)))
	v, err := FromGGUF(m)
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.Prune([]int32{8}, PruneOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(p.IDs) != "[0 1 2 3 4 5 8 9]" || p.Parts != 0 || fmt.Sprint(p.Vocab.Scores) != "[0 0 0 -2 -3 -3 -6 -7]" {
		t.Errorf("ids %v, scores %v", p.IDs, p.Vocab.Scores)
	}
}

// TestPruneWithoutBytes: where tokens of bytes are missing, or show as their own text,
// characters stay; where they do what they should, they take the place of characters.
func TestPruneWithoutBytes(t *testing.T) {
	for _, typ := range []TokenType{Byte, Normal} {
		m := gguf.NewMetadata()
		tokens := []string{"<s>", "\u2581", "a", "\u00e9", "\u65e5", "a\u00e9"}
		types := []int32{3, 1, 1, 1, 1, 1}
		for b := range 256 {
			tokens, types = append(tokens, byteToken(byte(b))), append(types, int32(typ))
		}
		m.Set(keyModel, gguf.Scalar(ModelBPE))
		m.Set(keyPre, gguf.Scalar("gemma4"))
		m.Set(keyTokens, gguf.List(tokens))
		m.Set(keyTypes, gguf.List(types))
		m.Set(keyMerges, gguf.List([]string{"a \u00e9"}))
		m.Set(specialKey("bos"), gguf.Scalar(uint32(0)))
		v, err := FromGGUF(m)
		if err != nil {
			t.Fatal(err)
		}
		p, err := v.Prune([]int32{2}, PruneOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if kept := slices.Contains(p.IDs, 4); kept != (typ == Normal) || !slices.Contains(p.IDs, 1) {
			t.Errorf("bytes are %s: ids %v", typ, p.IDs[:6])
		}
		whole, err := New(v)
		if err != nil {
			t.Fatal(err)
		}
		comparePruned(t, whole, p, []string{"a", "a\u00e9", "\u65e5 a", "\u00e9\u00e9"})
	}
}

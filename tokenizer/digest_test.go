package tokenizer

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"quern/internal/digest"
)

// TestDigest writes the bytes that are hashed out plainly.
func TestDigest(t *testing.T) {
	v := &Vocabulary{Model: "llama", Pre: "default", Tokens: []string{"<unk>", strings.Repeat("x", 5000), ""},
		Types: []TokenType{Unknown, Normal, Unused}, Scores: []float32{0, -1.5, 2}}
	var b bytes.Buffer
	num := func(n uint64) { binary.Write(&b, binary.LittleEndian, n) }
	text := func(s string) { num(uint64(len(s))); b.WriteString(s) }
	text("quern vocabulary 1")
	text("llama")
	text("default")
	num(3)
	text("<unk>")
	text(strings.Repeat("x", 5000))
	text("")
	for _, n := range []uint64{3, 2, 1, 5, 3, 0, uint64(math.Float32bits(-1.5)), uint64(math.Float32bits(2)), 0} {
		num(n)
	}
	if got, want := v.Digest(), digest.Of(b.Bytes()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestDigestTellsVocabulariesApart: every part counts, and where it ends.
func TestDigestTellsVocabulariesApart(t *testing.T) {
	base := func() *Vocabulary {
		return &Vocabulary{Model: ModelBPE, Pre: "gpt-2", Tokens: []string{"a", "b", "ab"}, Types: []TokenType{1, 1, 1},
			Scores: []float32{1}, Merges: []string{"a b"}}
	}
	seen := map[digest.Digest]string{base().Digest(): "as it is"}
	for name, change := range map[string]func(v *Vocabulary){
		"model":  func(v *Vocabulary) { v.Model = ModelSPM },
		"pre":    func(v *Vocabulary) { v.Pre = "qwen2" },
		"token":  func(v *Vocabulary) { v.Tokens[1] = "c" },
		"cut":    func(v *Vocabulary) { v.Tokens = []string{"a", "ba", "b"} },
		"type":   func(v *Vocabulary) { v.Types[2] = Control },
		"score":  func(v *Vocabulary) { v.Scores[0] = 2 },
		"merge":  func(v *Vocabulary) { v.Merges[0] = "b a" },
		"merges": func(v *Vocabulary) { v.Merges = append(slices.Clone(v.Merges), "a a") },
	} {
		v := base()
		change(v)
		if other, dup := seen[v.Digest()]; dup {
			t.Errorf("%s: the digest is that of %s", name, other)
		}
		seen[v.Digest()] = name
	}
}

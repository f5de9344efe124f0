package tokenizer

import (
	"bufio"
	"encoding/binary"
	"math"

	"quern/internal/digest"
)

// Digest identifies a vocabulary: what decides which ids a text has. It is the
// SHA-256 over model, pre-tokenizer, tokens with their types, scores and merges,
// each text with its length before it, and the same for a model's folder and for
// the GGUF file made of it. Special ids and templates are not in it.
func (v *Vocabulary) Digest() digest.Digest {
	h := digest.New()
	w := bufio.NewWriter(h) // hashes do not fail
	num := func(n uint64) {
		w.Write(binary.LittleEndian.AppendUint64(w.AvailableBuffer(), n))
	}
	text := func(s string) {
		num(uint64(len(s)))
		w.WriteString(s)
	}
	text("quern vocabulary 1")
	text(v.Model)
	text(v.Pre)
	num(uint64(len(v.Tokens)))
	for _, s := range v.Tokens {
		text(s)
	}
	num(uint64(len(v.Types)))
	for _, t := range v.Types {
		num(uint64(uint32(t)))
	}
	num(uint64(len(v.Scores)))
	for _, s := range v.Scores {
		num(uint64(math.Float32bits(s)))
	}
	num(uint64(len(v.Merges)))
	for _, s := range v.Merges {
		text(s)
	}
	w.Flush()
	return digest.Sum(h)
}

// Digest is that of the vocabulary.
func (t *Tokenizer) Digest() digest.Digest { return t.Vocabulary().Digest() }

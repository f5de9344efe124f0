package tokenizer

import (
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
	buf := make([]byte, 0, 4096)
	flush := func(room int) {
		if len(buf)+room > cap(buf) {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	num := func(n uint64) {
		flush(8)
		buf = binary.LittleEndian.AppendUint64(buf, n)
	}
	text := func(s string) {
		num(uint64(len(s)))
		if len(s) > 1024 {
			flush(cap(buf))
			h.Write([]byte(s))
			return
		}
		flush(len(s))
		buf = append(buf, s...)
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
	flush(cap(buf))
	return digest.Sum(h)
}

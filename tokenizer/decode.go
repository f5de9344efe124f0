package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Piece gives the bytes that a token stands for, which need not be whole
// characters. Control and unknown tokens are empty unless special is set;
// unused tokens always are.
func (t *Tokenizer) Piece(id int32, special bool) string {
	if id < 0 || int(id) >= t.Size() {
		return ""
	}
	a, text := t.attrs[id], t.text(id)
	switch {
	case a&(attrUnknown|attrControl) != 0:
		if !special {
			return ""
		}
		return text
	case a&attrUser != 0:
		return text
	case a&attrNormal != 0:
		if t.v.Model == ModelSPM || t.cut.markSpaces {
			return plainSpaces(text)
		}
		return t.decodeText(text)
	case a&attrByte != 0:
		if b, ok := byteTokenValue(text); ok {
			return string([]byte{b})
		}
	}
	return ""
}

// decodeText undoes the byte alphabet. A character outside it shows as a note,
// as in llama.cpp.
func (t *Tokenizer) decodeText(text string) string {
	if s, ok := fromByteLevel(text); ok {
		return s
	}
	var b strings.Builder
	for _, r := range text {
		if c, ok := charByte(r); ok {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "[UNK_BYTE_0x%x%s]", string(r), text)
		}
	}
	return b.String()
}

// DecodeOptions steer Decode. The zero value gives plain text.
type DecodeOptions struct {
	// Special keeps the texts of control tokens.
	Special bool
	// Trim drops the BOS and EOS tokens that Encode added.
	Trim bool
}

// Decode joins ids to text, as llama.cpp detokenizes a whole sequence: without
// the space that Encode put first and, for some pre-tokenizers, without the
// spaces before punctuation. The result need not be UTF-8.
func (t *Tokenizer) Decode(ids []int32, opt DecodeOptions) string {
	trimSpace := t.spacePrefix
	if opt.Trim && t.addBOS && len(ids) > 0 && ids[0] == t.bos {
		ids = ids[1:]
		trimSpace = false
	}
	if opt.Trim && t.addEOS && len(ids) > 0 && ids[len(ids)-1] == t.eos {
		ids = ids[:len(ids)-1]
	}
	var b strings.Builder
	for _, id := range ids {
		p := t.Piece(id, opt.Special)
		if trimSpace {
			p = strings.TrimPrefix(p, " ")
			trimSpace = false
		}
		b.WriteString(p)
	}
	if t.cut != nil && !t.cut.keepSpaces {
		return dropSpaces(b.String())
	}
	return b.String()
}

// dropSpaces removes spaces before ? ! . , then around a lone apostrophe, then
// before 's 'm 're 've.
func dropSpaces(s string) string {
	filter := func(s string, fn func(out []byte, s string, i int) ([]byte, int)) string {
		if s == "" {
			return s
		}
		out := append(make([]byte, 0, len(s)), s[0])
		for i := 1; i < len(s); {
			out, i = fn(out, s, i)
		}
		return string(out)
	}
	s = filter(s, func(out []byte, s string, i int) ([]byte, int) {
		if s[i-1] == ' ' && strings.IndexByte("?!.,", s[i]) >= 0 {
			out = out[:len(out)-1]
		}
		return append(out, s[i]), i + 1
	})
	s = filter(s, func(out []byte, s string, i int) ([]byte, int) {
		if s[i] == '\'' && i+1 < len(s) && s[i-1] == ' ' && s[i+1] == ' ' && len(out) > 0 && out[len(out)-1] == ' ' {
			return append(out[:len(out)-1], '\''), i + 2
		}
		return append(out, s[i]), i + 1
	})
	return filter(s, func(out []byte, s string, i int) ([]byte, int) {
		if s[i-1] == ' ' && s[i] == '\'' && len(out) > 0 {
			for _, end := range []string{"s", "m", "re", "ve"} {
				if strings.HasPrefix(s[i+1:], end) {
					out = out[:len(out)-1]
					break
				}
			}
		}
		return append(out, s[i]), i + 1
	})
}

// A Stream turns ids into text one by one, holding back the bytes of a
// character until it is whole.
type Stream struct {
	piece func(id int32) string
	held  []byte
}

// NewStream starts a stream; special keeps the texts of control tokens.
func (t *Tokenizer) NewStream(special bool) *Stream {
	return StreamOf(func(id int32) string { return t.Piece(id, special) })
}

// StreamOf starts a stream of the pieces of any tokenizer.
func StreamOf(piece func(id int32) string) *Stream { return &Stream{piece: piece} }

// Next gives the text that an id completes. It is always UTF-8: bytes that can
// be no character become U+FFFD.
func (s *Stream) Next(id int32) string {
	s.held = append(s.held, s.piece(id)...)
	whole := len(s.held) - openTail(s.held)
	out := lossyUTF8(string(s.held[:whole]))
	s.held = append(s.held[:0], s.held[whole:]...)
	return out
}

// Flush gives what is held back, as U+FFFD.
func (s *Stream) Flush() string {
	out := lossyUTF8(string(s.held))
	s.held = s.held[:0]
	return out
}

// openTail gives the number of bytes at the end that may begin a character.
func openTail(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if utf8.RuneStart(tail[0]) {
			if need := utf8Need(tail[0]); need > n && invalidPrefix(string(tail)) == n {
				return n
			}
			return 0
		}
	}
	return 0
}

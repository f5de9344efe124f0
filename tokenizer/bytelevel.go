package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// GPT-2's byte alphabet: every byte has a printable character. Bytes 21-7E,
// A1-AC and AE-FF stand for the code point of the same number; the other 68, in
// order, for U+0100 and up.

// byteChar gives the character of a byte.
func byteChar(b byte) rune {
	switch {
	case b >= 0x21 && b <= 0x7E, b >= 0xA1 && b <= 0xAC, b >= 0xAE:
		return rune(b)
	case b <= 0x20:
		return 0x100 + rune(b)
	case b <= 0xA0: // 7F-A0 follow 00-20
		return 0x100 + 33 + rune(b-0x7F)
	}
	return 0x100 + 67 // AD
}

// charByte is the inverse of byteChar.
func charByte(r rune) (byte, bool) {
	switch {
	case r >= 0x21 && r <= 0x7E, r >= 0xA1 && r <= 0xAC, r >= 0xAE && r <= 0xFF:
		return byte(r), true
	case r >= 0x100 && r <= 0x120:
		return byte(r - 0x100), true
	case r >= 0x121 && r <= 0x142:
		return byte(r-0x121) + 0x7F, true
	case r == 0x143:
		return 0xAD, true
	}
	return 0, false
}

// toByteLevel spells the bytes of s in the byte alphabet.
func toByteLevel(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= 0x21 && s[i] <= 0x7E
	}
	if plain {
		return s
	}
	out := make([]byte, 0, 2*len(s))
	for i := 0; i < len(s); i++ {
		out = utf8.AppendRune(out, byteChar(s[i]))
	}
	return string(out)
}

// fromByteLevel gives the bytes that s spells; ok is false when a character is
// not in the byte alphabet.
func fromByteLevel(s string) (string, bool) {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		b, ok := charByte(r)
		if !ok {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}

// lossyUTF8 replaces what is not UTF-8 by U+FFFD, one for each maximal prefix
// of a valid sequence, as Rust and the Unicode standard advise.
func lossyUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			n = invalidPrefix(s[i:])
			b.WriteRune(utf8.RuneError)
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// invalidPrefix gives the length, at least 1, of the longest start of s that
// could have begun a valid sequence.
func invalidPrefix(s string) int {
	want := utf8Need(s[0])
	if want < 3 {
		return 1
	}
	n := 1
	for ; n < want && n < len(s); n++ {
		lo, hi := byte(0x80), byte(0xBF)
		if n == 1 {
			switch s[0] {
			case 0xE0:
				lo = 0xA0
			case 0xED:
				hi = 0x9F
			case 0xF0:
				lo = 0x90
			case 0xF4:
				hi = 0x8F
			}
		}
		if s[n] < lo || s[n] > hi {
			break
		}
	}
	return n
}

// utf8Need gives the length of a sequence that starts with b, 1 when none does.
func utf8Need(b byte) int {
	switch {
	case b >= 0xC2 && b <= 0xDF:
		return 2
	case b >= 0xE0 && b <= 0xEF:
		return 3
	case b >= 0xF0 && b <= 0xF4:
		return 4
	}
	return 1
}

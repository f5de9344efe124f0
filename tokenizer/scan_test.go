package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The rules written plainly, class by class. Tests hold them against the patterns,
// and fastRule against them.

// next gives the length in bytes of the first word of a non-empty s.
func (w wordRule) next(s string) int {
	r, size := utf8.DecodeRuneInString(s)
	if r == '\'' {
		if n := w.contraction(s[1:]); n > 0 {
			return 1 + n
		}
	}
	if w.gpt2 {
		return nextGPT2(s, r)
	}
	number := unicode.IsNumber(r)
	if r != '\r' && r != '\n' && !number {
		// Any one character may stand before letters.
		next, _ := utf8.DecodeRuneInString(s[size:])
		if w.letter(r) || size < len(s) && w.letter(next) {
			return size + run(s[size:], w.letter)
		}
	}
	if number {
		return prefixRun(s, w.maxDigits, unicode.IsNumber)
	}
	rest := s
	if r == ' ' {
		rest = s[1:]
	}
	if n := run(rest, w.other); n > 0 {
		n += len(s) - len(rest)
		return n + run(s[n:], newline)
	}
	// White space: up to the last line end, or all but the last character.
	n := run(s, unicode.IsSpace)
	if n == 0 {
		return size
	}
	for end := n; end > 0; end-- {
		if s[end-1] == '\n' || s[end-1] == '\r' {
			return end
		}
	}
	return keepLast(s, n)
}

// nextGPT2 is next for the old pattern, after contractions.
func nextGPT2(s string, r rune) int {
	rest := s
	if r == ' ' {
		rest = s[1:]
	}
	lead := len(s) - len(rest)
	for _, class := range []func(rune) bool{unicode.IsLetter, unicode.IsNumber, otherGPT2} {
		if n := run(rest, class); n > 0 {
			return lead + n
		}
	}
	return keepLast(s, run(s, unicode.IsSpace))
}

func (w wordRule) letter(r rune) bool {
	return unicode.IsLetter(r) || w.marks && unicode.IsMark(r)
}

func (w wordRule) other(r rune) bool {
	return !unicode.IsSpace(r) && !w.letter(r) && !unicode.IsNumber(r)
}

func otherGPT2(r rune) bool {
	return !unicode.IsSpace(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r)
}

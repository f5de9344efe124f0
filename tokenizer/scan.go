package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// A wordRule cuts text into words as one of the well-known split patterns does,
// by hand: these patterns run over every text, and a backtracking engine is some
// thirty times slower. A test holds each rule against the pattern itself.
type wordRule struct {
	gpt2      bool // the old pattern: " ?" before letters, numbers and others
	maxDigits int  // new patterns: digits to a word
	marks     bool // new patterns: combining marks count as letters
	longS     bool // "'" + U+017F is a contraction, as in case-folding engines
}

// The patterns as tokenizer.json has them.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// ruleFor gives the rule of a pattern.
func ruleFor(pattern string) (wordRule, bool) {
	switch pattern {
	case patternGPT2:
		return wordRule{gpt2: true}, true
	case patternLlama3:
		return wordRule{maxDigits: 3, longS: true}, true
	case patternQwen2:
		return wordRule{maxDigits: 1, longS: true}, true
	case patternQwen35:
		return wordRule{maxDigits: 1, marks: true, longS: true}, true
	}
	return wordRule{}, false
}

// words calls fn for each word of s, which must be UTF-8. The words cover s.
func (w wordRule) words(s string, fn func(word string)) {
	for s != "" {
		n := w.next(s)
		fn(s[:n])
		s = s[n:]
	}
}

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

// keepLast leaves the last character of the white space s[:n] to the next word,
// unless it is alone or nothing follows.
func keepLast(s string, n int) int {
	if n == len(s) {
		return n
	}
	if _, last := utf8.DecodeLastRuneInString(s[:n]); last < n {
		return n - last
	}
	return n
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

func newline(r rune) bool { return r == '\r' || r == '\n' }

// contraction gives the length of s t m d re ve ll at the start of s, 0 if none.
func (w wordRule) contraction(s string) int {
	at := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		c := s[i]
		if !w.gpt2 && c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}
	switch a, b := at(0), at(1); {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 1
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 2
	}
	if w.longS && len(s) >= 2 && s[:2] == "\u017f" {
		return 2
	}
	return 0
}

// run gives the length of the longest start of s in a class.
func run(s string, class func(rune) bool) int {
	for i, r := range s {
		if !class(r) {
			return i
		}
	}
	return len(s)
}

// prefixRun is run for at most limit characters.
func prefixRun(s string, limit int, class func(rune) bool) int {
	n := 0
	for i, r := range s {
		if n == limit || !class(r) {
			return i
		}
		n++
	}
	return len(s)
}

package tokenizer

import "unicode/utf8"

// A wordRule cuts text into words as one of the well-known split patterns does,
// by hand: these patterns run over every text, and a backtracking engine is some
// thirty times slower. fastRule does it; tests hold it against the pattern itself.
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

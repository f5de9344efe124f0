package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// Classes of characters, as bits, for scanning at speed.
const (
	classLetter uint8 = 1 << iota
	classMark
	classNumber
	classSpace
	classNewline // also classSpace
)

// runeClasses are the classes of the characters under U+10000.
var runeClasses = sync.OnceValue(func() *[0x10000]uint8 {
	var t [0x10000]uint8
	for r := range t {
		t[r] = slowClass(rune(r))
	}
	return &t
})

func slowClass(r rune) uint8 {
	var c uint8
	if unicode.IsLetter(r) {
		c |= classLetter
	}
	if unicode.IsMark(r) {
		c |= classMark
	}
	if unicode.IsNumber(r) {
		c |= classNumber
	}
	if unicode.IsSpace(r) {
		c |= classSpace
	}
	if newline(r) {
		c |= classNewline
	}
	return c
}

// fastRule is a wordRule that reads classes from a table. A test holds it against
// the rule written plainly.
type fastRule struct {
	rule    wordRule
	classes *[0x10000]uint8
	letters uint8 // what counts as a letter
}

func (w wordRule) fast() *fastRule {
	f := &fastRule{rule: w, classes: runeClasses(), letters: classLetter}
	if w.marks {
		f.letters |= classMark
	}
	return f
}

// class gives the class and the length of the character at i.
func (f *fastRule) class(s string, i int) (uint8, int) {
	if b := s[i]; b < utf8.RuneSelf {
		return f.classes[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if r < 0x10000 {
		return f.classes[r], n
	}
	return slowClass(r), n
}

// run gives the end of the characters from i on that have a bit of mask.
func (f *fastRule) run(s string, i int, mask uint8) int {
	for i < len(s) {
		c, n := f.class(s, i)
		if c&mask == 0 {
			break
		}
		i += n
	}
	return i
}

// others gives the end of the characters from i on that have no bit of mask.
func (f *fastRule) others(s string, i int, mask uint8) int {
	for i < len(s) {
		c, n := f.class(s, i)
		if c&mask != 0 {
			break
		}
		i += n
	}
	return i
}

// words calls fn with the byte range of each word of s, which must be UTF-8. The
// words cover s.
func (f *fastRule) words(s string, fn func(start, end int)) {
	for i := 0; i < len(s); {
		end := f.next(s, i)
		fn(i, end)
		i = end
	}
}

// next gives the end of the word that begins at i.
func (f *fastRule) next(s string, i int) int {
	b := s[i]
	if b == '\'' {
		if n := f.rule.contraction(s[i+1:]); n > 0 {
			return i + 1 + n
		}
	}
	c, n := f.class(s, i)
	if f.rule.gpt2 {
		return f.nextGPT2(s, i, c, n)
	}
	if c&(classNewline|classNumber) == 0 {
		if c&f.letters != 0 {
			return f.run(s, i+n, f.letters)
		}
		if i+n < len(s) {
			if next, m := f.class(s, i+n); next&f.letters != 0 {
				return f.run(s, i+n+m, f.letters)
			}
		}
	}
	if c&classNumber != 0 {
		end := i + n
		for k := 1; k < f.rule.maxDigits && end < len(s); k++ {
			next, m := f.class(s, end)
			if next&classNumber == 0 {
				break
			}
			end += m
		}
		return end
	}
	j := i
	if b == ' ' {
		j++
	}
	if end := f.others(s, j, classSpace|classNumber|f.letters); end > j {
		for end < len(s) && (s[end] == '\n' || s[end] == '\r') {
			end++
		}
		return end
	}
	end := f.run(s, i, classSpace)
	if end == i {
		return i + n
	}
	for k := end; k > i; k-- {
		if s[k-1] == '\n' || s[k-1] == '\r' {
			return k
		}
	}
	return i + keepLast(s[i:], end-i)
}

// nextGPT2 is next for the old pattern, after contractions. c and n are class
// and length of the character at i.
func (f *fastRule) nextGPT2(s string, i int, c uint8, n int) int {
	j := i
	if s[i] == ' ' {
		j++
		if j == len(s) {
			return j
		}
		c, n = f.class(s, j)
	}
	switch {
	case c&classLetter != 0:
		return f.run(s, j+n, classLetter)
	case c&classNumber != 0:
		return f.run(s, j+n, classNumber)
	case c&classSpace == 0:
		return f.others(s, j+n, classSpace|classLetter|classNumber)
	}
	return i + keepLast(s[i:], f.run(s, i, classSpace)-i)
}

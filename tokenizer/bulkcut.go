package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// unitCutter cuts text into units that are encoded apart and give, put together,
// the ids of the whole. A unit is a word of the pre-tokenizer, or a stretch
// between two places that no word and no token goes across.
type unitCutter struct {
	rule  *fastRule // the pre-tokenizer is this rule alone
	join  *joinSet  // texts are merged as a whole, and no token has a pair that it lacks
	lines bool      // with join: runs of line ends stay together
	// spaces and newlines say which places between words are known to be cut
	// by every pattern of the pre-tokenizer.
	spaces, newlines bool
	special          *specialFinder
	afterSpecial     bool // what follows a special token is treated in another way
	eatSpace         bool // and it takes along white space
}

func newUnitCutter(t *Tokenizer, join *joinSet, special *specialFinder) *unitCutter {
	u := &unitCutter{special: special}
	switch {
	case t.v.Model == ModelSPM:
		u.join, u.afterSpecial = join, t.spacePrefix
	case t.cut.rawUTF8 && !t.cut.ignoreMerges:
		u.join, u.lines = join, t.cut.wholeLines
	default:
		u.rule = t.cut.rule
		u.spaces, u.newlines = !t.cut.joinsSpaces, !t.cut.joinsLines
	}
	u.eatSpace = t.v.eatSpace
	u.afterSpecial = u.afterSpecial || u.eatSpace
	return u
}

// units calls fn for the units of s, which cover it.
func (u *unitCutter) units(s string, fn func(unit string)) {
	switch {
	case u.rule != nil:
		for i := 0; i < len(s); {
			end := u.rule.next(s, i)
			fn(s[i:end])
			i = end
		}
	case u.join != nil:
		u.joined(s, fn)
	default:
		start := 0
		for i := 1; i < len(s); i++ {
			if u.between(s, i) {
				fn(s[start:i])
				start = i
			}
		}
		if start < len(s) {
			fn(s[start:])
		}
	}
}

// joined cuts between characters that stand side by side in no token.
func (u *unitCutter) joined(s string, fn func(unit string)) {
	start := 0
	var before charKey
	for i := 0; i < len(s); {
		k, n := charKey(s[i]), 1
		if k >= utf8.RuneSelf {
			k, n = keyAt(s, i)
			k = k.plain()
		}
		if i > 0 && !u.join.has(before, k) && !(u.lines && before == '\n' && k == '\n') {
			fn(s[start:i])
			start = i
		}
		before = k
		i += n
	}
	if start < len(s) {
		fn(s[start:])
	}
}

// between reports whether i, inside s, is a place that every pre-tokenizer cuts
// whatever surrounds it: before a space between two ASCII letters, and behind a
// line end that stands between something visible and a letter.
func (u *unitCutter) between(s string, i int) bool {
	switch {
	case s[i] == ' ':
		return u.spaces && i+1 < len(s) && asciiLetter(s[i-1]) && asciiLetter(s[i+1])
	case s[i-1] == '\n' && u.newlines && i > 1:
		if r, n := utf8.DecodeRuneInString(s[i:]); n == 1 && r == utf8.RuneError || !unicode.IsLetter(r) {
			return false
		}
		r, n := utf8.DecodeLastRuneInString(s[:i-1])
		return !(n == 1 && r == utf8.RuneError) && !unicode.IsSpace(r)
	}
	return false
}

func asciiLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// cuttable reports whether a text may be cut at i, inside s, before special
// tokens are found.
func (u *unitCutter) cuttable(s string, i int) bool {
	if f := u.special; f.any && (has(&f.inner, s[i-1], s[i]) || u.afterSpecial && f.last[s[i-1]] || u.eatSpace && s[i-1] <= ' ') {
		return false
	}
	if u.join == nil {
		return u.between(s, i) || u.rule != nil && u.ruled(s, i)
	}
	// Nothing near may look like a character that is broken: a reader that cuts
	// by the first byte alone would see others.
	for k := max(i-utf8.UTFMax, 0); k < i; k++ {
		if s[k] < 0xC0 {
			continue
		}
		if r, n := utf8.DecodeRuneInString(s[k:]); n == 1 && r == utf8.RuneError || k+n > i {
			return false
		}
	}
	r, n := utf8.DecodeLastRuneInString(s[:i])
	if n == 1 && r == utf8.RuneError || s[i]&0xC0 == 0x80 {
		return false
	}
	at := i - n
	a, _ := keyAt(s, at)
	b, _ := keyAt(s, i)
	a, b = a.plain(), b.plain()
	return !u.join.has(a, b) && !(u.lines && a == '\n' && b == '\n')
}

// ruled is between for texts that one of the hand-written rules cuts: before
// any space behind something visible in ASCII, and behind a line end between two
// things that are visible there.
func (u *unitCutter) ruled(s string, i int) bool {
	visible := func(b byte) bool { return b > ' ' && b < 0x7F }
	if s[i] == ' ' {
		return visible(s[i-1])
	}
	return s[i-1] == '\n' && i > 1 && visible(s[i-2]) && visible(s[i])
}

// lastCut gives the last place in s where it may be cut, 0 for none.
func (u *unitCutter) lastCut(s string) int {
	// Whoever looks at i may look one character further.
	for i := len(s) - utf8.UTFMax; i > 0; i-- {
		if u.cuttable(s, i) {
			return i
		}
	}
	return 0
}

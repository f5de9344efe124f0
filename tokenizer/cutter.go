package tokenizer

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/dlclark/regexp2"
)

// A cutter is how llama.cpp cuts text for one name of tokenizer.ggml.pre, and
// the flags that the name brings along.
type cutter struct {
	steps        []cutStep
	ignoreMerges bool // a word that is a token is taken whole
	addBOS       bool // default of add_bos_token
	keepSpaces   bool // detokenizing leaves the spaces before punctuation
	rawUTF8      bool // no byte alphabet: symbols are characters, bytes are <0xXX>
	markSpaces   bool // spaces become U+2581 first
	wholeLines   bool // a word of only line ends that is a token is taken whole
	forceBOS     bool // add_bos_token is true whatever the file says
	joinsSpaces  bool // a word may have spaces between letters
	joinsLines   bool // a word may have line ends between letters

	rule *fastRule // the only step, where that is a rule
}

// cutStep cuts a text into pieces that cover it.
type cutStep func(text string, emit func(piece string)) error

// cut applies the steps in sequence, each inside the pieces of the one before.
func (c *cutter) cut(text string, emit func(word string)) error {
	return cutFrom(c.steps, text, emit)
}

func cutFrom(steps []cutStep, text string, emit func(string)) error {
	if len(steps) == 0 {
		if text != "" {
			emit(text)
		}
		return nil
	}
	var inner error
	err := steps[0](text, func(piece string) {
		if inner == nil {
			inner = cutFrom(steps[1:], piece, emit)
		}
	})
	if err != nil {
		return err
	}
	return inner
}

func ruleStep(w wordRule) cutStep {
	f := w.fast()
	return func(text string, emit func(string)) error {
		f.words(text, func(start, end int) { emit(text[start:end]) })
		return nil
	}
}

// patternRule gives the rule that cuts as one of llama.cpp's patterns does.
func patternRule(pattern string) (wordRule, bool) {
	switch pattern {
	case cutGPT2:
		return wordRule{gpt2: true}, true
	case cutLlama3:
		return wordRule{maxDigits: 3}, true
	case cutQwen2, cutBailing:
		return wordRule{maxDigits: 1}, true
	case cutQwen35:
		return wordRule{maxDigits: 1, marks: true}, true
	}
	return wordRule{}, false
}

// lineStep cuts [^\n]+|[\n]+.
func lineStep(text string, emit func(string)) error {
	for text != "" {
		n := run(text, func(r rune) bool { return (r == '\n') == (text[0] == '\n') })
		emit(text[:n])
		text = text[n:]
	}
	return nil
}

// digitStep groups digits by three from the right. As in llama.cpp the first
// group takes along the text before it.
func digitStep(text string, emit func(string)) error {
	begin := 0
	for pos := 0; pos < len(text); {
		n := run(text[pos:], unicode.IsNumber)
		if n == 0 {
			pos += run(text[pos:], func(r rune) bool { return !unicode.IsNumber(r) })
			continue
		}
		left := len([]rune(text[pos : pos+n]))
		for left > 0 {
			take := left % 3
			if take == 0 {
				take = 3
			}
			pos += prefixRun(text[pos:], take, unicode.IsNumber)
			left -= take
			emit(text[begin:pos])
			begin = pos
		}
	}
	if begin < len(text) {
		emit(text[begin:])
	}
	return nil
}

// Classes of characters in collapsed text. llama.cpp runs patterns with
// Unicode classes over a text in which every character past ASCII is replaced
// by one that stands for its class, so that \p{Lu} and \p{Ll} mean the same
// there.
const (
	collapsedOther  = '\u00d0'
	collapsedNumber = '\u00d1'
	collapsedLetter = '\u00d2'
	collapsedPunct  = '\u00d3'
	collapsedMark   = '\u00d4'
	collapsedSymbol = '\u00d5'
	collapsedSpace  = '\v'
)

func collapse(r rune) rune {
	switch {
	case r < 0x80:
		return r
	case unicode.IsSpace(r):
		return collapsedSpace
	case unicode.IsNumber(r):
		return collapsedNumber
	case unicode.IsLetter(r):
		return collapsedLetter
	case unicode.IsPunct(r):
		return collapsedPunct
	case unicode.IsMark(r):
		return collapsedMark
	case unicode.IsSymbol(r):
		return collapsedSymbol
	}
	return collapsedOther
}

// collapsedClass gives the members of a class in collapsed text, without
// brackets.
func collapsedClass(name string) (string, bool) {
	switch name {
	case "N":
		return "0-9" + string(collapsedNumber), true
	case "L", "Lu", "Ll", "Lt", "Lm", "Lo":
		return "A-Za-z" + string(collapsedLetter), true
	case "P":
		return `!-#%-*,-/:-;?-@\[-\]_\{\}` + string(collapsedPunct), true
	case "M":
		return string(collapsedMark), true
	case "S":
		return "\\$\\+<->^`\\|~" + string(collapsedSymbol), true
	}
	return "", false
}

// patternStep compiles one of llama.cpp's patterns.
func patternStep(pattern string) (cutStep, error) {
	if w, ok := patternRule(pattern); ok {
		return ruleStep(w), nil
	}
	switch pattern {
	case cutLines:
		return lineStep, nil
	case cutDigits, cutAyaDigits:
		return digitStep, nil
	}
	expr, classes := expandClasses(pattern)
	re, err := regexp2.Compile(expr, regexp2.ECMAScript)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	re.MatchTimeout = matchLimit
	return func(text string, emit func(string)) error {
		return cutCollapsed(re, text, classes, emit)
	}, nil
}

// expandClasses replaces \p{X}, \s and \S and reports whether there was any
// of the first.
func expandClasses(pattern string) (string, bool) {
	var b strings.Builder
	inside, found := false, false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c == '[' && (i == 0 || pattern[i-1] != '\\') {
			inside = true
		} else if c == ']' && inside && pattern[i-1] != '\\' {
			inside = false
		}
		if c == '\\' && strings.HasPrefix(pattern[i:], `\p{`) {
			if end := strings.IndexByte(pattern[i:], '}'); end > 0 {
				if members, ok := collapsedClass(pattern[i+3 : i+end]); ok {
					found = true
					if !inside {
						members = "[" + members + "]"
					}
					b.WriteString(members)
					i += end
					continue
				}
			}
		}
		// The engine's \s has U+FEFF, that of llama.cpp only ASCII.
		if c == '\\' && i+1 < len(pattern) {
			next := pattern[i+1]
			i++
			switch {
			case next == 's' && inside:
				b.WriteString(`\t-\r `)
			case next == 's':
				b.WriteString(`[\t-\r ]`)
			case next == 'S' && !inside:
				b.WriteString(`[^\t-\r ]`)
			default:
				b.WriteByte(c)
				b.WriteByte(next)
			}
			continue
		}
		b.WriteByte(c)
	}
	return b.String(), found
}

// cutCollapsed emits the matches and what lies between them.
func cutCollapsed(re *regexp2.Regexp, text string, classes bool, emit func(string)) error {
	chars := make([]rune, 0, len(text))
	offs := make([]int, 0, len(text)+1)
	for i, r := range text {
		offs = append(offs, i)
		if classes {
			r = collapse(r)
		} else if r >= 0x80 && unicode.IsSpace(r) {
			r = collapsedSpace
		}
		chars = append(chars, r)
	}
	offs = append(offs, len(text))
	done := 0
	m, err := re.FindRunesMatch(chars)
	for m != nil && err == nil {
		if m.Index > done {
			emit(text[offs[done]:offs[m.Index]])
		}
		if m.Length > 0 {
			emit(text[offs[m.Index]:offs[m.Index+m.Length]])
		}
		done = m.Index + m.Length
		m, err = re.FindNextMatch(m)
	}
	if err != nil {
		return err
	}
	if done < len(chars) {
		emit(text[offs[done]:])
	}
	return nil
}

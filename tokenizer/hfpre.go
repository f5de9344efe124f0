package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// part is a word on its way to the model.
type part struct {
	text  string
	first bool // begins where the input begins
}

// splitter is one compiled pre-tokenizer.
type splitter func([]part) ([]part, error)

// compilePre compiles a "pre_tokenizer"; nil leaves texts whole.
func compilePre(file string, p *jsonObject) (splitter, error) {
	if p == nil {
		return func(in []part) ([]part, error) { return in, nil }, nil
	}
	bad := func(what string) error { return fmt.Errorf("%s: pre_tokenizer: %s: %w", file, what, ErrFormat) }
	switch typ, _ := p.str("type"); typ {
	case "Sequence":
		var steps []splitter
		for _, e := range p.list("pretokenizers") {
			o, ok := e.(*jsonObject)
			if !ok {
				return nil, bad("not an object in a Sequence")
			}
			s, err := compilePre(file, o)
			if err != nil {
				return nil, err
			}
			steps = append(steps, s)
		}
		return func(in []part) ([]part, error) {
			var err error
			for _, f := range steps {
				if in, err = f(in); err != nil {
					return nil, err
				}
			}
			return in, nil
		}, nil
	case "Split":
		m, err := compileSplitPattern(file, "pre_tokenizer", p.get("pattern"))
		if err != nil {
			return nil, err
		}
		behavior, _ := p.str("behavior")
		if !knownBehavior(behavior) {
			return nil, bad(fmt.Sprintf("behavior %q", behavior))
		}
		return splitBy(m, behavior, p.flag("invert", false)), nil
	case "ByteLevel":
		return byteLevelSplitter(p.flag("add_prefix_space", true), p.flag("use_regex", true)), nil
	case "Digits":
		behavior := "Contiguous"
		if p.flag("individual_digits", false) {
			behavior = "Isolated"
		}
		return splitBy(classMatcher(unicode.IsNumber), behavior, false), nil
	case "Punctuation":
		behavior, ok := p.str("behavior")
		if !ok {
			behavior = "Isolated"
		}
		if !knownBehavior(behavior) {
			return nil, bad(fmt.Sprintf("behavior %q", behavior))
		}
		return splitBy(classMatcher(isPunctuation), behavior, false), nil
	case "WhitespaceSplit":
		return splitBy(classMatcher(unicode.IsSpace), "Removed", false), nil
	case "Whitespace":
		m, err := compilePattern(`\w+|[^\w\s]+`)
		return splitBy(m, "Removed", true), err
	case "Metaspace":
		return compileMetaspace(p, bad)
	default:
		return nil, fmt.Errorf("%s: pre_tokenizer %q: %w", file, typ, ErrUnsupported)
	}
}

func isPunctuation(r rune) bool {
	return unicode.IsPunct(r) || r < 0x80 && r > 0x20 && r != 0x7F && !unicode.IsLetter(r) && !unicode.IsNumber(r)
}

// classMatcher matches single characters.
type classMatcher func(rune) bool

func (m classMatcher) find(s string, fn func(start, end int)) error {
	for i, r := range s {
		if m(r) {
			fn(i, i+utf8.RuneLen(r))
		}
	}
	return nil
}

func knownBehavior(s string) bool {
	switch s {
	case "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous":
		return true
	}
	return false
}

// splitBy cuts every part at the matches of m. With invert, matches and the
// text between them change roles.
func splitBy(m matcher, behavior string, invert bool) splitter {
	return func(in []part) ([]part, error) {
		var out []part
		for _, p := range in {
			cuts, err := cutText(p.text, m, invert)
			if err != nil {
				return nil, err
			}
			for _, c := range joinCuts(cuts, behavior) {
				if c.start < c.end {
					out = append(out, part{p.text[c.start:c.end], p.first && c.start == 0})
				}
			}
		}
		return out, nil
	}
}

// cut is a range of a text, a match of the pattern or the text between two.
type cut struct {
	start, end int
	match      bool
}

func cutText(s string, m matcher, invert bool) ([]cut, error) {
	var cuts []cut
	done := 0
	err := m.find(s, func(start, end int) {
		if done < start {
			cuts = append(cuts, cut{done, start, invert})
		}
		cuts = append(cuts, cut{start, end, !invert})
		done = end
	})
	if done < len(s) {
		cuts = append(cuts, cut{done, len(s), invert})
	}
	return cuts, err
}

// joinCuts applies the behavior of a Split.
func joinCuts(cuts []cut, behavior string) []cut {
	var out []cut
	switch behavior {
	case "Isolated":
		return cuts
	case "Removed":
		for _, c := range cuts {
			if !c.match {
				out = append(out, c)
			}
		}
	case "Contiguous":
		for _, c := range cuts {
			if n := len(out); n > 0 && out[n-1].match == c.match {
				out[n-1].end = c.end
			} else {
				out = append(out, c)
			}
		}
	case "MergedWithPrevious":
		previous := false
		for _, c := range cuts {
			if n := len(out); c.match && !previous && n > 0 {
				out[n-1].end = c.end
			} else {
				out = append(out, c)
			}
			previous = c.match
		}
	case "MergedWithNext":
		next := false
		for i := len(cuts) - 1; i >= 0; i-- {
			c := cuts[i]
			if n := len(out); c.match && !next && n > 0 {
				out[n-1].start = c.start
			} else {
				out = append(out, c)
			}
			next = c.match
		}
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
	}
	return out
}

// byteLevelSplitter cuts by the GPT-2 pattern if asked, then spells bytes.
func byteLevelSplitter(prefixSpace, useRegex bool) splitter {
	cutWords := splitBy(ruleMatcher{wordRule{gpt2: true}.fast()}, "Isolated", false)
	return func(in []part) ([]part, error) {
		out := append([]part(nil), in...)
		if prefixSpace {
			for i, p := range out {
				if !strings.HasPrefix(p.text, " ") {
					out[i].text = " " + p.text
				}
			}
		}
		if useRegex {
			var err error
			if out, err = cutWords(out); err != nil {
				return nil, err
			}
		}
		for i := range out {
			out[i].text = toByteLevel(out[i].text)
		}
		return out, nil
	}
}

func compileMetaspace(p *jsonObject, bad func(string) error) (splitter, error) {
	mark, ok := oneRune(p.get("replacement"), '\u2581')
	if !ok {
		return nil, bad("Metaspace replacement is not one character")
	}
	scheme, ok := p.str("prepend_scheme")
	if !ok {
		scheme = "always"
		if !p.flag("add_prefix_space", true) {
			scheme = "never"
		}
	}
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return nil, bad(fmt.Sprintf("prepend_scheme %q", scheme))
	}
	cutMarks := splitBy(literalMatcher(string(mark)), "MergedWithNext", false)
	split := p.flag("split", true)
	return func(in []part) ([]part, error) {
		out := make([]part, len(in))
		for i, q := range in {
			q.text = strings.ReplaceAll(q.text, " ", string(mark))
			if !strings.HasPrefix(q.text, string(mark)) && (scheme == "always" || scheme == "first" && q.first) {
				q.text = string(mark) + q.text
			}
			out[i] = q
		}
		if !split {
			return out, nil
		}
		return cutMarks(out)
	}, nil
}

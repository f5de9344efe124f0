package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// step is one compiled normalizer.
type step func(string) (string, error)

func (t *hfTokenizer) normalizeStep() (step, error) { return compileNormalizer(t.name, t.normalizer) }

// compileNormalizer compiles a "normalizer"; nil is the identity.
func compileNormalizer(file string, n *jsonObject) (step, error) {
	pure := func(fn func(string) string) (step, error) {
		return func(s string) (string, error) { return fn(s), nil }, nil
	}
	if n == nil {
		return pure(func(s string) string { return s })
	}
	switch typ, _ := n.str("type"); typ {
	case "Sequence":
		var steps []step
		for _, e := range n.list("normalizers") {
			o, ok := e.(*jsonObject)
			if !ok {
				return nil, fmt.Errorf("%s: normalizer: not an object in a Sequence: %w", file, ErrFormat)
			}
			s, err := compileNormalizer(file, o)
			if err != nil {
				return nil, err
			}
			steps = append(steps, s)
		}
		return func(s string) (string, error) {
			var err error
			for _, f := range steps {
				if s, err = f(s); err != nil {
					return "", err
				}
			}
			return s, nil
		}, nil
	case "NFC":
		return pure(unicode9(norm.NFC.String))
	case "NFD":
		return pure(unicode9(norm.NFD.String))
	case "NFKC":
		return pure(unicode9(norm.NFKC.String))
	case "NFKD":
		return pure(unicode9(norm.NFKD.String))
	case "Lowercase":
		return pure(lowercase)
	case "StripAccents":
		return pure(func(s string) string {
			return strings.Map(func(r rune) rune {
				if unicode.IsMark(r) {
					return -1
				}
				return r
			}, s)
		})
	case "Strip":
		left, right := n.flag("strip_left", true), n.flag("strip_right", true)
		return pure(func(s string) string {
			if left {
				s = strings.TrimLeftFunc(s, unicode.IsSpace)
			}
			if right {
				s = strings.TrimRightFunc(s, unicode.IsSpace)
			}
			return s
		})
	case "Prepend":
		text, _ := n.str("prepend")
		return pure(func(s string) string {
			if s == "" {
				return s
			}
			return text + s
		})
	case "Replace":
		return compileReplace(file, "normalizer", n)
	default:
		return nil, fmt.Errorf("%s: normalizer %q: %w", file, typ, ErrUnsupported)
	}
}

// flag is a boolean with a default.
func (o *jsonObject) flag(key string, def bool) bool {
	if b, ok := o.boolean(key); ok {
		return b
	}
	return def
}

// lowercase maps each character by itself, as Rust's char does.
func lowercase(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == 0x130 { // I with dot: the one with two characters
			b.WriteString("i\u0307")
			continue
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// compileReplace compiles a Replace of a normalizer or decoder.
func compileReplace(file, where string, o *jsonObject) (step, error) {
	m, err := compileSplitPattern(file, where, o.get("pattern"))
	if err != nil {
		return nil, err
	}
	content, ok := o.str("content")
	if !ok {
		return nil, fmt.Errorf("%s: %s: Replace without content: %w", file, where, ErrFormat)
	}
	return func(s string) (string, error) {
		var b strings.Builder
		done := 0
		err := m.find(s, func(start, end int) {
			b.WriteString(s[done:start])
			b.WriteString(content)
			done = end
		})
		b.WriteString(s[done:])
		return b.String(), err
	}, nil
}

// compileSplitPattern compiles {"String": ...}, which is literal text, or
// {"Regex": ...}.
func compileSplitPattern(file, where string, v any) (matcher, error) {
	o, _ := v.(*jsonObject)
	if s, ok := o.str("String"); ok {
		return literalMatcher(s), nil
	}
	if s, ok := o.str("Regex"); ok {
		m, err := compilePattern(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, where, err)
		}
		return m, nil
	}
	return nil, fmt.Errorf("%s: %s: pattern is neither String nor Regex: %w", file, where, ErrFormat)
}

// oneRune reads a string of exactly one character.
func oneRune(v any, def rune) (rune, bool) {
	s, ok := v.(string)
	if !ok {
		return def, v == nil
	}
	r, n := utf8.DecodeRuneInString(s)
	return r, n == len(s) && n > 0
}

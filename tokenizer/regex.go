package tokenizer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// matchLimit stops a pattern that backtracks without end. It guards against
// hostile files only: real patterns need microseconds.
const matchLimit = 5 * time.Second

// A matcher finds the non-overlapping matches of a pattern, left to right.
type matcher interface {
	// find calls fn with the byte range of each match in s, which is UTF-8.
	find(s string, fn func(start, end int)) error
}

// compilePattern compiles a pattern of tokenizer.json, which is written for
// Oniguruma with Ruby's syntax.
func compilePattern(pattern string) (matcher, error) {
	if rule, ok := ruleFor(pattern); ok {
		return ruleMatcher{rule.fast()}, nil
	}
	translated, err := translateOniguruma(pattern)
	if err != nil {
		return nil, err
	}
	// In Ruby ^ and $ are line ends.
	re, err := regexp2.Compile(translated, regexp2.Multiline)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w: %w", pattern, err, ErrUnsupported)
	}
	re.MatchTimeout = matchLimit
	return regexMatcher{re}, nil
}

type ruleMatcher struct{ rule *fastRule }

func (m ruleMatcher) find(s string, fn func(start, end int)) error {
	m.rule.words(s, fn)
	return nil
}

type literalMatcher string

func (m literalMatcher) find(s string, fn func(start, end int)) error {
	if m == "" {
		return nil
	}
	for at := 0; ; {
		i := strings.Index(s[at:], string(m))
		if i < 0 {
			return nil
		}
		fn(at+i, at+i+len(m))
		at += i + len(m)
	}
}

type regexMatcher struct{ re *regexp2.Regexp }

func (m regexMatcher) find(s string, fn func(start, end int)) error {
	match, err := m.re.FindStringMatch(s)
	at, runes := 0, 0 // at is the byte offset of rune number runes
	offset := func(want int) int {
		for runes < want {
			_, n := utf8.DecodeRuneInString(s[at:])
			at += n
			runes++
		}
		return at
	}
	for match != nil && err == nil {
		start := offset(match.Index)
		fn(start, offset(match.Index+match.Length))
		match, err = m.re.FindNextMatch(match)
	}
	if err != nil {
		return fmt.Errorf("pattern %q: %w", m.re.String(), err)
	}
	return nil
}

// wordClass is what \w matches in Oniguruma; regexp2 takes joiners for word
// characters and circled letters for none.
const wordClass = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\u24B6-\u24E9`

// translateOniguruma rewrites what occurs in published tokenizers and what
// regexp2 reads otherwise: possessive quantifiers (X?+ X*+ X++ become atomic
// groups), classes inside classes (the union) and \w.
func translateOniguruma(p string) (string, error) {
	var out []byte
	var groups []int // offsets in out where open groups start
	atom := -1       // offset in out where the last atom starts, -1: none
	for i := 0; i < len(p); {
		switch c := p[i]; c {
		case '\\':
			n := escapeLen(p[i:])
			atom = len(out)
			switch p[i : i+n] {
			case `\w`:
				out = append(out, "["+wordClass+"]"...)
			case `\W`:
				out = append(out, "[^"+wordClass+"]"...)
			default:
				out = append(out, p[i:i+n]...)
			}
			i += n
		case '[':
			class, n, err := translateClass(p[i:])
			if err != nil {
				return "", fmt.Errorf("pattern %q: %w", p, err)
			}
			atom = len(out)
			out = append(out, class...)
			i += n
		case '(':
			groups = append(groups, len(out))
			out = append(out, c)
			atom = -1
			i++
			if i < len(p) && p[i] == '?' { // (?: (?i: (?= (?! and their like
				out = append(out, '?')
				i++
			}
		case ')':
			if len(groups) > 0 {
				atom = groups[len(groups)-1]
				groups = groups[:len(groups)-1]
			}
			out = append(out, c)
			i++
		case '?', '*', '+', '{':
			n := quantifierLen(p[i:])
			if n == 0 { // a literal brace
				atom = len(out)
				out = append(out, c)
				i++
				break
			}
			out = append(out, p[i:i+n]...)
			i += n
			// After an interval Ruby reads "+" as another quantifier.
			if c != '{' && i < len(p) && p[i] == '+' && atom >= 0 {
				out = append(out[:atom], append([]byte("(?>"), out[atom:]...)...)
				out = append(out, ')')
				i++
			} else if i < len(p) && p[i] == '?' {
				out = append(out, '?')
				i++
			}
		case '|':
			atom = -1
			out = append(out, c)
			i++
		default:
			_, n := utf8.DecodeRuneInString(p[i:])
			atom = len(out)
			out = append(out, p[i:i+n]...)
			i += n
		}
	}
	return string(out), nil
}

// escapeLen gives the length of an escape: \p{...} or one character.
func escapeLen(p string) int {
	if len(p) >= 3 && (p[1] == 'p' || p[1] == 'P') && p[2] == '{' {
		if end := strings.IndexByte(p, '}'); end > 0 {
			return end + 1
		}
	}
	_, n := utf8.DecodeRuneInString(p[1:])
	return 1 + n
}

// quantifierLen gives the length of ? * + {n} {n,} {n,m} {,m}, 0 for a brace
// that is none of these.
func quantifierLen(p string) int {
	if p[0] != '{' {
		return 1
	}
	end := strings.IndexByte(p, '}')
	if end < 2 || strings.Trim(p[1:end], "0123456789,") != "" || p[1:end] == "," {
		return 0
	}
	return end + 1
}

// translateClass flattens [...] and returns its length in the source.
func translateClass(p string) ([]byte, int, error) {
	out := []byte{'['}
	i := 1
	if i < len(p) && p[i] == '^' {
		out = append(out, '^')
		i++
	}
	depth := 1
	for first := true; i < len(p); first = false {
		switch c := p[i]; {
		case c == '\\' && i+1 < len(p):
			n := escapeLen(p[i:])
			if p[i:i+n] == `\w` {
				out = append(out, wordClass...)
			} else {
				out = append(out, p[i:i+n]...)
			}
			i += n
		case c == ']' && !first:
			i++
			if depth--; depth == 0 {
				return append(out, ']'), i, nil
			}
		case c == '[':
			if i+1 < len(p) && (p[i+1] == '^' || p[i+1] == ':') {
				return nil, 0, fmt.Errorf("negated or named class inside a class: %w", ErrUnsupported)
			}
			depth++
			i++
		case c == '&' && i+1 < len(p) && p[i+1] == '&':
			return nil, 0, fmt.Errorf("intersection of classes: %w", ErrUnsupported)
		default:
			_, n := utf8.DecodeRuneInString(p[i:])
			out = append(out, p[i:i+n]...)
			i += n
		}
	}
	return nil, 0, fmt.Errorf("unfinished class: %w", ErrFormat)
}

package pyjson

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrSyntax marks text that is not JSON as Python reads it.
var ErrSyntax = errors.New("not valid JSON")

// maxDepth bounds nesting, so that hostile input cannot exhaust the stack.
const maxDepth = 500

// Parse reads one JSON value that fills the text. Errors wrap ErrSyntax and
// give line and column, both from 1; the column counts bytes.
func Parse(text []byte) (any, error) {
	p := &parser{text: text}
	if !utf8.Valid(text) {
		for at := 0; at < len(text); {
			r, n := utf8.DecodeRune(text[at:])
			if r == utf8.RuneError && n == 1 {
				p.at = at
				break
			}
			at += n
		}
		return nil, p.fail("the text is not UTF-8")
	}
	if len(text) >= 3 && string(text[:3]) == "\ufeff" {
		return nil, p.fail("the text starts with a byte order mark")
	}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.at < len(p.text) {
		return nil, p.fail("more text follows the value")
	}
	return v, nil
}

// ParseObject is Parse for a text that must be one object.
func ParseObject(text []byte) (*Object, error) {
	v, err := Parse(text)
	if err != nil {
		return nil, err
	}
	o, ok := v.(*Object)
	if !ok {
		return nil, fmt.Errorf("%w: want an object, found %s", ErrSyntax, Kind(v))
	}
	return o, nil
}

type parser struct {
	text []byte
	at   int
}

func (p *parser) fail(format string, args ...any) error {
	line, col := 1, 1
	for _, c := range p.text[:p.at] {
		col++
		if c == '\n' {
			line, col = line+1, 1
		}
	}
	return fmt.Errorf("%d:%d: %w: %s", line, col, ErrSyntax, fmt.Sprintf(format, args...))
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// peek gives the next byte, 0 at the end.
func (p *parser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *parser) word(w string) bool {
	if len(p.text)-p.at >= len(w) && string(p.text[p.at:p.at+len(w)]) == w {
		p.at += len(w)
		return true
	}
	return false
}

func (p *parser) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, p.fail("values are nested more than %d deep", maxDepth)
	}
	p.space()
	switch c := p.peek(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.list(depth)
	case c == '"':
		return p.str()
	case c == '-' || (c >= '0' && c <= '9'):
		return p.number()
	case p.word("null"):
		return nil, nil
	case p.word("true"):
		return true, nil
	case p.word("false"):
		return false, nil
	case p.word("NaN"):
		return Number("NaN"), nil
	case p.word("Infinity"):
		return Number("Infinity"), nil
	case p.at >= len(p.text):
		return nil, p.fail("the text ends where a value should be")
	}
	r, _ := utf8.DecodeRune(p.text[p.at:])
	return nil, p.fail("want a value, found %q", r)
}

func (p *parser) object(depth int) (any, error) {
	p.at++
	o := &Object{vals: map[string]any{}}
	p.space()
	if p.peek() == '}' {
		p.at++
		return o, nil
	}
	for {
		p.space()
		if p.peek() != '"' {
			return nil, p.fail("want a key in double quotes")
		}
		k, err := p.str()
		if err != nil {
			return nil, err
		}
		p.space()
		if p.peek() != ':' {
			return nil, p.fail("want a colon after the key %q", k)
		}
		p.at++
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		o.Set(k, v)
		p.space()
		switch p.peek() {
		case ',':
			p.at++
		case '}':
			p.at++
			return o, nil
		default:
			return nil, p.fail("want a comma or a closing brace")
		}
	}
}

func (p *parser) list(depth int) (any, error) {
	p.at++
	out := []any{}
	p.space()
	if p.peek() == ']' {
		p.at++
		return out, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		p.space()
		switch p.peek() {
		case ',':
			p.at++
		case ']':
			p.at++
			return out, nil
		default:
			return nil, p.fail("want a comma or a closing bracket")
		}
	}
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)? and -Infinity. As
// in Python the match ends where the pattern does: "1." is 1 and then a stray
// dot.
func (p *parser) number() (any, error) {
	start := p.at
	if p.word("-Infinity") {
		return Number("-Infinity"), nil
	}
	digits := func() int {
		n := 0
		for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
			p.at++
			n++
		}
		return n
	}
	if p.peek() == '-' {
		p.at++
	}
	if p.peek() == '0' {
		p.at++
	} else if digits() == 0 {
		p.at = start
		return nil, p.fail("a minus sign without a number")
	}
	end := p.at
	if p.peek() == '.' {
		p.at++
		if digits() > 0 {
			end = p.at
		}
	}
	p.at = end
	if c := p.peek(); c == 'e' || c == 'E' {
		p.at++
		if c := p.peek(); c == '-' || c == '+' {
			p.at++
		}
		if digits() > 0 {
			end = p.at
		}
	}
	p.at = end
	return Number(p.text[start:end]), nil
}

func (p *parser) str() (string, error) {
	p.at++
	start := p.at
	for p.at < len(p.text) && p.text[p.at] != '"' && p.text[p.at] != '\\' && p.text[p.at] >= 0x20 {
		p.at++
	}
	if p.peek() == '"' {
		s := string(p.text[start:p.at])
		p.at++
		return s, nil
	}
	buf := append([]byte(nil), p.text[start:p.at]...)
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return string(buf), nil
		case c < 0x20:
			return "", p.fail("a control character inside a string")
		case c != '\\':
			buf = append(buf, c)
			p.at++
		default:
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			buf = utf8.AppendRune(buf, r)
		}
	}
	return "", p.fail("the text ends inside a string")
}

// escape reads one escape. A surrogate without its partner becomes U+FFFD: it
// has no UTF-8 form.
func (p *parser) escape() (rune, error) {
	p.at++
	c := p.peek()
	p.at++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		r, ok := p.hex4()
		if !ok {
			return 0, p.fail("want four hex digits after \\u")
		}
		if !utf16.IsSurrogate(r) {
			return r, nil
		}
		keep := p.at
		if p.word(`\u`) {
			if low, ok := p.hex4(); ok {
				if r := utf16.DecodeRune(r, low); r != utf8.RuneError {
					return r, nil
				}
			}
		}
		p.at = keep
		return utf8.RuneError, nil
	}
	p.at--
	if p.at > len(p.text) {
		p.at = len(p.text)
	}
	return 0, p.fail("unknown escape in a string")
}

func (p *parser) hex4() (rune, bool) {
	if len(p.text)-p.at < 4 {
		return 0, false
	}
	for _, c := range p.text[p.at : p.at+4] {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return 0, false
		}
	}
	v, err := strconv.ParseUint(string(p.text[p.at:p.at+4]), 16, 32)
	if err != nil {
		return 0, false
	}
	p.at += 4
	return rune(v), true
}

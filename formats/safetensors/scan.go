package safetensors

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of values that are skipped. Header values have a
// fixed shape and need no bound.
const maxDepth = 64

// scanner walks JSON text token by token. encoding/json will not do: it keeps
// the last of two equal keys, replaces bytes that are not UTF-8, so that two
// names can become one, and rounds large integers. The text is either all in
// buf (r nil) or streamed through it.
type scanner struct {
	r    io.Reader
	buf  []byte
	pos  int
	base int64 // offset of buf[0] in the text, plus the caller's start
	tmp  []byte
}

// syntaxError says where the text breaks which rule. fault is set when the
// reader failed and the text is not to blame.
type syntaxError struct {
	off   int64
	msg   string
	fault error
}

func (e *syntaxError) Error() string {
	if e.fault != nil {
		return fmt.Sprintf("read at byte %d: %v", e.off, e.fault)
	}
	return fmt.Sprintf("byte %d: %s", e.off, e.msg)
}

func (e *syntaxError) Unwrap() error { return e.fault }

func (s *scanner) offset() int64 { return s.base + int64(s.pos) }

func (s *scanner) errorf(format string, args ...any) error {
	return &syntaxError{off: s.offset(), msg: fmt.Sprintf(format, args...)}
}

func errorAt(off int64, format string, args ...any) error {
	return &syntaxError{off: off, msg: fmt.Sprintf(format, args...)}
}

// more reports whether a byte is at pos, refilling the buffer when streaming.
func (s *scanner) more() (bool, error) {
	if s.pos < len(s.buf) {
		return true, nil
	}
	if s.r == nil {
		return false, nil
	}
	s.base += int64(len(s.buf))
	s.pos = 0
	s.buf = s.buf[:cap(s.buf)]
	for {
		n, err := s.r.Read(s.buf)
		if n > 0 {
			s.buf = s.buf[:n]
			return true, nil
		}
		if err != nil {
			s.buf = s.buf[:0]
			if errors.Is(err, io.EOF) {
				return false, nil
			}
			return false, &syntaxError{off: s.base, fault: err}
		}
	}
}

// peek gives the next byte that is not white space, without taking it.
func (s *scanner) peek() (byte, error) {
	for {
		ok, err := s.more()
		if err != nil {
			return 0, err
		}
		if !ok {
			return 0, s.errorf("text ends inside a value")
		}
		switch c := s.buf[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c, nil
		}
	}
}

// end demands that only white space is left.
func (s *scanner) end() error {
	for {
		ok, err := s.more()
		if err != nil || !ok {
			return err
		}
		switch c := s.buf[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return s.errorf("%s after the JSON object", show(c))
		}
	}
}

func (s *scanner) expect(want byte, what string) error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != want {
		return s.errorf("%s where %s should be", show(c), what)
	}
	s.pos++
	return nil
}

// object calls member for every key, with the scanner before the value. what
// and name, which may be empty, say in messages what the object is.
func (s *scanner) object(what, name string, member func(key string, off int64) error) error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != '{' {
		return s.errorf("%s where %s should be", show(c), label(what, name))
	}
	s.pos++
	c, err = s.peek()
	if err != nil {
		return err
	}
	if c == '}' {
		s.pos++
		return nil
	}
	for {
		if _, err := s.peek(); err != nil {
			return err
		}
		off := s.offset()
		key, err := s.str("a key", "")
		if err != nil {
			return err
		}
		if err := s.expect(':', `":"`); err != nil {
			return err
		}
		if err := member(key, off); err != nil {
			return err
		}
		c, err := s.peek()
		if err != nil {
			return err
		}
		switch c {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.errorf(`%s where "," or "}" should be`, show(c))
		}
	}
}

// array calls item with the scanner before each value.
func (s *scanner) array(what, name string, item func() error) error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != '[' {
		return s.errorf("%s where %s should be", show(c), label(what, name))
	}
	s.pos++
	c, err = s.peek()
	if err != nil {
		return err
	}
	if c == ']' {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		c, err := s.peek()
		if err != nil {
			return err
		}
		switch c {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.errorf(`%s where "," or "]" should be`, show(c))
		}
	}
}

// str reads a string; what and name say in messages what it is. It must be UTF-8 and its escapes whole characters.
func (s *scanner) str(what, name string) (string, error) {
	c, err := s.peek()
	if err != nil {
		return "", err
	}
	if c != '"' {
		return "", s.errorf("%s where %s in quotes should be", show(c), label(what, name))
	}
	start := s.offset()
	s.pos++
	s.tmp = s.tmp[:0]
	for {
		ok, err := s.more()
		if err != nil {
			return "", err
		}
		if !ok {
			return "", errorAt(start, "string without an end")
		}
		i := s.pos
		for i < len(s.buf) && s.buf[i] != '"' && s.buf[i] != '\\' && s.buf[i] >= 0x20 {
			i++
		}
		s.tmp = append(s.tmp, s.buf[s.pos:i]...)
		s.pos = i
		if i == len(s.buf) {
			continue
		}
		switch c := s.buf[i]; c {
		case '"':
			s.pos++
			if !utf8.Valid(s.tmp) {
				return "", errorAt(start, "string %s is not UTF-8", clip(string(s.tmp)))
			}
			return string(s.tmp), nil
		case '\\':
			if err := s.escape(); err != nil {
				return "", err
			}
		default:
			return "", s.errorf("control character 0x%02x in a string", c)
		}
	}
}

func (s *scanner) take() (byte, error) {
	ok, err := s.more()
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, s.errorf("string without an end")
	}
	c := s.buf[s.pos]
	s.pos++
	return c, nil
}

func (s *scanner) escape() error {
	off := s.offset()
	s.pos++
	c, err := s.take()
	if err != nil {
		return err
	}
	switch c {
	case '"', '\\', '/':
		s.tmp = append(s.tmp, c)
	case 'b':
		s.tmp = append(s.tmp, '\b')
	case 'f':
		s.tmp = append(s.tmp, '\f')
	case 'n':
		s.tmp = append(s.tmp, '\n')
	case 'r':
		s.tmp = append(s.tmp, '\r')
	case 't':
		s.tmp = append(s.tmp, '\t')
	case 'u':
		r, err := s.hex4()
		if err != nil {
			return err
		}
		if utf16.IsSurrogate(r) {
			if r, err = s.lowSurrogate(r, off); err != nil {
				return err
			}
		}
		s.tmp = utf8.AppendRune(s.tmp, r)
	default:
		return errorAt(off, "unknown escape \\%s", show(c))
	}
	return nil
}

// lowSurrogate reads the second half of a pair. A half alone is no character,
// and replacing it would let two names become one.
func (s *scanner) lowSurrogate(high rune, off int64) (rune, error) {
	for _, want := range []byte{'\\', 'u'} {
		c, err := s.take()
		if err != nil {
			return 0, err
		}
		if c != want {
			return 0, errorAt(off, "half a surrogate pair")
		}
	}
	low, err := s.hex4()
	if err != nil {
		return 0, err
	}
	r := utf16.DecodeRune(high, low)
	if r == utf8.RuneError {
		return 0, errorAt(off, "half a surrogate pair")
	}
	return r, nil
}

func (s *scanner) hex4() (rune, error) {
	var r rune
	for range 4 {
		c, err := s.take()
		if err != nil {
			return 0, err
		}
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			s.pos--
			return 0, s.errorf("%s in a \\u escape", show(c))
		}
	}
	return r, nil
}

// skip passes over any value.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.errorf("values nested more than %d deep", maxDepth)
	}
	c, err := s.peek()
	if err != nil {
		return err
	}
	switch c {
	case '{':
		return s.object("an object", "", func(string, int64) error { return s.skip(depth + 1) })
	case '[':
		return s.array("an array", "", func() error { return s.skip(depth + 1) })
	case '"':
		_, err := s.str("a string", "")
		return err
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	_, _, err = s.number("a value", "")
	return err
}

func (s *scanner) word(w string) error {
	off := s.offset()
	for i := 0; i < len(w); i++ {
		ok, err := s.more()
		if err != nil {
			return err
		}
		if !ok || s.buf[s.pos] != w[i] {
			return errorAt(off, "unknown word; %s was expected", w)
		}
		s.pos++
	}
	return nil
}

// label is built only when a message needs it.
func label(what, name string) string {
	if name == "" {
		return what
	}
	return what + " of " + clip(name)
}

// show names a byte for messages.
func show(c byte) string {
	if c > 0x20 && c < 0x7f {
		return fmt.Sprintf("%q", string(rune(c)))
	}
	return fmt.Sprintf("byte 0x%02x", c)
}

// clip quotes text for messages, cut to a bearable length.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

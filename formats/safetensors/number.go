package safetensors

import "math"

// number reads a number's text by JSON's grammar.
func (s *scanner) number(what, name string) (string, int64, error) {
	c, err := s.peek()
	if err != nil {
		return "", 0, err
	}
	if c != '-' && (c < '0' || c > '9') {
		return "", 0, s.errorf("%s where %s should be", show(c), label(what, name))
	}
	off := s.offset()
	s.tmp = s.tmp[:0]
	for {
		ok, err := s.more()
		if err != nil {
			return "", 0, err
		}
		if !ok {
			break
		}
		c := s.buf[s.pos]
		if (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			break
		}
		s.tmp = append(s.tmp, c)
		s.pos++
	}
	if !validNumber(s.tmp) {
		return "", 0, errorAt(off, "%s is not a JSON number", clip(string(s.tmp)))
	}
	return string(s.tmp), off, nil
}

func validNumber(b []byte) bool {
	digits := func() bool {
		n := 0
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			n++
		}
		b = b[n:]
		return n > 0
	}
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	if len(b) > 1 && b[0] == '0' && b[1] >= '0' && b[1] <= '9' {
		return false
	}
	if !digits() {
		return false
	}
	if len(b) > 0 && b[0] == '.' {
		b = b[1:]
		if !digits() {
			return false
		}
	}
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		b = b[1:]
		if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		if !digits() {
			return false
		}
	}
	return len(b) == 0
}

// count reads an integer from 0 to 2^63-1, exactly.
func (s *scanner) count(what, name string) (int64, error) {
	text, off, err := s.number(what, name)
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '-' {
			return 0, errorAt(off, "%s is negative: %s", label(what, name), clip(text))
		}
		if c < '0' || c > '9' {
			return 0, errorAt(off, "%s is not an integer: %s", label(what, name), clip(text))
		}
		d := int64(c - '0')
		if n > (math.MaxInt64-d)/10 {
			return 0, errorAt(off, "%s is over 2^63-1: %s", label(what, name), clip(text))
		}
		n = n*10 + d
	}
	return n, nil
}

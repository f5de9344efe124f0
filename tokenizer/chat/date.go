package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ardanlabs/jinja"
)

// directives are the parts of a date that strftime of C knows, as layouts of
// package time.
var directives = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'e': "_2", 'j': "002", 'm': "01", 'y': "06", 'Y': "2006",
	'H': "15", 'I': "03", 'M': "04", 'p': "PM", 'S': "05", 'f': "000000", 'Z': "MST", 'z': "-0700", 'D': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05",
	'R': "15:04", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

// strftime is strftime_now: the date in a form that the template wishes, in
// English.
func (s *state) strftime(args []jinja.Value, _ named) (jinja.Value, error) {
	if len(args) != 1 || !args[0].IsString() {
		return jinja.Undefined(), errors.New("strftime_now takes the form of a date")
	}
	var b strings.Builder
	text := args[0].AsString()
	for i := 0; i < len(text); i++ {
		if text[i] != '%' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		c, bare := text[i], false
		if c == '-' && i+1 < len(text) {
			i++
			c, bare = text[i], true
		}
		layout, ok := directives[c]
		switch {
		case c == '%':
			b.WriteByte('%')
			continue
		case !ok:
			return jinja.Undefined(), fmt.Errorf("strftime_now: %%%c is not known", c)
		}
		part := s.now.Format(layout)
		if c == 'f' {
			part = fmt.Sprintf("%06d", s.now.Nanosecond()/1000)
		}
		if bare {
			part = strings.TrimLeft(part, "0 ")
			if part == "" {
				part = "0"
			}
		}
		b.WriteString(part)
	}
	return jinja.NewString(b.String()), nil
}

package chat

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// jsonStyle is how json.dumps of Python was asked to write.
type jsonStyle struct {
	ascii, sorted, lines bool
	indent               string
	item, key            string // what stands between items, and behind a key
}

// toJSON is the filter tojson as transformers defines it: json.dumps with
// ensure_ascii false unless asked for.
func toJSON(args []jinja.Value, kw named) (jinja.Value, error) {
	if len(args) == 0 {
		return jinja.Undefined(), errors.New("tojson: no value")
	}
	given := map[string]jinja.Value{}
	for i, a := range args[1:] {
		if names := []string{"ensure_ascii", "indent", "separators", "sort_keys"}; i < len(names) {
			given[names[i]] = a
		}
	}
	for name, a := range kw {
		given[name] = a
	}
	style := jsonStyle{item: ", ", key: ": ", ascii: given["ensure_ascii"].IsTruthy(), sorted: given["sort_keys"].IsTruthy()}
	switch a := given["indent"]; {
	case a.IsUndefined(), a.IsNone():
	case a.IsString():
		style.lines, style.item, style.indent = true, ",", a.AsString()
	case a.IsInt() && a.AsInt() <= 64:
		style.lines, style.item, style.indent = true, ",", strings.Repeat(" ", int(max(a.AsInt(), 0)))
	default:
		return a, errors.New("tojson: indent is a number of spaces up to 64, or a text")
	}
	if a := given["separators"]; a.IsList() {
		if a.AsList().Len() != 2 {
			return a, errors.New("tojson: separators are two texts")
		}
		style.item, style.key = printedText(a.AsList().Get(0)), printedText(a.AsList().Get(1))
	}
	var b strings.Builder
	err := style.write(&b, args[0], 0)
	return jinja.NewString(b.String()), err
}

// write appends a value at a depth.
func (s *jsonStyle) write(b *strings.Builder, v jinja.Value, depth int) error {
	if depth > maxNested {
		return errors.New("tojson: values inside one another without end")
	}
	switch {
	case v.IsNone():
		b.WriteString("null")
	case v.IsBool():
		b.WriteString(strconv.FormatBool(v.AsBool()))
	case v.IsString():
		s.text(b, v.AsString())
	case v.IsInt():
		b.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		b.WriteString(pythonFloat(v.AsFloat()))
	case v.IsDict():
		return s.object(b, v.AsDict(), depth)
	case v.IsList():
		l := v.AsList()
		return s.group(b, '[', ']', l.Len(), depth, func(i int) error { return s.write(b, l.Get(i), depth+1) })
	case v.IsUndefined():
		return errors.New("tojson: the value is undefined")
	default:
		return errors.New("tojson: a function is no value")
	}
	return nil
}

func (s *jsonStyle) object(b *strings.Builder, d *jinja.Dict, depth int) error {
	keys := d.OrderedKeys()
	if s.sorted {
		slices.Sort(keys)
	}
	return s.group(b, '{', '}', len(keys), depth, func(i int) error {
		s.text(b, keys[i])
		b.WriteString(s.key)
		v, _ := d.Get(keys[i])
		return s.write(b, v, depth+1)
	})
}

// group writes n items between brackets, each on a line of its own where an
// indent was asked for.
func (s *jsonStyle) group(b *strings.Builder, open, end byte, n, depth int, item func(i int) error) error {
	b.WriteByte(open)
	for i := range n {
		if i > 0 {
			b.WriteString(s.item)
		}
		if s.lines {
			b.WriteString("\n" + strings.Repeat(s.indent, depth+1))
		}
		if err := item(i); err != nil {
			return err
		}
		if b.Len() > maxOutput {
			return fmt.Errorf("tojson: more than %d bytes", maxOutput)
		}
	}
	if s.lines && n > 0 {
		b.WriteString("\n" + strings.Repeat(s.indent, depth))
	}
	b.WriteByte(end)
	return nil
}

// text writes a string in quotes.
func (s *jsonStyle) text(b *strings.Builder, t string) {
	const short = "\b\f\n\r\t\"\\"
	const names = "bfnrt\"\\"
	b.WriteByte('"')
	for _, r := range t {
		switch at := strings.IndexRune(short, r); {
		case r < utf8.RuneSelf && at >= 0:
			b.WriteByte('\\')
			b.WriteByte(names[at])
		case r < ' ', s.ascii && r > '~' && r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		case s.ascii && r > '~':
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

// pythonFloat is repr of a float, as json.dumps writes it.
func pythonFloat(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	return floatRepr(v)
}

package chat

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// show is what {{ v }} prints: Python's str of a value, and nothing for what is
// undefined.
func show(args []jinja.Value, _ named) (jinja.Value, error) {
	if len(args) != 1 {
		return jinja.Undefined(), errors.New("an expression that is no single value")
	}
	return jinja.NewString(printedText(args[0])), nil
}

func printedText(v jinja.Value) string {
	switch {
	case v.IsUndefined():
		return ""
	case v.IsString():
		return v.AsString()
	}
	var b strings.Builder
	repr(&b, v, 0)
	return b.String()
}

// repr appends Python's repr of a value.
func repr(b *strings.Builder, v jinja.Value, depth int) {
	switch {
	case depth > maxNested:
		b.WriteString("...")
	case v.IsString():
		quoted(b, v.AsString())
	case v.IsFloat():
		b.WriteString(floatRepr(v.AsFloat()))
	case v.IsList():
		b.WriteByte('[')
		for i, x := range v.AsList().Items {
			if i > 0 {
				b.WriteString(", ")
			}
			repr(b, x, depth+1)
		}
		b.WriteByte(']')
	case v.IsDict():
		b.WriteByte('{')
		for i, k := range v.AsDict().OrderedKeys() {
			if i > 0 {
				b.WriteString(", ")
			}
			quoted(b, k)
			b.WriteString(": ")
			x, _ := v.AsDict().Get(k)
			repr(b, x, depth+1)
		}
		b.WriteByte('}')
	case v.IsCallable():
	default:
		b.WriteString(v.String())
	}
}

// quoted appends Python's repr of a text.
func quoted(b *strings.Builder, s string) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteByte(quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case strconv.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteByte(quote)
}

// floatRepr is Python's repr of a float.
func floatRepr(v float64) string {
	switch {
	case math.IsNaN(v):
		return "nan"
	case math.IsInf(v, 1):
		return "inf"
	case math.IsInf(v, -1):
		return "-inf"
	}
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

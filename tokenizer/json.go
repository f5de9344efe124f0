package tokenizer

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// maxJSONDepth bounds nesting; real tokenizer files stay below 20.
const maxJSONDepth = 200

// A jsonReader walks a JSON document in place. Unlike encoding/json it refuses
// invalid UTF-8 and lone surrogates instead of replacing them, since a token's
// bytes must not change on the way, it keeps the order of keys, and it can take
// the bare Infinity and NaN that Python writes into config files.
type jsonReader struct {
	data  []byte
	pos   int
	name  string // file name for messages
	loose bool   // accept Infinity, -Infinity, NaN
	depth int
}

func newJSONReader(name string, data []byte, loose bool) (*jsonReader, error) {
	if i := firstInvalidUTF8(data); i >= 0 {
		r := &jsonReader{data: data, pos: i, name: name}
		return nil, r.errorf("invalid UTF-8")
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		r := &jsonReader{data: data, name: name}
		return nil, r.errorf("byte order mark before the JSON text")
	}
	return &jsonReader{data: data, name: name, loose: loose}, nil
}

func firstInvalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// errorf reports a position as line:column, both from 1, columns in bytes.
func (r *jsonReader) errorf(format string, args ...any) error {
	return r.errorAt(r.pos, format, args...)
}

func (r *jsonReader) errorAt(pos int, format string, args ...any) error {
	if pos > len(r.data) {
		pos = len(r.data)
	}
	line := 1 + bytes.Count(r.data[:pos], []byte{'\n'})
	col := pos - bytes.LastIndexByte(r.data[:pos], '\n')
	return fmt.Errorf("%s:%d:%d: %s: %w", r.name, line, col, fmt.Sprintf(format, args...), ErrFormat)
}

func (r *jsonReader) space() {
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return
		}
	}
}

// peek returns the first byte of the next value, 0 at the end.
func (r *jsonReader) peek() byte {
	r.space()
	if r.pos >= len(r.data) {
		return 0
	}
	return r.data[r.pos]
}

func (r *jsonReader) expect(c byte) error {
	if r.peek() != c {
		return r.errorf("want %q", c)
	}
	r.pos++
	return nil
}

func (r *jsonReader) enter() error {
	if r.depth++; r.depth > maxJSONDepth {
		return r.errorf("nested deeper than %d", maxJSONDepth)
	}
	return nil
}

// object calls fn for every key, positioned before its value, which fn must
// consume. A key that occurs twice reaches fn twice.
func (r *jsonReader) object(fn func(key string) error) error {
	if err := r.expect('{'); err != nil {
		return err
	}
	if err := r.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		switch c := r.peek(); {
		case c == '}' && first:
			r.pos++
			r.depth--
			return nil
		case !first && c == '}':
			r.pos++
			r.depth--
			return nil
		case !first:
			if err := r.expect(','); err != nil {
				return err
			}
		}
		key, err := r.str()
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		if err := fn(key); err != nil {
			return err
		}
	}
}

// array calls fn for every element, positioned before it.
func (r *jsonReader) array(fn func(i int) error) error {
	if err := r.expect('['); err != nil {
		return err
	}
	if err := r.enter(); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if c := r.peek(); c == ']' {
			r.pos++
			r.depth--
			return nil
		} else if i > 0 {
			if err := r.expect(','); err != nil {
				return err
			}
		}
		if err := fn(i); err != nil {
			return err
		}
	}
}

// str reads a string. Escaped surrogates must come in pairs.
func (r *jsonReader) str() (string, error) {
	if err := r.expect('"'); err != nil {
		return "", err
	}
	start := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			r.pos++
			return string(r.data[start : r.pos-1]), nil
		case c < 0x20:
			return "", r.errorf("control character in a string")
		case c == '\\':
			return r.escaped(start)
		}
		r.pos++
	}
	return "", r.errorf("unfinished string")
}

// escaped continues str at the first backslash.
func (r *jsonReader) escaped(start int) (string, error) {
	out := append([]byte(nil), r.data[start:r.pos]...)
	for r.pos < len(r.data) {
		c := r.data[r.pos]
		switch {
		case c == '"':
			r.pos++
			return string(out), nil
		case c < 0x20:
			return "", r.errorf("control character in a string")
		case c != '\\':
			out = append(out, c)
			r.pos++
			continue
		}
		if r.pos+1 >= len(r.data) {
			break
		}
		e := r.data[r.pos+1]
		if i := bytes.IndexByte([]byte(`"\/bfnrt`), e); i >= 0 {
			out = append(out, "\"\\/\b\f\n\r\t"[i])
			r.pos += 2
			continue
		}
		if e != 'u' {
			return "", r.errorf("unknown escape \\%c", e)
		}
		u, err := r.unit()
		if err != nil {
			return "", err
		}
		if u >= 0xDC00 && u < 0xE000 {
			return "", r.errorf("lone surrogate \\u%04x", u)
		}
		if u >= 0xD800 && u < 0xDC00 {
			low := rune(0)
			if r.pos+1 < len(r.data) && r.data[r.pos] == '\\' && r.data[r.pos+1] == 'u' {
				if low, err = r.unit(); err != nil {
					return "", err
				}
			}
			if low < 0xDC00 || low >= 0xE000 {
				return "", r.errorf("lone surrogate \\u%04x", u)
			}
			u = 0x10000 + (u-0xD800)<<10 + (low - 0xDC00)
		}
		out = utf8.AppendRune(out, u)
	}
	return "", r.errorf("unfinished string")
}

// unit reads one \uXXXX.
func (r *jsonReader) unit() (rune, error) {
	if r.pos+6 > len(r.data) {
		return 0, r.errorf("unfinished escape")
	}
	v := rune(0)
	for _, c := range r.data[r.pos+2 : r.pos+6] {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			v = v<<4 | rune(c-'A'+10)
		default:
			return 0, r.errorf("bad hexadecimal digit %q in an escape", c)
		}
	}
	r.pos += 6
	return v, nil
}

// number returns the literal as written.
func (r *jsonReader) number() (jsonNumber, error) {
	start := r.pos
	if r.pos < len(r.data) && r.data[r.pos] == '-' {
		r.pos++
	}
	digits := func() int {
		n := 0
		for r.pos < len(r.data) && r.data[r.pos] >= '0' && r.data[r.pos] <= '9' {
			r.pos++
			n++
		}
		return n
	}
	zero := r.pos < len(r.data) && r.data[r.pos] == '0'
	n := digits()
	if n == 0 || zero && n > 1 {
		return "", r.errorAt(start, "bad number")
	}
	if r.pos < len(r.data) && r.data[r.pos] == '.' {
		if r.pos++; digits() == 0 {
			return "", r.errorAt(start, "bad number")
		}
	}
	if r.pos < len(r.data) && (r.data[r.pos] == 'e' || r.data[r.pos] == 'E') {
		r.pos++
		if r.pos < len(r.data) && (r.data[r.pos] == '+' || r.data[r.pos] == '-') {
			r.pos++
		}
		if digits() == 0 {
			return "", r.errorAt(start, "bad number")
		}
	}
	return jsonNumber(r.data[start:r.pos]), nil
}

func (r *jsonReader) word(w string) bool {
	if bytes.HasPrefix(r.data[r.pos:], []byte(w)) {
		r.pos += len(w)
		return true
	}
	return false
}

// value reads any value: nil, bool, string, jsonNumber, float64 (only for the
// loose words), []any or *jsonObject.
func (r *jsonReader) value() (any, error) {
	switch c := r.peek(); {
	case c == '{':
		obj := &jsonObject{vals: map[string]any{}}
		err := r.object(func(key string) error {
			v, err := r.value()
			if err == nil {
				obj.set(key, v)
			}
			return err
		})
		return obj, err
	case c == '[':
		list := []any{}
		err := r.array(func(int) error {
			v, err := r.value()
			list = append(list, v)
			return err
		})
		return list, err
	case c == '"':
		return r.str()
	case c == 't' && r.word("true"):
		return true, nil
	case c == 'f' && r.word("false"):
		return false, nil
	case c == 'n' && r.word("null"):
		return nil, nil
	case r.loose && c == 'I' && r.word("Infinity"):
		return math.Inf(1), nil
	case r.loose && c == '-' && r.word("-Infinity"):
		return math.Inf(-1), nil
	case r.loose && c == 'N' && r.word("NaN"):
		return math.NaN(), nil
	case c == '-' || c >= '0' && c <= '9':
		return r.number()
	case c == 0:
		return nil, r.errorf("unexpected end")
	}
	return nil, r.errorf("unexpected %q", r.data[r.pos])
}

// end makes sure that nothing follows.
func (r *jsonReader) end() error {
	if r.peek() != 0 || r.pos < len(r.data) {
		return r.errorf("text after the JSON value")
	}
	return nil
}

// jsonNumber is a number as written in the file.
type jsonNumber string

// integer reports the value of a number without fraction and exponent, which
// is what Python makes an int.
func (n jsonNumber) integer() (int64, bool) {
	v, err := strconv.ParseInt(string(n), 10, 64)
	return v, err == nil
}

func (n jsonNumber) float() (float64, bool) {
	v, err := strconv.ParseFloat(string(n), 64)
	return v, err == nil
}

// jsonObject keeps the order of first insertion and the last value, as a
// Python dict does. All methods work on nil.
type jsonObject struct {
	keys []string
	vals map[string]any
	dups []string
}

func (o *jsonObject) set(key string, v any) {
	if _, ok := o.vals[key]; ok {
		o.dups = append(o.dups, key)
	} else {
		o.keys = append(o.keys, key)
	}
	o.vals[key] = v
}

// get returns the value, nil when absent or null.
func (o *jsonObject) get(key string) any {
	if o == nil {
		return nil
	}
	return o.vals[key]
}

func (o *jsonObject) has(key string) bool {
	if o == nil {
		return false
	}
	_, ok := o.vals[key]
	return ok
}

func (o *jsonObject) str(key string) (string, bool) {
	s, ok := o.get(key).(string)
	return s, ok
}

func (o *jsonObject) boolean(key string) (value, ok bool) {
	b, ok := o.get(key).(bool)
	return b, ok
}

func (o *jsonObject) object(key string) *jsonObject {
	v, _ := o.get(key).(*jsonObject)
	return v
}

func (o *jsonObject) list(key string) []any {
	v, _ := o.get(key).([]any)
	return v
}

func (o *jsonObject) integer(key string) (int64, bool) {
	n, ok := o.get(key).(jsonNumber)
	if !ok {
		return 0, false
	}
	return n.integer()
}

// parseObject reads a whole document that must be an object.
func parseObject(name string, data []byte, loose bool) (*jsonObject, error) {
	r, err := newJSONReader(name, data, loose)
	if err != nil {
		return nil, err
	}
	if r.peek() != '{' {
		return nil, r.errorf("want an object")
	}
	v, err := r.value()
	if err != nil {
		return nil, err
	}
	return v.(*jsonObject), r.end()
}

// truthy follows Python: what `if value:` does.
func truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case jsonNumber:
		f, ok := v.float()
		return !ok || f != 0
	case []any:
		return len(v) > 0
	case *jsonObject:
		return len(v.keys) > 0
	}
	return true
}

// nonEmpty is the truth of a Python dict or None.
func (o *jsonObject) nonEmpty() bool { return o != nil && len(o.keys) > 0 }

// clone copies the top level.
func (o *jsonObject) clone() *jsonObject {
	if o == nil {
		return nil
	}
	c := &jsonObject{keys: append([]string(nil), o.keys...), vals: make(map[string]any, len(o.vals))}
	for k, v := range o.vals {
		c.vals[k] = v
	}
	return c
}

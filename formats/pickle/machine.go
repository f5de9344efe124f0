package pickle

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"quern/tensor"
)

const (
	// maxOps bounds the opcodes of a pickle and with them everything that it can
	// build.
	maxOps = 4 << 20
	// maxStack bounds the values that wait on the stack.
	maxStack = 1 << 20
)

// mark is what MARK leaves on the stack.
type mark struct{}

// global is a name that a pickle has asked for.
type global string

// machine runs a pickle.
type machine struct {
	r     *reader
	name  string
	stack []any
	memo  map[uint64]any
	spent int64 // bytes decoded from text
	// storage resolves a persistent id, nil where there are none.
	storage func(id any) (any, error)
}

// run reads one pickle up to its stop opcode.
func run(ctx context.Context, name string, blob tensor.Blob, storage func(any) (any, error)) (any, int64, error) {
	m := &machine{r: &reader{ctx: ctx, blob: blob}, name: name, memo: map[uint64]any{}, storage: storage}
	for range maxOps {
		at := m.r.pos
		op, err := m.r.byte()
		if err == nil && op == '.' {
			v, err := m.pop()
			if err == nil && len(m.stack) != 0 {
				err = fmt.Errorf("%w: %d values are left at the stop opcode", ErrFormat, len(m.stack))
			}
			if err == nil {
				err = finished(v)
			}
			if err != nil {
				return nil, 0, &ReadError{name, at, err}
			}
			return v, m.r.pos, nil
		}
		if err == nil {
			err = m.do(op)
		}
		if err == nil && len(m.stack) > maxStack {
			err = fmt.Errorf("%w: %d values wait on the stack", ErrLimit, len(m.stack))
		}
		if err != nil {
			return nil, 0, &ReadError{name, at, err}
		}
	}
	return nil, 0, &ReadError{name, m.r.pos, fmt.Errorf("%w: over %d opcodes", ErrLimit, maxOps)}
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

func (m *machine) pop() (any, error) {
	n := len(m.stack)
	if n == 0 {
		return nil, fmt.Errorf("%w: the stack is empty", ErrFormat)
	}
	v := m.stack[n-1]
	m.stack = m.stack[:n-1]
	if _, bad := v.(mark); bad {
		return nil, fmt.Errorf("%w: a mark where a value is wanted", ErrFormat)
	}
	return v, nil
}

func (m *machine) top() (any, error) {
	v, err := m.pop()
	if err == nil {
		m.push(v)
	}
	return v, err
}

// popMark takes everything down to the last mark.
func (m *machine) popMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if _, ok := m.stack[i].(mark); ok {
			items := append([]any(nil), m.stack[i+1:]...)
			m.stack = m.stack[:i]
			return items, nil
		}
	}
	return nil, fmt.Errorf("%w: there is no mark on the stack", ErrFormat)
}

// refused are opcodes that build what is no data, with what they would do.
var refused = map[byte]string{
	'P': "PERSID names an outside object", 'i': "INST makes an object of a class", 'o': "OBJ makes an object of a class", 'S': "STRING is of protocol 0; save with protocol 2 or later",
	0x82: "EXT1 names a registered object", 0x83: "EXT2 names a registered object", 0x84: "EXT4 names a registered object",
	0x8f: "EMPTY_SET: sets are not read", 0x90: "ADDITEMS: sets are not read", 0x91: "FROZENSET: sets are not read",
	0x92: "NEWOBJ_EX makes an object of a class", 0x97: "NEXT_BUFFER: data outside of the pickle", 0x98: "READONLY_BUFFER: data outside of the pickle",
}

// do runs one opcode.
func (m *machine) do(op byte) error {
	if why, ok := refused[op]; ok {
		return fmt.Errorf("%w: %s", ErrRefused, why)
	}
	if known, err := m.number(op); known || err != nil {
		return err
	}
	if known, err := m.text(op); known || err != nil {
		return err
	}
	if known, err := m.container(op); known || err != nil {
		return err
	}
	if known, err := m.memory(op); known || err != nil {
		return err
	}
	return m.call(op)
}

// number runs opcodes of numbers and constants.
func (m *machine) number(op byte) (bool, error) {
	sized := func(n int64, f func(uint64) any) (bool, error) {
		v, err := m.r.uint(n)
		if err == nil {
			m.push(f(v))
		}
		return true, err
	}
	switch op {
	case 'N':
		m.push(nil)
	case 0x88:
		m.push(true)
	case 0x89:
		m.push(false)
	case 'J':
		return sized(4, func(v uint64) any { return int64(int32(v)) })
	case 'K':
		return sized(1, func(v uint64) any { return int64(v) })
	case 'M':
		return sized(2, func(v uint64) any { return int64(v) })
	case 'G':
		b, err := m.r.need(8)
		if err != nil {
			return true, err
		}
		m.push(math.Float64frombits(be.Uint64(b)))
		m.r.pos += 8
	case 0x8a, 0x8b:
		return true, m.long(op)
	case 'I', 'L', 'F':
		s, err := m.r.line()
		if err != nil {
			return true, err
		}
		return true, m.written(op, s)
	default:
		return false, nil
	}
	return true, nil
}

// long reads a whole number of any length, of which 64 bits are kept.
func (m *machine) long(op byte) error {
	size := int64(1)
	if op == 0x8b {
		size = 4
	}
	n, err := m.r.uint(size)
	if err != nil {
		return err
	}
	if n > 8 {
		return fmt.Errorf("%w: a whole number of %d bytes, 8 are read", ErrLimit, n)
	}
	v, err := m.r.uint(int64(n))
	if err != nil {
		return err
	}
	if n > 0 && n < 8 {
		v = uint64(int64(v<<(64-8*n)) >> (64 - 8*n))
	}
	m.push(int64(v))
	return nil
}

// written reads a number in digits.
func (m *machine) written(op byte, s string) error {
	switch {
	case op == 'I' && s == "00":
		m.push(false)
		return nil
	case op == 'I' && s == "01":
		m.push(true)
		return nil
	case op == 'F':
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return fmt.Errorf("%w: %q is no number", ErrFormat, s)
		}
		m.push(f)
		return nil
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(s, "L"), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %q is no whole number of 64 bits", ErrFormat, s)
	}
	m.push(n)
	return nil
}

// text runs opcodes of strings and bytes.
func (m *machine) text(op byte) (bool, error) {
	sizes := map[byte]int64{'T': 4, 'U': 1, 'X': 4, 0x8c: 1, 0x8d: 8, 'B': 4, 'C': 1, 0x8e: 8, 0x96: 8}
	if op == 'V' {
		s, err := m.r.line()
		if err == nil && (strings.Contains(s, `\`) || !utf8.ValidString(s)) {
			err = fmt.Errorf("%w: UNICODE with escapes, of protocol 0; save with protocol 2 or later", ErrRefused)
		}
		m.push(s)
		return true, err
	}
	size, ok := sizes[op]
	if !ok {
		return false, nil
	}
	n, err := m.r.uint(size)
	if err != nil {
		return true, err
	}
	switch op {
	case 'B', 'C', 0x8e, 0x96:
		b, err := m.r.bytes(n)
		m.push(b)
		return true, err
	case 'X', 0x8c, 0x8d:
		if n > maxText {
			// Bytes of protocol 2, written as text: they are pointed to.
			b, err := m.r.bytes(n)
			m.push(longText(b))
			return true, err
		}
	}
	b, err := m.r.text(n)
	if err != nil {
		return true, err
	}
	s := string(b)
	if op == 'T' || op == 'U' { // bytes of Python 2
		s = latin1(b)
	} else if !utf8.Valid(b) {
		return true, fmt.Errorf("%w: a string that is not UTF-8", ErrFormat)
	}
	m.push(s)
	return true, nil
}

// longText is a string that is left in the file.
type longText Bytes

func latin1(b []byte) string {
	r := make([]rune, len(b))
	for i, c := range b {
		r[i] = rune(c)
	}
	return string(r)
}

// container runs opcodes of lists, tuples and dicts.
func (m *machine) container(op byte) (bool, error) {
	switch op {
	case '(':
		m.push(mark{})
	case ']':
		m.push(&List{})
	case '}':
		m.push(&Dict{})
	case ')':
		m.push(Tuple{})
	case 't', 'l', 'd':
		items, err := m.popMark()
		if err != nil {
			return true, err
		}
		switch op {
		case 't':
			m.push(Tuple(items))
		case 'l':
			m.push(&List{items})
		default:
			d := &Dict{}
			m.push(d)
			return true, d.fill(items)
		}
	case 0x85, 0x86, 0x87:
		n := int(op) - 0x84
		t := make(Tuple, n)
		for i := n - 1; i >= 0; i-- {
			v, err := m.pop()
			if err != nil {
				return true, err
			}
			t[i] = v
		}
		m.push(t)
	case 'a', 'e', 's', 'u':
		return true, m.fill(op)
	default:
		return false, nil
	}
	return true, nil
}

// fill adds to the list or dict below.
func (m *machine) fill(op byte) error {
	var items []any
	var err error
	switch op {
	case 'e', 'u':
		items, err = m.popMark()
	case 'a':
		items = make([]any, 1)
		items[0], err = m.pop()
	case 's':
		items = make([]any, 2)
		if items[1], err = m.pop(); err == nil {
			items[0], err = m.pop()
		}
	}
	if err != nil {
		return err
	}
	at, err := m.top()
	if err != nil {
		return err
	}
	switch at := at.(type) {
	case *List:
		if op == 'a' || op == 'e' {
			at.Items = append(at.Items, items...)
			return nil
		}
	case *Dict:
		if op == 's' || op == 'u' {
			return at.fill(items)
		}
	}
	return fmt.Errorf("%w: items for what is neither list nor dict", ErrFormat)
}

func (d *Dict) fill(items []any) error {
	if len(items)%2 != 0 {
		return fmt.Errorf("%w: a key without a value", ErrFormat)
	}
	for i := 0; i < len(items); i += 2 {
		switch k := items[i].(type) {
		case string:
			d.set(k, items[i+1])
		case int64:
			d.set(strconv.FormatInt(k, 10), items[i+1])
		default:
			return fmt.Errorf("%w: a dict key that is no string", ErrRefused)
		}
	}
	return nil
}

// memory runs opcodes of the memo, and those that move values only.
func (m *machine) memory(op byte) (bool, error) {
	var id uint64
	var err error
	switch op {
	case '0':
		// A mark may be popped too.
		if len(m.stack) == 0 {
			return true, fmt.Errorf("%w: the stack is empty", ErrFormat)
		}
		m.stack = m.stack[:len(m.stack)-1]
		return true, nil
	case '1':
		_, err := m.popMark()
		return true, err
	case '2':
		v, err := m.top()
		m.push(v)
		return true, err
	case 0x80:
		v, err := m.r.byte()
		if err == nil && v > 5 {
			err = fmt.Errorf("%w: protocol %d; 2 to 5 are read", ErrRefused, v)
		}
		return true, err
	case 0x95:
		n, err := m.r.uint(8)
		if err == nil && n > uint64(m.r.blob.Size()-m.r.pos) {
			err = fmt.Errorf("%w: a frame of %d bytes, %d are left", ErrTruncated, n, m.r.blob.Size()-m.r.pos)
		}
		return true, err
	case 0x94:
		v, err := m.top()
		m.memo[uint64(len(m.memo))] = v
		return true, err
	case 'p', 'g':
		s, lineErr := m.r.line()
		if id, err = strconv.ParseUint(s, 10, 32); lineErr == nil && err != nil {
			err = fmt.Errorf("%w: memo %q", ErrFormat, s)
		} else if lineErr != nil {
			err = lineErr
		}
	case 'q', 'h':
		id, err = m.r.uint(1)
	case 'r', 'j':
		id, err = m.r.uint(4)
	default:
		return false, nil
	}
	if err != nil {
		return true, err
	}
	if op == 'p' || op == 'q' || op == 'r' {
		v, err := m.top()
		m.memo[id] = v
		return true, err
	}
	v, ok := m.memo[id]
	if !ok {
		return true, fmt.Errorf("%w: memo %d was never set", ErrFormat, id)
	}
	m.push(v)
	return true, nil
}

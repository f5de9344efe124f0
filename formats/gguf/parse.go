package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// parser reads the fields of a header in order. Its errors carry the file, the
// offset of the field and the field's name.
type parser struct {
	*window
	name string // of the file
	pos  int64  // of the next field

	// Where the parser is: composed into a field name only for errors.
	part  string // "key-value pair", "tensor"
	index int64
	id    string // key or tensor name, once known

	alignAt int64 // where the type of general.alignment stands
}

// fail makes the error of a field that starts at off.
func (p *parser) fail(off int64, field string, err error) error {
	var done *ReadError
	if errors.As(err, &done) {
		return err
	}
	if p.part != "" {
		at := fmt.Sprintf("%s %d", p.part, p.index)
		if p.id != "" {
			at += " " + clip(p.id)
		}
		field = at + ": " + field
	}
	return &ReadError{File: p.name, Offset: off, Field: field, Err: err}
}

func (p *parser) failf(off int64, field, format string, args ...any) error {
	return p.fail(off, field, fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...))
}

// take gives the next n bytes; they hold until the next take.
func (p *parser) take(n int64, field string) ([]byte, error) {
	b, err := p.at(p.pos, n)
	if err != nil {
		return nil, p.fail(p.pos, field, err)
	}
	p.pos += n
	return b, nil
}

func (p *parser) u32(field string) (uint32, error) {
	b, err := p.take(4, field)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (p *parser) u64(field string) (uint64, error) {
	b, err := p.take(8, field)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// length reads a u64 that counts bytes of a string.
func (p *parser) length(field string) (int64, error) {
	off := p.pos
	n, err := p.u64(field)
	if err != nil {
		return 0, err
	}
	if n > maxStringBytes {
		return 0, p.failf(off, field, "a string of %d bytes, at most %d are allowed", n, maxStringBytes)
	}
	return int64(n), nil
}

func (p *parser) str(field string) (string, error) {
	n, err := p.length(field)
	if err != nil {
		return "", err
	}
	b, err := p.take(n, field)
	return string(b), err
}

// count reads the number of pairs or tensors and holds it against the bytes
// left, each of which takes at least least bytes.
func (p *parser) count(field string, least int64) (int64, error) {
	off := p.pos
	u, err := p.u64(field)
	if err != nil {
		return 0, err
	}
	n := int64(u)
	if n < 0 || n > (p.size-p.pos)/least {
		return 0, p.failf(off, field, "%d of them cannot fit into a file of %d bytes", n, p.size)
	}
	return n, nil
}

// pairs reads n key-value pairs.
func (p *parser) pairs(n int64) (*Metadata, error) {
	m := &Metadata{}
	p.part = "key-value pair"
	for p.index = 0; p.index < n; p.index++ {
		p.id = ""
		off := p.pos
		key, err := p.str("key")
		if err != nil {
			return nil, err
		}
		if key == "" {
			return nil, p.failf(off, "key", "it is empty")
		}
		p.id = key
		if m.Has(key) {
			return nil, p.fail(off, "key", fmt.Errorf("%w: %w", ErrFormat, ErrDuplicate))
		}
		if key == KeyAlignment {
			p.alignAt = p.pos
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		m.add(key, v)
	}
	p.part, p.id = "", ""
	return m, nil
}

func (p *parser) value() (Value, error) {
	off := p.pos
	t, err := p.u32("value type")
	if err != nil {
		return Value{}, err
	}
	typ := ValueType(int32(t))
	switch {
	case !typ.valid():
		return Value{}, p.failf(off, "value type", "%d is not one of 0 to 12", int32(t))
	case typ == String:
		s, err := p.str("value")
		return Scalar(s), err
	case typ == Array:
		return p.array()
	}
	b, err := p.take(valueTypes[typ].size, "value")
	if err != nil {
		return Value{}, err
	}
	return scalarOf(typ, b), nil
}

func (p *parser) array() (Value, error) {
	off := p.pos
	t, err := p.u32("array element type")
	if err != nil {
		return Value{}, err
	}
	typ := ValueType(int32(t))
	if typ == Array {
		return Value{}, p.failf(off, "array element type", "arrays of arrays are not part of what llama.cpp reads")
	}
	if !typ.valid() {
		return Value{}, p.failf(off, "array element type", "%d is not one of 0 to 12", int32(t))
	}
	off = p.pos
	u, err := p.u64("array length")
	if err != nil {
		return Value{}, err
	}
	size := valueTypes[typ].size
	if typ == String {
		size = 8
	}
	if u > maxArrayLen {
		return Value{}, p.failf(off, "array length", "%d elements, at most %d are allowed", u, maxArrayLen)
	}
	n := int64(u)
	if n > (p.size-p.pos)/size {
		return Value{}, p.fail(off, "array length", fmt.Errorf("%w: %d elements of %s need %d bytes or more, the file has %d left",
			ErrTruncated, n, typ, n*size, p.size-p.pos))
	}
	if typ == String {
		return p.strings(n)
	}
	b, err := p.take(n*size, "array elements")
	if err != nil {
		return Value{}, err
	}
	return listOf(typ, b), nil
}

// strings reads an array of n strings in two walks: the first sees that they
// are all there, so that the second can share one allocation between them.
func (p *parser) strings(n int64) (Value, error) {
	start, total := p.pos, int64(0)
	for i := range n {
		off := p.pos
		k, err := p.length("array element length")
		if err == nil {
			_, err = p.at(p.pos, k)
		}
		if err != nil {
			return Value{}, p.fail(off, fmt.Sprintf("array element %d of %d", i, n), err)
		}
		p.pos += k
		total += k
	}
	region, err := p.at(start, p.pos-start)
	if err != nil {
		return Value{}, p.fail(start, "array elements", err)
	}
	text := make([]byte, 0, total)
	for at := int64(0); at < int64(len(region)); {
		k := int64(binary.LittleEndian.Uint64(region[at:]))
		text = append(text, region[at+8:at+8+k]...)
		at += 8 + k
	}
	all, out := string(text), make([]string, n)
	at, from := int64(0), int64(0)
	for i := range out {
		k := int64(binary.LittleEndian.Uint64(region[at:]))
		out[i] = all[from : from+k]
		at, from = at+8+k, from+k
	}
	return List(out), nil
}

// scalarOf decodes a scalar of fixed size. Any byte but 0 is true.
func scalarOf(t ValueType, b []byte) Value {
	le := binary.LittleEndian
	switch t {
	case Uint8:
		return Scalar(b[0])
	case Int8:
		return Scalar(int8(b[0]))
	case Uint16:
		return Scalar(le.Uint16(b))
	case Int16:
		return Scalar(int16(le.Uint16(b)))
	case Uint32:
		return Scalar(le.Uint32(b))
	case Int32:
		return Scalar(int32(le.Uint32(b)))
	case Float32:
		return Scalar(math.Float32frombits(le.Uint32(b)))
	case Bool:
		return Scalar(b[0] != 0)
	case Uint64:
		return Scalar(le.Uint64(b))
	case Int64:
		return Scalar(int64(le.Uint64(b)))
	default:
		return Scalar(math.Float64frombits(le.Uint64(b)))
	}
}

// listOf decodes the elements of an array of fixed-size elements.
func listOf(t ValueType, b []byte) Value {
	le := binary.LittleEndian
	switch t {
	case Uint8:
		return list(b, 1, func(b []byte) uint8 { return b[0] })
	case Int8:
		return list(b, 1, func(b []byte) int8 { return int8(b[0]) })
	case Uint16:
		return list(b, 2, le.Uint16)
	case Int16:
		return list(b, 2, func(b []byte) int16 { return int16(le.Uint16(b)) })
	case Uint32:
		return list(b, 4, le.Uint32)
	case Int32:
		return list(b, 4, func(b []byte) int32 { return int32(le.Uint32(b)) })
	case Float32:
		return list(b, 4, func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) })
	case Bool:
		return list(b, 1, func(b []byte) bool { return b[0] != 0 })
	case Uint64:
		return list(b, 8, le.Uint64)
	case Int64:
		return list(b, 8, func(b []byte) int64 { return int64(le.Uint64(b)) })
	default:
		return list(b, 8, func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) })
	}
}

func list[T Element](b []byte, size int, get func([]byte) T) Value {
	out := make([]T, len(b)/size)
	for i := range out {
		out[i] = get(b[i*size:])
	}
	return List(out)
}

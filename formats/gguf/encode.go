package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// valueBytes is the size of a value as it stands in a file, without its type
// code.
func valueBytes(v Value) int64 {
	switch x := v.v.(type) {
	case string:
		return 8 + int64(len(x))
	case []string:
		n := int64(4 + 8)
		for _, s := range x {
			n += 8 + int64(len(s))
		}
		return n
	}
	if v.IsArray() {
		return 4 + 8 + int64(v.Len())*valueTypes[v.elem].size
	}
	return valueTypes[v.typ].size
}

func metadataBytes(m *Metadata) int64 {
	n := int64(0)
	for key, v := range m.All() {
		n += 8 + int64(len(key)) + 4 + valueBytes(v)
	}
	return n
}

// checkPair holds an entry against the limits that readers have.
func checkPair(key string, v Value) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: a key is empty", ErrWrite)
	case strings.ContainsRune(key, 0):
		return fmt.Errorf("%w: key %s holds a NUL byte", ErrWrite, clip(key))
	case !v.Valid():
		return fmt.Errorf("%w: key %s has no value", ErrWrite, key)
	case v.IsArray() && v.Len() > maxArrayLen:
		return fmt.Errorf("%w: key %s: %d elements, at most %d are allowed", ErrWrite, key, v.Len(), maxArrayLen)
	}
	switch x := v.v.(type) {
	case string:
		if len(x) > maxStringBytes {
			return fmt.Errorf("%w: key %s: a string of %d bytes, at most %d are allowed", ErrWrite, key, len(x), maxStringBytes)
		}
	case []string:
		for i, s := range x {
			if len(s) > maxStringBytes {
				return fmt.Errorf("%w: key %s: element %d has %d bytes, at most %d are allowed", ErrWrite, key, i, len(s), maxStringBytes)
			}
		}
	}
	return nil
}

// Numbers are written byte by byte from the low one, whatever the machine.
var le = binary.LittleEndian

func appendString(b []byte, s string) []byte {
	return append(le.AppendUint64(b, uint64(len(s))), s...)
}

func appendPair(b []byte, key string, v Value) []byte {
	b = appendString(b, key)
	b = le.AppendUint32(b, uint32(v.typ))
	return appendValue(b, v)
}

func appendValue(b []byte, v Value) []byte {
	if v.IsArray() {
		b = le.AppendUint32(b, uint32(v.elem))
		b = le.AppendUint64(b, uint64(v.Len()))
	}
	switch x := v.v.(type) {
	case uint8:
		return append(b, x)
	case int8:
		return append(b, uint8(x))
	case uint16:
		return le.AppendUint16(b, x)
	case int16:
		return le.AppendUint16(b, uint16(x))
	case uint32:
		return le.AppendUint32(b, x)
	case int32:
		return le.AppendUint32(b, uint32(x))
	case uint64:
		return le.AppendUint64(b, x)
	case int64:
		return le.AppendUint64(b, uint64(x))
	case float32:
		return le.AppendUint32(b, math.Float32bits(x))
	case float64:
		return le.AppendUint64(b, math.Float64bits(x))
	case bool:
		return append(b, boolByte(x))
	case string:
		return appendString(b, x)
	case []uint8:
		return append(b, x...)
	case []int8:
		return appendAll(b, x, func(b []byte, e int8) []byte { return append(b, uint8(e)) })
	case []uint16:
		return appendAll(b, x, le.AppendUint16)
	case []int16:
		return appendAll(b, x, func(b []byte, e int16) []byte { return le.AppendUint16(b, uint16(e)) })
	case []uint32:
		return appendAll(b, x, le.AppendUint32)
	case []int32:
		return appendAll(b, x, func(b []byte, e int32) []byte { return le.AppendUint32(b, uint32(e)) })
	case []uint64:
		return appendAll(b, x, le.AppendUint64)
	case []int64:
		return appendAll(b, x, func(b []byte, e int64) []byte { return le.AppendUint64(b, uint64(e)) })
	case []float32:
		return appendAll(b, x, func(b []byte, e float32) []byte { return le.AppendUint32(b, math.Float32bits(e)) })
	case []float64:
		return appendAll(b, x, func(b []byte, e float64) []byte { return le.AppendUint64(b, math.Float64bits(e)) })
	case []bool:
		return appendAll(b, x, func(b []byte, e bool) []byte { return append(b, boolByte(e)) })
	case []string:
		return appendAll(b, x, appendString)
	}
	return b
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func appendAll[T Element](b []byte, list []T, add func([]byte, T) []byte) []byte {
	for _, e := range list {
		b = add(b, e)
	}
	return b
}

package gguf

import (
	"fmt"
	"math"
	"strconv"
)

// ValueType is the type code of a metadata value, as it stands in files.
type ValueType int32

// The type codes of GGUF.
const (
	Uint8   ValueType = 0
	Int8    ValueType = 1
	Uint16  ValueType = 2
	Int16   ValueType = 3
	Uint32  ValueType = 4
	Int32   ValueType = 5
	Float32 ValueType = 6
	Bool    ValueType = 7
	String  ValueType = 8
	Array   ValueType = 9
	Uint64  ValueType = 10
	Int64   ValueType = 11
	Float64 ValueType = 12
)

// valueTypes gives the short name and the size in bytes of each code; strings
// and arrays have no fixed size.
var valueTypes = [...]struct {
	name string
	size int64
}{
	Uint8: {"u8", 1}, Int8: {"i8", 1}, Uint16: {"u16", 2}, Int16: {"i16", 2}, Uint32: {"u32", 4}, Int32: {"i32", 4},
	Float32: {"f32", 4}, Bool: {"bool", 1}, String: {"str", 0}, Array: {"arr", 0}, Uint64: {"u64", 8}, Int64: {"i64", 8},
	Float64: {"f64", 8},
}

func (t ValueType) valid() bool { return t >= 0 && int(t) < len(valueTypes) }

// String gives the short name of the type: u8, i32, f32, bool, str, arr, ...
func (t ValueType) String() string {
	if !t.valid() {
		return fmt.Sprintf("ValueType(%d)", int32(t))
	}
	return valueTypes[t].name
}

// Element is a Go type of a single value; each stands for one type code.
type Element interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64 | bool | string
}

// Value is one immutable metadata value: a scalar or an array of scalars. The
// zero Value is invalid.
type Value struct {
	typ  ValueType
	elem ValueType // of an Array
	v    any       // an Element, or a slice of one
}

func typeOf[T Element]() ValueType {
	var zero T
	switch any(zero).(type) {
	case uint8:
		return Uint8
	case int8:
		return Int8
	case uint16:
		return Uint16
	case int16:
		return Int16
	case uint32:
		return Uint32
	case int32:
		return Int32
	case uint64:
		return Uint64
	case int64:
		return Int64
	case float32:
		return Float32
	case float64:
		return Float64
	case bool:
		return Bool
	default:
		return String
	}
}

// Scalar makes a value of the type code that belongs to T.
func Scalar[T Element](v T) Value { return Value{typ: typeOf[T](), v: v} }

// List makes an array. It keeps the slice, which must not change any more.
func List[T Element](v []T) Value { return Value{typ: Array, elem: typeOf[T](), v: v} }

// ValueOf makes a value of an Element or a slice of one. It keeps slices, which must
// not change any more. Another Go type is ErrValue.
func ValueOf(v any) (Value, error) {
	switch x := v.(type) {
	case uint8:
		return Scalar(x), nil
	case int8:
		return Scalar(x), nil
	case uint16:
		return Scalar(x), nil
	case int16:
		return Scalar(x), nil
	case uint32:
		return Scalar(x), nil
	case int32:
		return Scalar(x), nil
	case uint64:
		return Scalar(x), nil
	case int64:
		return Scalar(x), nil
	case float32:
		return Scalar(x), nil
	case float64:
		return Scalar(x), nil
	case bool:
		return Scalar(x), nil
	case string:
		return Scalar(x), nil
	case []uint8:
		return List(x), nil
	case []int8:
		return List(x), nil
	case []uint16:
		return List(x), nil
	case []int16:
		return List(x), nil
	case []uint32:
		return List(x), nil
	case []int32:
		return List(x), nil
	case []uint64:
		return List(x), nil
	case []int64:
		return List(x), nil
	case []float32:
		return List(x), nil
	case []float64:
		return List(x), nil
	case []bool:
		return List(x), nil
	case []string:
		return List(x), nil
	}
	return Value{}, fmt.Errorf("%w: a value of type %T", ErrValue, v)
}

// Valid reports whether v holds anything.
func (v Value) Valid() bool { return v.v != nil }

// Type is the type code; Array for every array.
func (v Value) Type() ValueType { return v.typ }

// Elem is the type code of an array's elements; it is meaningless for scalars.
func (v Value) Elem() ValueType { return v.elem }

// IsArray reports whether v is an array.
func (v Value) IsArray() bool { return v.typ == Array }

// Any gives the Go value: an Element, or a slice of one that must not be
// changed.
func (v Value) Any() any { return v.v }

// Len is the number of elements of an array, 1 for scalars.
func (v Value) Len() int {
	switch s := v.v.(type) {
	case nil:
		return 0
	case []uint8:
		return len(s)
	case []int8:
		return len(s)
	case []uint16:
		return len(s)
	case []int16:
		return len(s)
	case []uint32:
		return len(s)
	case []int32:
		return len(s)
	case []uint64:
		return len(s)
	case []int64:
		return len(s)
	case []float32:
		return len(s)
	case []float64:
		return len(s)
	case []bool:
		return len(s)
	case []string:
		return len(s)
	}
	return 1
}

// Kind names the type in full: "u32", or "i32[512]" for arrays.
func (v Value) Kind() string {
	if !v.Valid() {
		return "nothing"
	}
	if v.IsArray() {
		return fmt.Sprintf("%v[%d]", v.elem, v.Len())
	}
	return v.typ.String()
}

// String gives scalars as text, strings quoted, and arrays by kind only.
func (v Value) String() string {
	switch x := v.v.(type) {
	case string:
		return strconv.Quote(x)
	case float32:
		return strconv.FormatFloat(float64(x), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	if !v.Valid() || v.IsArray() {
		return v.Kind()
	}
	return fmt.Sprint(v.v)
}

// Equal reports whether two values have the same type and the same bits.
func (v Value) Equal(o Value) bool {
	if v.typ != o.typ || v.Valid() != o.Valid() {
		return false
	}
	if v.typ == Array && v.elem != o.elem {
		return false
	}
	switch a := v.v.(type) {
	case nil:
		return true
	case float32:
		return math.Float32bits(a) == math.Float32bits(o.v.(float32))
	case float64:
		return math.Float64bits(a) == math.Float64bits(o.v.(float64))
	case []float32:
		return sameList(a, o.v.([]float32), func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
	case []float64:
		return sameList(a, o.v.([]float64), func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
	case []uint8:
		return sameList(a, o.v.([]uint8), same)
	case []int8:
		return sameList(a, o.v.([]int8), same)
	case []uint16:
		return sameList(a, o.v.([]uint16), same)
	case []int16:
		return sameList(a, o.v.([]int16), same)
	case []uint32:
		return sameList(a, o.v.([]uint32), same)
	case []int32:
		return sameList(a, o.v.([]int32), same)
	case []uint64:
		return sameList(a, o.v.([]uint64), same)
	case []int64:
		return sameList(a, o.v.([]int64), same)
	case []bool:
		return sameList(a, o.v.([]bool), same)
	case []string:
		return sameList(a, o.v.([]string), same)
	}
	return v.v == o.v
}

func same[T comparable](x, y T) bool { return x == y }

func sameList[T any](a, b []T, eq func(x, y T) bool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !eq(a[i], b[i]) {
			return false
		}
	}
	return true
}

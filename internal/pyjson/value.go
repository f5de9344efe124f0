// Package pyjson reads JSON the way Python's json module does, which is what
// the files beside a model are written for: bare Infinity and NaN are numbers,
// the last of two equal keys wins, and whole numbers keep their digits. Objects
// keep the order of their keys.
package pyjson

import (
	"math"
	"strconv"
	"strings"
)

// A value is one of nil, bool, string, Number, []any and *Object.

// Number is a number as it stands in the text. Python tells whole numbers from
// others by spelling alone: 1.0 is not a whole number.
type Number string

// IsInt reports whether the number is spelled without fraction and exponent.
func (n Number) IsInt() bool { return !strings.ContainsAny(string(n), ".eENI") }

// Int64 gives a whole number that fits 64 bits.
func (n Number) Int64() (int64, bool) {
	if !n.IsInt() {
		return 0, false
	}
	v, err := strconv.ParseInt(string(n), 10, 64)
	return v, err == nil
}

// Float64 gives the nearest float64; overflow gives an infinity, as in Python.
func (n Number) Float64() float64 {
	switch n {
	case "NaN":
		return math.NaN()
	case "Infinity":
		return math.Inf(1)
	case "-Infinity":
		return math.Inf(-1)
	}
	v, _ := strconv.ParseFloat(string(n), 64)
	return v
}

// Object is a JSON object with its keys in file order. The zero Object is
// empty. An Object that others may hold must be cloned before it is changed.
type Object struct {
	keys []string
	vals map[string]any
}

// Len is the number of keys; 0 for a nil Object.
func (o *Object) Len() int {
	if o == nil {
		return 0
	}
	return len(o.keys)
}

// Keys lists the keys in order of first appearance.
func (o *Object) Keys() []string {
	if o == nil {
		return nil
	}
	return append([]string(nil), o.keys...)
}

// Get gives the value of a key. A JSON null is nil and true.
func (o *Object) Get(key string) (any, bool) {
	if o == nil {
		return nil, false
	}
	v, ok := o.vals[key]
	return v, ok
}

// Has reports whether the key is there, null included.
func (o *Object) Has(key string) bool {
	_, ok := o.Get(key)
	return ok
}

// Set gives a key a value. A key that is there keeps its place, as in a Python
// dict.
func (o *Object) Set(key string, v any) {
	if o.vals == nil {
		o.vals = make(map[string]any)
	}
	if _, ok := o.vals[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.vals[key] = v
}

// SetDefault sets the key only when it is missing.
func (o *Object) SetDefault(key string, v any) {
	if !o.Has(key) {
		o.Set(key, v)
	}
}

// Delete removes a key.
func (o *Object) Delete(key string) {
	if !o.Has(key) {
		return
	}
	delete(o.vals, key)
	for i, k := range o.keys {
		if k == key {
			o.keys = append(o.keys[:i:i], o.keys[i+1:]...)
			return
		}
	}
}

// Clone copies the object and the objects and lists inside it.
func (o *Object) Clone() *Object {
	if o == nil {
		return nil
	}
	c := &Object{keys: append([]string(nil), o.keys...), vals: make(map[string]any, len(o.vals))}
	for k, v := range o.vals {
		c.vals[k] = cloneValue(v)
	}
	return c
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case *Object:
		return v.Clone()
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = cloneValue(v[i])
		}
		return c
	}
	return v
}

// Kind names a value's kind in messages.
func Kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case Number:
		if v.IsInt() {
			return "a whole number"
		}
		return "a number"
	case []any:
		return "a list"
	case *Object:
		return "an object"
	}
	return "an unknown value"
}

// Show writes a value for a message, short.
func Show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case string:
		if len(v) > 60 {
			v = strings.ToValidUTF8(v[:57], "") + "..."
		}
		return strconv.Quote(v)
	case Number:
		return string(v)
	case []any:
		return "a list of " + strconv.Itoa(len(v))
	}
	return Kind(v)
}

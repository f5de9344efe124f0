package gguf

import (
	"fmt"
	"iter"
	"maps"
	"slices"
)

// KV is one metadata entry.
type KV struct {
	Key   string
	Value Value
}

// Metadata is the ordered list of entries of a file, with unique keys. The zero
// value is an empty list. Copy it with Clone, not by assignment.
type Metadata struct {
	kvs   []KV
	index map[string]int
}

// NewMetadata makes a list of entries, later ones replacing earlier ones of the
// same key in place.
func NewMetadata(kvs ...KV) *Metadata {
	m := &Metadata{}
	for _, kv := range kvs {
		m.Set(kv.Key, kv.Value)
	}
	return m
}

// Len is the number of entries.
func (m *Metadata) Len() int { return len(m.kvs) }

// At gives the i-th entry.
func (m *Metadata) At(i int) KV { return m.kvs[i] }

// All walks the entries in order.
func (m *Metadata) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for _, kv := range m.kvs {
			if !yield(kv.Key, kv.Value) {
				return
			}
		}
	}
}

// Has reports whether a key is there.
func (m *Metadata) Has(key string) bool {
	_, ok := m.index[key]
	return ok
}

// Get finds a value.
func (m *Metadata) Get(key string) (Value, bool) {
	i, ok := m.index[key]
	if !ok {
		return Value{}, false
	}
	return m.kvs[i].Value, true
}

// add appends an entry, or reports that the key is taken.
func (m *Metadata) add(key string, v Value) bool {
	if m.Has(key) {
		return false
	}
	if m.index == nil {
		m.index = make(map[string]int)
	}
	m.index[key] = len(m.kvs)
	m.kvs = append(m.kvs, KV{key, v})
	return true
}

// Set gives a key its value as the dict of gguf-py does: a key that is there
// keeps its position and takes value and type, a new one goes to the end.
func (m *Metadata) Set(key string, v Value) {
	if i, ok := m.index[key]; ok {
		m.kvs[i].Value = v
		return
	}
	m.add(key, v)
}

// Append gives a key its value as gguf_set_val of ggml does, which
// llama-quantize uses: the key is removed if it is there, then added at the
// end.
func (m *Metadata) Append(key string, v Value) {
	m.Delete(key)
	m.add(key, v)
}

// Delete removes a key and reports whether it was there.
func (m *Metadata) Delete(key string) bool {
	i, ok := m.index[key]
	if !ok {
		return false
	}
	delete(m.index, key)
	m.kvs = slices.Delete(m.kvs, i, i+1)
	for ; i < len(m.kvs); i++ {
		m.index[m.kvs[i].Key] = i
	}
	return true
}

// Clone copies the list. The values are shared: they never change.
func (m *Metadata) Clone() *Metadata {
	return &Metadata{kvs: slices.Clone(m.kvs), index: maps.Clone(m.index)}
}

// Equal reports whether both lists hold the same entries in the same order.
func (m *Metadata) Equal(o *Metadata) bool {
	return slices.EqualFunc(m.kvs, o.kvs, func(a, b KV) bool { return a.Key == b.Key && a.Value.Equal(b.Value) })
}

// lookup converts the value of a key; the error names the key.
func lookup[T any](m *Metadata, key string, as func(Value) (T, error)) (T, error) {
	v, ok := m.Get(key)
	if !ok {
		var zero T
		return zero, fmt.Errorf("%w: %s", ErrNoKey, key)
	}
	out, err := as(v)
	if err != nil {
		return out, fmt.Errorf("key %s: %w", key, err)
	}
	return out, nil
}

// The getters below return ErrNoKey for a missing key and ErrValue for a value
// that cannot be what is asked for. Integers of other widths are converted when
// they fit. Slices are the metadata's own and must not be changed.

// Uint32 finds an integer.
func (m *Metadata) Uint32(key string) (uint32, error) { return lookup(m, key, AsInt[uint32]) }

// Int64 finds an integer.
func (m *Metadata) Int64(key string) (int64, error) { return lookup(m, key, AsInt[int64]) }

// Int32s finds an array of integers, such as token types.
func (m *Metadata) Int32s(key string) ([]int32, error) { return lookup(m, key, AsInts[int32]) }

// Uint32s finds an array of integers, such as head counts by layer.
func (m *Metadata) Uint32s(key string) ([]uint32, error) { return lookup(m, key, AsInts[uint32]) }

// Float64 finds a number.
func (m *Metadata) Float64(key string) (float64, error) { return lookup(m, key, AsFloat) }

// Float32s finds an array of floats, such as token scores.
func (m *Metadata) Float32s(key string) ([]float32, error) { return lookup(m, key, AsFloats) }

// Bool finds a bool.
func (m *Metadata) Bool(key string) (bool, error) { return lookup(m, key, AsBool) }

// Text finds a string.
func (m *Metadata) Text(key string) (string, error) { return lookup(m, key, AsString) }

// Texts finds an array of strings.
func (m *Metadata) Texts(key string) ([]string, error) { return lookup(m, key, AsStrings) }

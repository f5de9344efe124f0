package convert

import (
	"fmt"
	"math"

	"quern/formats/gguf"
	"quern/internal/pyjson"
)

// kvWriter fills metadata as the converter's writer does: a key set again keeps
// its place, empty strings and lists are left out, and a value of the wrong
// kind fails. The first failure is kept.
type kvWriter struct {
	meta *gguf.Metadata
	err  error
}

func (w *kvWriter) fail(origin, key string, v any, want string) {
	if w.err != nil {
		return
	}
	w.err = fmt.Errorf("%s: %w: %s is %s, %s wants %s", origin, ErrMetadata, show(v), kind(v), key, want)
}

// str sets a string. What Python calls false sets nothing.
func (w *kvWriter) str(origin, key string, v any) {
	switch v := v.(type) {
	case string:
		if v != "" {
			w.meta.Set(key, gguf.Scalar(v))
		}
		return
	}
	if truthy(v) {
		w.fail(origin, key, v, "a string")
	}
}

func (w *kvWriter) u32(origin, key string, n int64) {
	if n < 0 || n > math.MaxUint32 {
		w.fail(origin, key, n, "a number from 0 to 4294967295")
		return
	}
	w.meta.Set(key, gguf.Scalar(uint32(n)))
}

// i32 takes whole numbers only.
func (w *kvWriter) i32(origin, key string, v any) {
	n, ok := wholeNumber(v)
	if !ok || n < math.MinInt32 || n > math.MaxInt32 {
		w.fail(origin, key, v, "a whole number of 32 bits")
		return
	}
	w.meta.Set(key, gguf.Scalar(int32(n)))
}

// f32 takes any number and rounds it to the nearest float32.
func (w *kvWriter) f32(origin, key string, v any) {
	f, ok := number(v)
	if !ok || math.IsInf(float64(float32(f)), 0) && !math.IsInf(f, 0) {
		w.fail(origin, key, v, "a number that fits a float32")
		return
	}
	w.meta.Set(key, gguf.Scalar(float32(f)))
}

// list sets an array; all elements must have the kind of the first.
func (w *kvWriter) list(origin, key string, list []any) {
	if len(list) == 0 {
		return
	}
	switch list[0].(type) {
	case string:
		listOf(w, origin, key, list, func(v any) (string, bool) { s, ok := v.(string); return s, ok })
	case bool:
		listOf(w, origin, key, list, func(v any) (bool, bool) { b, ok := v.(bool); return b, ok })
	case float64:
		listOf(w, origin, key, list, func(v any) (float32, bool) { f, ok := v.(float64); return float32(f), ok })
	case int64:
		listOf(w, origin, key, list, func(v any) (int32, bool) {
			n, ok := v.(int64)
			return int32(n), ok && n == int64(int32(n))
		})
	default:
		w.fail(origin, key, list[0], "strings or numbers")
	}
}

func listOf[T gguf.Element](w *kvWriter, origin, key string, list []any, as func(any) (T, bool)) {
	out := make([]T, len(list))
	for i, v := range list {
		e, ok := as(v)
		if !ok {
			w.fail(origin, key, v, "values of one kind, the first being "+show(list[0]))
			return
		}
		out[i] = e
	}
	w.meta.Set(key, gguf.List(out))
}

// truthy is Python's bool().
func truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case int64:
		return v != 0
	case float64:
		return v != 0
	case pyjson.Number:
		return v.Float64() != 0
	case []any:
		return len(v) > 0
	case *pyjson.Object:
		return v.Len() > 0
	}
	return true
}

func wholeNumber(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case pyjson.Number:
		return v.Int64()
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case pyjson.Number:
		return v.Float64(), true
	}
	n, ok := wholeNumber(v)
	return float64(n), ok
}

func kind(v any) string {
	switch v := v.(type) {
	case int64:
		return "a whole number"
	case float64:
		return "a number"
	case otherYAML:
		return string(v)
	}
	return pyjson.Kind(v)
}

func show(v any) string {
	switch v := v.(type) {
	case int64, float64:
		return fmt.Sprint(v)
	case otherYAML:
		return string(v)
	}
	return pyjson.Show(v)
}

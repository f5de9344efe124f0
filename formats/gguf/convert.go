package gguf

import (
	"fmt"
	"math"
)

// Integer is a width that AsInt and AsInts convert to.
type Integer interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64
}

// AsInt gives an integer scalar of any width as T, or an error when it does
// not fit. Writers disagree about widths, so readers should not care.
func AsInt[T Integer](v Value) (T, error) {
	switch x := v.v.(type) {
	case uint8:
		return fit[T](x)
	case int8:
		return fit[T](x)
	case uint16:
		return fit[T](x)
	case int16:
		return fit[T](x)
	case uint32:
		return fit[T](x)
	case int32:
		return fit[T](x)
	case uint64:
		return fit[T](x)
	case int64:
		return fit[T](x)
	}
	return 0, fmt.Errorf("%w: %s where an integer is wanted", ErrValue, v.Kind())
}

// AsInts gives an integer array of any width as []T. The result may be the
// value's own slice and must not be changed.
func AsInts[T Integer](v Value) ([]T, error) {
	switch x := v.v.(type) {
	case []T:
		return x, nil
	case []uint8:
		return fitAll[T](x)
	case []int8:
		return fitAll[T](x)
	case []uint16:
		return fitAll[T](x)
	case []int16:
		return fitAll[T](x)
	case []uint32:
		return fitAll[T](x)
	case []int32:
		return fitAll[T](x)
	case []uint64:
		return fitAll[T](x)
	case []int64:
		return fitAll[T](x)
	}
	return nil, fmt.Errorf("%w: %s where an array of integers is wanted", ErrValue, v.Kind())
}

func fit[T, F Integer](x F) (T, error) {
	t := T(x)
	// The round trip alone would take -1 for the largest unsigned number.
	if F(t) != x || (t < 0) != (x < 0) {
		return 0, fmt.Errorf("%w: %d does not fit %v", ErrValue, x, typeOf[T]())
	}
	return t, nil
}

func fitAll[T, F Integer](x []F) ([]T, error) {
	out := make([]T, len(x))
	for i, e := range x {
		t, err := fit[T](e)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		out[i] = t
	}
	return out, nil
}

// AsFloat gives an f32, an f64 or an integer scalar as float64.
func AsFloat(v Value) (float64, error) {
	switch x := v.v.(type) {
	case float32:
		return float64(x), nil
	case float64:
		return x, nil
	case uint64:
		return float64(x), nil
	}
	if n, err := AsInt[int64](v); err == nil {
		return float64(n), nil
	}
	return 0, fmt.Errorf("%w: %s where a number is wanted", ErrValue, v.Kind())
}

// AsFloats gives an f32 or f64 array as []float32, f64 rounded to nearest. The
// result may be the value's own slice and must not be changed.
func AsFloats(v Value) ([]float32, error) {
	switch x := v.v.(type) {
	case []float32:
		return x, nil
	case []float64:
		out := make([]float32, len(x))
		for i, e := range x {
			out[i] = float32(e)
			if math.IsInf(float64(out[i]), 0) && !math.IsInf(e, 0) {
				return nil, fmt.Errorf("element %d: %w: %g does not fit f32", i, ErrValue, e)
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: %s where an array of floats is wanted", ErrValue, v.Kind())
}

// AsString gives a string scalar.
func AsString(v Value) (string, error) {
	if s, ok := v.v.(string); ok {
		return s, nil
	}
	return "", fmt.Errorf("%w: %s where a string is wanted", ErrValue, v.Kind())
}

// AsStrings gives a string array, which must not be changed.
func AsStrings(v Value) ([]string, error) {
	if s, ok := v.v.([]string); ok {
		return s, nil
	}
	return nil, fmt.Errorf("%w: %s where an array of strings is wanted", ErrValue, v.Kind())
}

// AsBool gives a bool scalar.
func AsBool(v Value) (bool, error) {
	if b, ok := v.v.(bool); ok {
		return b, nil
	}
	return false, fmt.Errorf("%w: %s where a bool is wanted", ErrValue, v.Kind())
}

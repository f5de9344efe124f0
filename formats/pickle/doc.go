// Package pickle reads Python pickles that hold nothing but data: dicts, lists,
// tuples, numbers, strings, bytes, NumPy arrays and PyTorch tensors. A pickle is a
// program for a stack machine that may call any function of any module; here it
// may name the few constructors of arrays, which are done by this package, and
// anything else is refused by name. Nothing is ever executed.
//
//	80 04  95 frame   }  (  8c 06 "params"  ...  u  .
//	proto  length  dict mark  string              set  stop
//
// The data of arrays stay in the file: an Array knows where they lie. Files of
// torch.save are zip archives with a pickle, data.pkl, and a stored file for each
// tensor's storage. (Source: the opcode documentation of Python's pickletools.)
package pickle

import (
	"errors"
	"fmt"

	"quern/tensor"
)

var (
	// ErrFormat marks bytes that are no pickle, or a broken one.
	ErrFormat = errors.New("bad pickle")
	// ErrNotPickle marks a zip archive that torch.save has not written.
	ErrNotPickle = errors.New("no pickle in it")
	// ErrRefused marks a pickle that asks for more than data: a function, a
	// class or an opcode that this package does not do.
	ErrRefused = errors.New("pickle refused")
	// ErrLimit marks a pickle that is nested too deeply or has too many parts.
	ErrLimit = errors.New("pickle too large")
	// ErrTruncated marks a pickle that ends before its stop opcode.
	ErrTruncated = errors.New("truncated pickle")
)

// ReadError says where in which file reading failed.
type ReadError struct {
	File   string
	Offset int64 // of the opcode, from the start of the pickle
	Err    error
}

// Error joins file, offset and cause.
func (e *ReadError) Error() string { return fmt.Sprintf("%s: offset %d: %v", e.File, e.Offset, e.Err) }

// Unwrap gives the cause.
func (e *ReadError) Unwrap() error { return e.Err }

// A value is one of nil, bool, int64, float64, string, Bytes, *List, Tuple, *Dict
// and *Array.

// Bytes are bytes at hand, or, when Data is nil, Len bytes of the file.
type Bytes struct {
	Data   []byte
	Offset int64
	Len    int64
}

// List is a Python list.
type List struct{ Items []any }

// Tuple is a Python tuple.
type Tuple []any

// Dict is a Python dict with its keys in order. Keys are strings.
type Dict struct {
	Keys   []string
	Values map[string]any
}

// Get gives the value of a key, nil without one.
func (d *Dict) Get(key string) any { return d.Values[key] }

func (d *Dict) set(key string, v any) {
	if d.Values == nil {
		d.Values = map[string]any{}
	}
	if _, ok := d.Values[key]; !ok {
		d.Keys = append(d.Keys, key)
	}
	d.Values[key] = v
}

// Array is a NumPy array or a PyTorch tensor.
type Array struct {
	Type  tensor.Type
	Shape tensor.Shape
	// Fortran says that the first axis is the one whose values lie next to each
	// other.
	Fortran bool
	Data    Bytes

	blob tensor.Blob // that Data lies in, when it is not the pickle's
	done bool
}

// Package readerr is the error of all readers of binary files.
package readerr

import "fmt"

// ReadError says where in which file reading failed.
type ReadError struct {
	File   string
	Offset int64  // of the field, from the start of the file
	Field  string // what was being read
	Err    error
}

// Error joins file, offset, field and cause.
func (e *ReadError) Error() string {
	return fmt.Sprintf("%s: offset %d: %s: %v", e.File, e.Offset, e.Field, e.Err)
}

// Unwrap gives the cause.
func (e *ReadError) Unwrap() error { return e.Err }

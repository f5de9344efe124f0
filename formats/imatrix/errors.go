package imatrix

import (
	"errors"
	"fmt"
)

var (
	// ErrFormat marks a file that breaks a rule of its format.
	ErrFormat = errors.New("bad importance matrix")
	// ErrTruncated marks a file that ends too early.
	ErrTruncated = errors.New("truncated importance matrix")
	// ErrValue marks a value that no mean square can have: NaN, infinite or
	// negative.
	ErrValue = errors.New("impossible value in an importance matrix")
	// ErrLimit marks a file over Options.MaxBytes.
	ErrLimit = errors.New("importance matrix over the limit")
)

// ReadError says where in which file reading failed.
type ReadError struct {
	File   string
	Offset int64  // from the start of the file
	Entry  string // the tensor's name, empty outside of entries
	Field  string // what was being read
	Err    error
}

// Error joins file, offset, entry, field and cause.
func (e *ReadError) Error() string {
	at := fmt.Sprintf("%s: offset %d: ", e.File, e.Offset)
	if e.Entry != "" {
		at += fmt.Sprintf("entry %q: ", e.Entry)
	}
	return fmt.Sprintf("%s%s: %v", at, e.Field, e.Err)
}

// Unwrap gives the cause.
func (e *ReadError) Unwrap() error { return e.Err }

package convert

import (
	"errors"
	"fmt"

	"quern/tensor"
)

var (
	// ErrMetadata marks a side file with a value that GGUF metadata cannot
	// hold under its key.
	ErrMetadata = errors.New("value has no place in GGUF metadata")
	// ErrOutType marks an unknown output type.
	ErrOutType = errors.New("unknown outtype")
	// ErrQuantized marks a checkpoint that is quantized in a way that is not
	// read.
	ErrQuantized = errors.New("quantized checkpoint cannot be read")
	// ErrValue marks a weight that the output type cannot hold, or that is not
	// finite.
	ErrValue = errors.New("weight cannot be stored")
)

// ValueError says which weight cannot be stored.
type ValueError struct {
	Tensor string      // name in the output
	From   string      // name of the source tensor, where there is only one
	Type   tensor.Type // of the output
	Row    int64       // of the output tensor
	Column int64
	Value  float64
	// Count is how many such weights are among the rows that were read.
	Count int64
	Why   string
}

// Error names tensor, row, column and value.
func (e *ValueError) Error() string {
	name := e.Tensor
	if e.From != "" && e.From != name {
		name += " (from " + e.From + ")"
	}
	more := ""
	if e.Count > 1 {
		more = fmt.Sprintf(", and %d more nearby", e.Count-1)
	}
	return fmt.Sprintf("tensor %s: row %d, column %d: %g %s%s", name, e.Row, e.Column, e.Value, e.Why, more)
}

// Unwrap gives ErrValue.
func (e *ValueError) Unwrap() error { return ErrValue }

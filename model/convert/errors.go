package convert

import (
	"errors"

	"quern/tensor/view"
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
	ErrValue = view.ErrValue
)

// ValueError says which weight cannot be stored.
type ValueError = view.ValueError

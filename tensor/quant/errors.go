package quant

import "errors"

var (
	// ErrDecodeOnly marks a type that is read from sources but never written.
	ErrDecodeOnly = errors.New("type can be read but not written")
	// ErrSize marks buffers whose lengths do not fit the types and the row.
	ErrSize = errors.New("buffer does not fit the rows")
)

package tensor

import "errors"

var (
	// ErrUnknownType marks a type name or id that the table does not hold.
	ErrUnknownType = errors.New("unknown tensor type")
	// ErrShape marks a shape whose size overflows or whose row length does
	// not fit the type's block.
	ErrShape = errors.New("bad tensor shape")
	// ErrRange marks a request for rows that the tensor does not have.
	ErrRange = errors.New("rows out of range")
)

package gguf

import (
	"errors"
	"fmt"

	"quern/formats/internal/alien"
	"quern/formats/internal/readerr"
)

var (
	// ErrFormat marks a file that breaks a rule of the format.
	ErrFormat = errors.New("bad GGUF file")
	// ErrNotGGUF marks a file of another format.
	ErrNotGGUF = errors.New("not a GGUF file")
	// ErrLFSPointer marks the text that Git LFS leaves in place of a file.
	ErrLFSPointer = alien.ErrLFSPointer
	// ErrHTML marks a web page that was saved under a model file's name.
	ErrHTML = alien.ErrHTML
	// ErrVersion marks a version that is not read.
	ErrVersion = errors.New("unsupported GGUF version")
	// ErrByteOrder marks a big-endian file.
	ErrByteOrder = errors.New("big-endian GGUF file")
	// ErrTruncated marks a file that ends before its header or its data do.
	ErrTruncated = errors.New("truncated GGUF file")
	// ErrHeaderLimit marks a header longer than Options.MaxHeader allows.
	ErrHeaderLimit = errors.New("GGUF header over the limit")
	// ErrDuplicate marks a key or a tensor name that occurs twice.
	ErrDuplicate = errors.New("duplicate name")
	// ErrTensorType marks a tensor whose type has no known meaning here.
	ErrTensorType = errors.New("tensor type not supported")
	// ErrNoKey marks a key that the metadata does not hold.
	ErrNoKey = errors.New("metadata key missing")
	// ErrValue marks a metadata value of the wrong type or out of range.
	ErrValue = errors.New("bad metadata value")
	// ErrSplit marks shards that do not make one model.
	ErrSplit = errors.New("bad GGUF split")
	// ErrWrite marks contents that a GGUF file cannot hold.
	ErrWrite = errors.New("cannot be written as GGUF")
)

// ReadError says where in which file reading failed.
type ReadError = readerr.ReadError

// clip quotes text of a file for a message, at most 64 bytes of it.
func clip(s string) string {
	const limit = 64
	if len(s) > limit {
		return fmt.Sprintf("%q... (%d bytes)", s[:limit], len(s))
	}
	return fmt.Sprintf("%q", s)
}

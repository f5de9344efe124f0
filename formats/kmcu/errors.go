package kmcu

import (
	"errors"

	"quern/formats/internal/alien"
	"quern/formats/internal/readerr"
)

var (
	// ErrFormat marks a file that breaks a rule of the format.
	ErrFormat = errors.New("bad KMCU file")
	// ErrNotKMCU marks a file of another format.
	ErrNotKMCU = errors.New("not a KMCU file")
	// ErrLFSPointer marks the text that Git LFS leaves in place of a file.
	ErrLFSPointer = alien.ErrLFSPointer
	// ErrHTML marks a web page that was saved under a model file's name.
	ErrHTML = alien.ErrHTML
	// ErrVersion marks a version that is not read.
	ErrVersion = errors.New("unsupported KMCU version")
	// ErrTruncated marks a file that ends before its directory or data do.
	ErrTruncated = errors.New("truncated KMCU file")
	// ErrModel marks tensors that are not those of the header's model.
	ErrModel = errors.New("tensors do not fit the KMCU header")
	// ErrWrite marks contents that a KMCU file cannot hold.
	ErrWrite = errors.New("cannot be written as KMCU")
	// ErrPartition marks a file that is larger than its flash partition.
	ErrPartition = errors.New("larger than the flash partition")
)

// ReadError says where in which file reading failed.
type ReadError = readerr.ReadError

package cact

import (
	"errors"

	"quern/formats/internal/alien"
	"quern/formats/internal/readerr"
)

var (
	// ErrFormat marks a file that breaks a rule of the format.
	ErrFormat = errors.New("bad .cact file")
	// ErrNotCact marks a file of another format.
	ErrNotCact = errors.New("not a .cact file")
	// ErrLFSPointer marks the text that Git LFS leaves in place of a file.
	ErrLFSPointer = alien.ErrLFSPointer
	// ErrHTML marks a web page that was saved under a model file's name.
	ErrHTML = alien.ErrHTML
	// ErrTruncated marks a file that ends before its directory or data do.
	ErrTruncated = errors.New("truncated .cact file")
	// ErrModel marks tensors that are not those of the header's model.
	ErrModel = errors.New("tensors do not fit the .cact header")
	// ErrTokenizer marks a tokenizer blob that breaks a rule.
	ErrTokenizer = errors.New("bad .cact tokenizer")
	// ErrWrite marks contents that a .cact file cannot hold.
	ErrWrite = errors.New("cannot be written as .cact")
)

// ReadError says where in which file reading failed.
type ReadError = readerr.ReadError

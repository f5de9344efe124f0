// Package repacked reads and writes repack caches: the matrices of a GGUF file in
// a layout that a device computes on, beside the file and not in place of it. A
// device maps the cache at start where ggml would repack the file's rows in
// memory. Package tensor/repack has the layouts.
//
// Numbers are little-endian. Offsets count from the start of the file.
//
//	 0   8  magic "QUERNRPK"
//	 8   4  version, 1
//	12   4  alignment, a power of two from 64 to 65536
//	16  24  name of the layout, zeros behind it
//	40  32  SHA-256 of the GGUF file, all of it
//	72   8  size of the GGUF file
//	80   8  size of this file
//	88   4  number of tensors
//	92   4  bytes of the directory
//	96      directory: for each tensor
//	             2  bytes of the name
//	             2  number of dimensions, 2 or 3
//	                name, as in the GGUF file
//	             8  each dimension of the plain tensor, row length first
//	             8  offset, a multiple of the alignment
//	             8  bytes, of the packed tensor
//	        zeros up to a multiple of the alignment
//	        data: tensors in the order of the directory, each followed by zeros up to a multiple of the alignment
//
// A tensor begins where the padding of the one before it ends. It has as many bytes
// as its layout makes of the shape: those of the plain one, but for a few layouts
// of quern's own.
package repacked

import (
	"encoding/binary"
	"errors"

	"quern/formats/internal/alien"
	"quern/formats/internal/readerr"
)

const (
	magic       = "QUERNRPK"
	version     = 1
	fixedHeader = 96
	layoutBytes = 24
	// DigestAt is where the header has the SHA-256 of the GGUF file.
	DigestAt = 40
	// Alignment of what is written: that of the widest vectors.
	Alignment = 64
	// MaxNameBytes and maxTensors are bounds of GGUF readers.
	MaxNameBytes = 63
	maxTensors   = 1 << 16
	minEntry     = 2 + 2 + 1 + 2*8 + 8 + 8
	maxEntry     = 2 + 2 + MaxNameBytes + 3*8 + 8 + 8
)

var le = binary.LittleEndian

var (
	// ErrFormat marks a file that breaks a rule of the format.
	ErrFormat = errors.New("bad repack cache")
	// ErrNotRepacked marks a file of another format.
	ErrNotRepacked = errors.New("not a repack cache")
	// ErrVersion marks a version that is not read.
	ErrVersion = errors.New("unsupported version of a repack cache")
	// ErrTruncated marks a file that ends before its directory or data do.
	ErrTruncated = errors.New("truncated repack cache")
	// ErrOther marks a cache that was made of another file.
	ErrOther = errors.New("repack cache of another file")
	// ErrWrite marks contents that a cache cannot hold.
	ErrWrite = errors.New("cannot be written as a repack cache")
	// ErrLFSPointer marks the text that Git LFS leaves in place of a file.
	ErrLFSPointer = alien.ErrLFSPointer
	// ErrHTML marks a web page that was saved under a model file's name.
	ErrHTML = alien.ErrHTML
)

// ReadError says where in which file reading failed.
type ReadError = readerr.ReadError

func padTo(n, align int64) int64 { return (n + align - 1) / align * align }

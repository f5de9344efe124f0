// Package gguf reads and writes GGUF, the model file of llama.cpp, versions 2
// and 3, little-endian.
//
//	offset  bytes  field
//	0       4      "GGUF"
//	4       4      version, u32
//	8       8      number of tensors T, i64
//	16      8      number of key-value pairs K, i64
//	24      ...    K key-value pairs:
//	                 key     u64 length, bytes
//	                 type    i32: 0 u8, 1 i8, 2 u16, 3 i16, 4 u32, 5 i32, 6 f32,
//	                         7 bool (1 byte), 8 string, 9 array, 10 u64, 11 i64, 12 f64
//	                 value   string: u64 length, bytes
//	                         array:  i32 element type (not array), u64 count, elements
//	...     ...    T tensor infos:
//	                 name    u64 length (at most 63), bytes
//	                 n_dims  u32, at most 4
//	                 ne      i64 each, ne[0] is the row length
//	                 type    i32, a ggml_type
//	                 offset  u64, from the data start
//	...     0-...  zeros up to a multiple of the alignment: the data start
//	...     ...    data of the tensors in the order of their infos, each padded
//	               with zeros to a multiple of the alignment
//
// The alignment is the u32 value of general.alignment, 32 without that key.
// (Source: ggml/src/gguf.cpp and gguf-py of llama.cpp v0.5.0.)
//
// Shapes are outermost first in this project: the reverse of ne.
package gguf

const (
	magic = "GGUF"
	// version is the one that is written; it differs from 2 only in allowing
	// big-endian files, which are not supported here.
	version = 3

	// DefaultAlignment holds where general.alignment is missing.
	DefaultAlignment = 32
	// maxAlignment is the largest power of two that an alignment may be; ggml
	// would take 2^31 too, which no file can mean.
	maxAlignment = 1 << 30

	// MaxNameBytes is the longest tensor name: ggml keeps 64 bytes with the
	// final NUL.
	MaxNameBytes = 63
	// MaxDims is the largest number of dimensions of a tensor.
	MaxDims = 4

	maxStringBytes = 1 << 30
	maxArrayLen    = 1 << 30

	// fixedHeader is the size of what precedes the key-value pairs.
	fixedHeader = 24
	// minPairBytes is a pair with a key of one byte and a value of one byte.
	minPairBytes = 8 + 1 + 4 + 1
	// minInfoBytes is a tensor without a name and without dimensions.
	minInfoBytes = 8 + 4 + 4 + 8
)

// Keys that this package itself looks at.
const (
	KeyAlignment    = "general.alignment"
	KeySplitNo      = "split.no"
	KeySplitCount   = "split.count"
	KeySplitTensors = "split.tensors.count"
)

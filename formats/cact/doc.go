// Package cact reads and writes .cact archives, the containers of Needle models
// of generations 2 and 3. All numbers are little-endian.
//
//	0          120 or 196   +4*28        +44 a tensor      multiples of 64
//	+----------+------------+------------+------------+----+----------+-----+
//	| header   | codebooks  | directory  | zeros      |    | tensor   | ... |
//	+----------+------------+------------+------------+----+----------+-----+
//	 30 or 49    f32: 4 of                                   each at the next
//	 words       2 bits, 8 of                                multiple of 64,
//	             3, 16 of 4                                  none after the last
//
//	directory record, 44 bytes
//	+0   u8   dtype: 1 FP16, 2 FP32, 3 CQ, 4 RAW
//	+1   u8   ndim
//	+2   u16  zero
//	+4   u32  shape[4], unused ones 0
//	+20  u64  offset from the start of the file
//	+28  u64  nbytes
//	+36  u32  group size, of CQ
//	+40  u32  bits, of CQ: 1 to 4, 5 means 1.58
//
// Records have no names: what a tensor is follows from its position and the
// header (Header.Specs). Matrices are [out, in]. A CQ tensor's data are the packed
// indices of all rows, then the F16 norms of all rows: package cq. The last tensor
// is RAW and holds the tokenizer.
//
// The words of the header are listed in header.go. (Source: the exporter's own
// description of the format.)
package cact

const (
	tag2 = 0x05E12A83
	tag3 = 0x05E12A84

	recordBytes = 44
	// CodebookLen is the number of codebook entries in a file: of 2, 3 and 4
	// bits, in that order.
	CodebookLen = 4 + 8 + 16

	// Alignment is what tensor offsets are multiples of.
	Alignment = 64

	dtypeF16 = 1
	dtypeF32 = 2
	dtypeCQ  = 3
	dtypeRaw = 4
)

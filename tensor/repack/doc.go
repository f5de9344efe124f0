// Package repack puts the rows of quantized matrices into the layouts that
// matrix products read, ggml's and quern's own, and back.
//
// ggml makes its layouts in memory when it loads a model. A device that has
// them on disk maps them instead: no second copy, no work at the start. The
// bytes are those of ggml's CPU_REPACK buffers; only their order changes, some
// bits are flipped, and nothing is rounded, so Unpack gives back every byte.
//
// A layout is called TYPE_NxI: N consecutive rows make a group, and their quants
// are taken I bytes from each row in turn. A group of ggml's has the bytes of its
// N rows, so a matrix keeps its size. Groups follow each other from the first
// rows to the last:
//
//	row 0      | block 0 | block 1 | ...
//	row 1      | block 0 | block 1 | ...           group 0
//	...                                            +----------------+----------------+---
//	row N-1    | block 0 | block 1 | ...     --->  | blocks 0 of    | blocks 1 of    | ...
//	                                               | rows 0 to N-1  | rows 0 to N-1  |
//	                                               +----------------+----------------+---
//
// Inside such a bundle of N blocks every field of the block stands N times, field
// after field, in an order of its own:
//
//	q4_0_NxI    d (2) x N | qs: I of row 0, I of row 1, ... N-1, the next I of row 0, ...; every bit 3 and 7 flipped
//	iq4_nl_NxI  the same, no bit flipped
//	q8_0_NxI    the same, no bit flipped
//	mxfp4_NxI   e (1) x N | qs as above
//	q1_0_4x8    d (2) x 4 | qs: a byte of each row in turn
//	q1_0_4x4    d (2) x 4 | qs: four bits of each row in turn, low half of the byte first
//	q4_K_8xI    d (2) x 8 | dmin (2) x 8 | scales, 8 groups of 12 as below | qs, I of each row in turn
//	q5_K_8xI    d (2) x 8 | dmin (2) x 8 | scales as q4_K | qh, I of each row in turn | qs likewise
//	q6_K_8xI    d (2) x 8 | scales, 1 of each row in turn | ql, I of each row in turn | qh likewise
//	q2_K_8x8    d (2) x 8 | dmin (2) x 8 | scales, 2 of each row in turn | qs, 8 of each row in turn
//
// Group b of the scales of q4_K and q5_K holds scale s and minimum m, 6 bits each,
// of sub-block b of all eight rows:
//
//	        bits 7 6    bits 5 4 3 2 1 0
//	byte r      s[r+4] 5 4  s[r]               r = 0 to 3
//	byte 4+r    m[r+4] 5 4  m[r]
//	byte 8+r    m[r+4] 3 2 1 0 | s[r+4] 3 2 1 0
//
// Which of the layouts ggml picks depends on the processor: x86 with AVX2 takes
// q4_0_8x8, q4_K_8x8, iq4_nl_8x8 and mxfp4_8x8 (with AVX-512 q2_K_8x8 too), ARM
// with i8mm the 4x8 and 8x8 ones, ARM with dotprod the 4x4 and 8x4 ones.
//
// quern's own layouts are for lanes of NEON's dot products and for lookup tables.
// Their bundles (ternary.go and the orders of layout.go say why):
//
//	q2_K_8x4            d (2) x 8 | dmin (2) x 8 | scales, 1 of each row in turn | qs, 4 of each row in turn
//	tq1_0_8x4           d (2) x 8 | qs, 4 of each row in turn | qh likewise
//	tq2_0_8x4           d (2) x 8 | qs, 4 of each row in turn
//	q2_0_8x4            d (2) x 8 | 4 runs of 32: bits 2k of byte 4r+j of run c are value 16c+4k+j of row r
//	q2_0_8x4_base3      d (2) x 8 | 3 runs of 32 | 8: five codes to a byte
//	q2_0_8x4_merged128  d (2) x 8, for two blocks each | 8 runs of 32 as q2_0_8x4; rounds scales
//	q1_0_8x4_planes     d (2) x 8 | 4 runs of 32: bit k of byte 4r+j of run u is value 32u+4k+j of row r
//	q1_0_32_lut         d (2) x 32 | 32 runs of 16: byte i of run s has values 4s to 4s+3 of rows i and i+16, low half first
//	q2_K_32_lut         d (2) x 32 | dmin (2) x 32 | scales, 1 of each row in turn | 64 runs of 32: low bits as in q1_0_32_lut, then high bits
package repack

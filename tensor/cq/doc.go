// Package cq holds CQ weights, the codebook quantization of .cact archives: a
// row is cut into groups, each group is turned by a Walsh-Hadamard matrix and
// split into its length, kept as F16, and a point of the unit sphere, whose
// coordinates are rounded to the entries of a small codebook.
//
//	row of n weights, padded with zeros to a multiple of the group g
//	+------------+------------+-- ... --+
//	| g weights  | g weights  |         |      rot  = group * H
//	+------------+------------+-- ... --+      norm = sqrt(sum of rot^2)
//	      |            |                       index of codebook nearest rot/norm
//	      v            v
//	+------------+------------+-- ... --+      one bit stream a row, first index
//	| g indices  | g indices  |         |      in the lowest bits
//	+------------+------------+-- ... --+
//	+------+------+-- ... --+
//	| F16  | F16  |         |                  one norm a group
//	+------+------+-- ... --+
//
// H is Sylvester's matrix over sqrt(g), its own inverse. A weight is read back as
// (codebook[index] * norm) * H. An archive keeps the indices of all rows first
// and then the norms of all rows.
//
//	width     levels  bits an index  a byte holds
//	4         16      4              2 indices, even column in the low nibble
//	3         8       3              8 indices in 3 bytes
//	2         4       2              4 indices
//	1.58      3       2              4 indices as 3, 0, 1: signed -1, 0, +1
//	1         2       1              8 indices
//
// All arithmetic is float32 in a written order; sums run as NumPy adds, so that
// norms are those of the Python exporter. (Source: the description of the format
// by its exporter.)
package cq

//go:generate go -C _gen run . -out ../kernels_amd64.s -stubs ../stubs_amd64.go -pkg cq

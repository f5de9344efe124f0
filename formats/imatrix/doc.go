// Package imatrix reads importance matrices: how much the inputs of each weight
// matrix mattered over a calibration text, column by column, as llama-imatrix
// writes them. There are two formats, told apart by their first bytes.
//
// The older one, usually *.dat, little-endian throughout:
//
//	bytes  field
//	4      number of entries N, i32, at least 1
//	...    N entries:
//	         4    length of the name, i32
//	         ...  name of the weight tensor
//	         4    number of chunks C that reached it, i32
//	         4    number of values V, i32, at least 1
//	         4V   f32 each: mean square of a column's inputs, times C
//	4      chunks of the whole run, i32          (may be missing)
//	4      length of the text's file name, i32   (may be missing)
//	...    name of the text's file
//
// The newer one is a GGUF file (see formats/gguf) with general.type "imatrix",
// imatrix.datasets (strings), imatrix.chunk_count and imatrix.chunk_size (u32),
// and two F32 tensors an entry:
//
//	NAME.in_sum2  [V/M, M]  sums of squares of the inputs, by column
//	NAME.counts   [1, M]    rows of inputs that went into the sums
//
// M is the number of experts whose matrices are stacked in the tensor, 1 for
// other tensors. (Source: tools/imatrix and common/imatrix-loader.cpp of
// llama.cpp v0.5.0.)
package imatrix

// Package kmcu reads and writes KMCU v1, the container of Llama-family weights
// that microcontrollers read in place from flash. All numbers are
// little-endian.
//
//	offset  bytes  field
//	0       4      "KMCU"
//	4       4      version, u32: 1
//	8       4      n_layers, u32, like all up to 63
//	12      4      dim
//	16      4      n_heads
//	20      4      n_kv_heads
//	24      4      head_dim
//	28      4      ffn_dim
//	32      4      vocab_size
//	36      4      max_seq
//	40      4      bos_id
//	44      4      eos_id
//	48      4      tied_embed: 1 when the head is the embedding, else 0
//	52      4      n_tensors
//	56      4      dir_offset
//	60      4      data_offset, a multiple of 64
//	64      4      rope_theta, f32
//	68      4      norm_eps, f32
//	72      4      total_params, u32: values of all tensors in the file
//	76      52     zeros
//
//	at dir_offset, 48 bytes a tensor:
//	+0      24     name, ended and filled with NULs
//	+24     4      dtype, u32: 1 f32, 2 q4
//	+28     4      n_rows
//	+32     4      n_cols, without padding
//	+36     4      offset from the start of the file, a multiple of 64
//	+40     4      nbytes
//	+44     4      zero
//
//	at data_offset: each tensor at the next multiple of 64, zeros in between,
//	nothing after the last
//
// A q4 row is padded with zeros to a multiple of 32 values and stored as blocks
// of 32 values in 18 bytes (tensor.KMCUQ4), so block b of row r is
// r*ceil(n_cols/32) + b. The older flat form cuts the whole matrix into one run
// of such blocks; nbytes tells them apart. (Source: the KMCU v1 format
// description.)
package kmcu

const (
	magic   = "KMCU"
	version = 1

	headerBytes = 128
	recordBytes = 48
	nameBytes   = 24
	// MaxNameBytes is the longest tensor name: the last byte of the field is
	// NUL.
	MaxNameBytes = nameBytes - 1

	// Alignment is what tensor offsets are multiples of.
	Alignment = 64

	dtypeF32 = 1
	dtypeQ4  = 2

	blockValues = 32
	blockBytes  = 18
)

// Align says how a q4 matrix is cut into blocks.
type Align int

const (
	// AlignRow pads every row to a multiple of 32 values.
	AlignRow Align = iota
	// AlignNone is the older flat form: blocks run across rows.
	AlignNone
)

// String gives the word that recipes use.
func (a Align) String() string {
	if a == AlignNone {
		return "none"
	}
	return "row"
}

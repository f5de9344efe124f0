package quant

import (
	"encoding/binary"

	"quern/tensor"
)

// q5_0 is ggml's Q5_0: 32 values in 22 bytes.
//
//	 0        2               6                                         22
//	+--------+---------------+-------------------------------------------+
//	| d F16  | qh u32: bit j | byte j: low 4 bits of q[j] in the low     |
//	|        | = bit 4 of q[j]| nibble, of q[j+16] in the high           |
//	+--------+---------------+-------------------------------------------+
//
// value = (q-16)*d. Encoding as Q4_0 with 16 and 16.5; q is at most 31.
type q5_0 struct{}

func (q5_0) Type() tensor.Type { return tensor.Q5_0 }

func (q5_0) Decode(dst []float32, src []byte) {
	var q [32]uint8
	for ; len(dst) >= 32; dst, src = dst[32:], src[22:] {
		d := getScale(src)
		unpackFive(&q, src[2:22])
		for j, c := range q {
			dst[j] = float32(float32(int32(c)-16) * d)
		}
	}
}

func (q5_0) EncodeRow(dst []byte, src, weights []float32) {
	if weights != nil {
		fittedCodes{-16, 15}.encode(dst, src, weights, useSIMD)
		return
	}
	var q [32]uint8
	for ; len(src) >= 32; dst, src = dst[22:], src[32:] {
		d := extreme(src[:32]) / -16
		quantizeOffset(&q, src[:32], d, 16.5, 31)
		putScale(dst, d)
		packFive(dst[2:22], &q)
	}
}

// packFive writes codes of 5 bits: the fifth bits in a word, then the nibbles.
func packFive(dst []byte, q *[32]uint8) {
	var qh uint32
	for j, c := range q {
		qh |= uint32(c>>4&1) << j
	}
	binary.LittleEndian.PutUint32(dst, qh)
	packNibbles(dst[4:20], q)
}

func unpackFive(q *[32]uint8, src []byte) {
	qh := binary.LittleEndian.Uint32(src)
	for j, b := range src[4:20] {
		q[j] = b&15 | uint8(qh>>j&1)<<4
		q[j+16] = b>>4 | uint8(qh>>(j+16)&1)<<4
	}
}

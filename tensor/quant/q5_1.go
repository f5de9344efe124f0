package quant

import (
	"quern/tensor"
)

// q5_1 is ggml's Q5_1: 32 values in 24 bytes.
//
//	 0        2        4               8                              24
//	+--------+--------+---------------+--------------------------------+
//	| d F16  | m F16  | qh u32, as    | nibbles, as Q5_0               |
//	|        |        | Q5_0          |                                |
//	+--------+--------+---------------+--------------------------------+
//
// value = q*d + m. Encoding as Q4_1 with codes up to 31.
type q5_1 struct{}

func (q5_1) Type() tensor.Type { return tensor.Q5_1 }

func (q5_1) Decode(dst []float32, src []byte) {
	var q [32]uint8
	for ; len(dst) >= 32; dst, src = dst[32:], src[24:] {
		d := getScale(src)
		m := getScale(src[2:])
		unpackFive(&q, src[4:24])
		for j, c := range q {
			dst[j] = float32(float32(c)*d) + m
		}
	}
}

func (q5_1) EncodeRow(dst []byte, src, weights []float32) {
	if weights != nil {
		fittedCodes{0, 31}.encode(dst, src, weights, useSIMD)
		return
	}
	var q [32]uint8
	for ; len(src) >= 32; dst, src = dst[24:], src[32:] {
		d, m := quantizeRange(&q, src[:32], 31)
		putScale(dst, d)
		putScale(dst[2:], m)
		packFive(dst[4:24], &q)
	}
}

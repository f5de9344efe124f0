package quant

import (
	"math"

	"quern/tensor"
)

// q8_0 is ggml's Q8_0: 32 values in 34 bytes.
//
//	 0        2                                 34
//	+--------+-----------------------------------+
//	| d F16  | q0 q1 ... q31   int8, row order   |
//	+--------+-----------------------------------+
//
// value = q*d. Encoding: d = max|x|/127, q = round half away(x * (1/d)).
type q8_0 struct{}

func (q8_0) Type() tensor.Type { return tensor.Q8_0 }

func (q8_0) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[34:] {
		d := getScale(src)
		out, q := dst[:32], src[2:34]
		for j := range out {
			out[j] = float32(float32(int8(q[j])) * d)
		}
	}
}

func (q8_0) EncodeRow(dst []byte, src, _ []float32) { encodeQ8_0(dst, src) }

func encodeQ8_0Scalar(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[34:], src[32:] {
		x, out := src[:32], dst[:34]
		var amax uint32
		for _, v := range x {
			// Magnitudes compare as integers; a NaN is the greatest, so it
			// reaches the scale and FirstBadBlock.
			if a := math.Float32bits(v) & 0x7fffffff; a > amax {
				amax = a
			}
		}
		d := math.Float32frombits(amax) / 127
		putScale(out, d)
		q := out[2:]
		if !invertible(d) {
			clear(q)
			continue
		}
		id := 1 / d
		for j, v := range x {
			q[j] = byte(roundAway(float32(v * id)))
		}
	}
}

// invertible reports whether d has a finite, nonzero reciprocal. Quotients by
// any other scale are not numbers, and x86's conversion of those to 8 bits is
// zero. 2^-128 is the largest scale whose reciprocal overflows.
func invertible(d float32) bool {
	b := math.Float32bits(d) & 0x7fffffff
	return b > 0x00200000 && b < 0x7f800000
}

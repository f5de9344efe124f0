package quant

import (
	"math"

	"quern/tensor"
)

// q4_0 is ggml's Q4_0: 32 values in 18 bytes.
//
//	 0        2                                        18
//	+--------+------------------------------------------+
//	| d F16  | byte j: q[j] low nibble, q[j+16] high    |
//	+--------+------------------------------------------+
//
// value = (q-8)*d. Encoding: d = m/-8 where m is the value of greatest
// magnitude with its sign, so that it maps to -8; q = trunc(x/d + 8.5), at most
// 15. With importance weights d comes from fitSymmetric.
type q4_0 struct{}

func (q4_0) Type() tensor.Type { return tensor.Q4_0 }

func (q4_0) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[18:] {
		d := getScale(src)
		out, qs := dst[:32], src[2:18]
		for j, b := range qs {
			out[j] = float32(float32(int32(b&15)-8) * d)
			out[j+16] = float32(float32(int32(b>>4)-8) * d)
		}
	}
}

func (q4_0) EncodeRow(dst []byte, src, weights []float32) {
	if weights == nil {
		encodeQ4_0(dst, src)
		return
	}
	fittedCodes{-8, 7}.encode(dst, src, weights, useSIMD)
}

func encodeQ4_0Scalar(dst []byte, src []float32) {
	var q [32]uint8
	for ; len(src) >= 32; dst, src = dst[18:], src[32:] {
		d := extreme(src[:32]) / -8
		putScale(dst, d)
		quantizeOffset(&q, src[:32], d, 8.5, 15)
		packNibbles(dst[2:18], &q)
	}
}

// extreme gives the first value of greatest magnitude, with its sign. A NaN
// counts as the greatest.
func extreme(x []float32) float32 {
	var amax, at uint32
	for _, v := range x {
		b := math.Float32bits(v)
		if a := b & 0x7fffffff; a > amax {
			amax, at = a, b
		}
	}
	return math.Float32frombits(at)
}

// quantizeOffset sets q = trunc(x/d + offset), at most top, for values that lie
// within the codes' range. A zero d gives the middle code to all, a d without a
// finite reciprocal code 0.
func quantizeOffset(q *[32]uint8, x []float32, d, offset float32, top int32) {
	if d != 0 && !invertible(d) {
		clear(q[:])
		return
	}
	id := invert(d)
	for j, v := range x[:32] {
		c := truncate(float32(v*id) + offset)
		if c > top {
			c = top
		}
		q[j] = uint8(c)
	}
}

// packNibbles writes codes of 4 bits, the first half of the block in the low
// nibbles.
func packNibbles(dst []byte, q *[32]uint8) {
	for j := range dst[:16] {
		dst[j] = q[j]&15 | q[j+16]<<4
	}
}

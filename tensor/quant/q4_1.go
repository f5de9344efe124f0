package quant

import (
	"quern/tensor"
)

// q4_1 is ggml's Q4_1: 32 values in 20 bytes.
//
//	 0        2        4                                        20
//	+--------+--------+------------------------------------------+
//	| d F16  | m F16  | byte j: q[j] low nibble, q[j+16] high    |
//	+--------+--------+------------------------------------------+
//
// value = q*d + m. Encoding: m = min, d = (max-min)/15, q = trunc((x-m)/d +
// 0.5), at most 15. With importance weights d and m come from fitAffine.
type q4_1 struct{}

func (q4_1) Type() tensor.Type { return tensor.Q4_1 }

func (q4_1) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[20:] {
		d := getScale(src)
		m := getScale(src[2:])
		out, qs := dst[:32], src[4:20]
		for j, b := range qs {
			out[j] = float32(float32(b&15)*d) + m
			out[j+16] = float32(float32(b>>4)*d) + m
		}
	}
}

func (q4_1) EncodeRow(dst []byte, src, weights []float32) {
	if weights != nil {
		fittedCodes{0, 15}.encode(dst, src, weights, useSIMD)
		return
	}
	var q [32]uint8
	for ; len(src) >= 32; dst, src = dst[20:], src[32:] {
		d, m := quantizeRange(&q, src[:32], 15)
		putScale(dst, d)
		putScale(dst[2:], m)
		packNibbles(dst[4:20], &q)
	}
}

// quantizeRange spreads the codes 0..top over the block's range and gives scale
// and minimum. The first of two zeros of unlike sign is the minimum.
func quantizeRange(q *[32]uint8, x []float32, top int32) (d, m float32) {
	lo, hi := float32(maxFloat), float32(-maxFloat)
	for _, v := range x[:32] {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	d = (hi - lo) / float32(top)
	if !invertible(d) {
		clear(q[:])
		return d, lo
	}
	id := 1 / d
	for j, v := range x[:32] {
		c := truncate(float32((v-lo)*id) + 0.5)
		if c > top {
			c = top
		}
		q[j] = uint8(c)
	}
	return d, lo
}

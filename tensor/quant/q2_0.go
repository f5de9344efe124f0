package quant

import "quern/tensor"

// q2_0 is ggml's Q2_0: 64 values in 18 bytes.
//
//	 0        2                                          18
//	+--------+--------------------------------------------+
//	| d F16  | value j: bits 2(j%4), +1 of byte j/4       |
//	+--------+--------------------------------------------+
//
// value = (q-1)*d. Encoding: d = max|x|, q = round half away(x/d) + 1; code 3
// does not arise.
type q2_0 struct{}

func (q2_0) Type() tensor.Type { return tensor.Q2_0 }

func (q2_0) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 64; dst, src = dst[64:], src[18:] {
		d := getScale(src)
		for j := range dst[:64] {
			dst[j] = float32(float32(int32(src[2+j/4]>>(j%4*2)&3)-1) * d)
		}
	}
}

func (q2_0) EncodeRow(dst []byte, src, _ []float32) {
	for ; len(src) >= 64; dst, src = dst[18:], src[64:] {
		clear(dst[:18])
		d, id := ternaryScale(src[:64])
		putScale(dst, d)
		for j, v := range src[:64] {
			// Where the reciprocal of a subnormal scale is Inf, quotients
			// convert to the least integer and so to code 0.
			dst[2+j/4] |= uint8(clamp(roundAway(float32(v*id)), -1, 2)+1) << (j % 4 * 2)
		}
	}
}

// ternaryScale gives the greatest magnitude and its reciprocal, 0 for a
// magnitude of 0.
func ternaryScale(x []float32) (d, id float32) {
	_, d = argAbs(x)
	return d, invert(d)
}

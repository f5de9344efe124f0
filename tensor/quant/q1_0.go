package quant

import "quern/tensor"

// q1_0 is ggml's Q1_0: 128 values in 18 bytes.
//
//	 0        2                                    18
//	+--------+--------------------------------------+
//	| d F16  | value j: bit j%8 of byte j/8         |
//	+--------+--------------------------------------+
//
// value = d for a set bit, -d for a clear one. Encoding: d = mean of |x|, the
// bit is x >= 0.
type q1_0 struct{}

func (q1_0) Type() tensor.Type { return tensor.Q1_0 }

func (q1_0) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 128; dst, src = dst[128:], src[18:] {
		d := getScale(src)
		for j := range dst[:128] {
			dst[j] = -d
			if src[2+j/8]>>(j%8)&1 == 1 {
				dst[j] = d
			}
		}
	}
}

func (q1_0) EncodeRow(dst []byte, src, _ []float32) {
	for ; len(src) >= 128; dst, src = dst[18:], src[128:] {
		clear(dst[:18])
		var sum float32
		for j, v := range src[:128] {
			sum += abs32(v)
			if v >= 0 {
				dst[2+j/8] |= 1 << (j % 8)
			}
		}
		putScale(dst, sum/128)
	}
}

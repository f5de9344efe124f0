package quant

import (
	"quern/tensor"
)

// kmcuQ4 is the 4-bit block of KMCU: 32 values in 18 bytes.
//
//	 0        2                                             18
//	+--------+-----------------------------------------------+
//	| d F16  | byte j: value 2j low nibble, 2j+1 high        |
//	+--------+-----------------------------------------------+
//
// value = (nibble-8)*d. Encoding: d = max|x|/8 in float32, 1 for a zero block;
// q = round half even(x/d) by division, clamped to -8..7, with d before it is
// rounded to F16. Weights are ignored. A scale from 65520 on, that is a weight
// from 524160 on, becomes Inf: FirstBadBlock finds it.
type kmcuQ4 struct{}

func (kmcuQ4) Type() tensor.Type { return tensor.KMCUQ4 }

func (kmcuQ4) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[18:] {
		d := getScale(src)
		out := dst[:32]
		for j, b := range src[2:18] {
			out[2*j] = float32(float32(int32(b&15)-8) * d)
			out[2*j+1] = float32(float32(int32(b>>4)-8) * d)
		}
	}
}

func (kmcuQ4) EncodeRow(dst []byte, src, _ []float32) { encodeKMCUQ4(dst, src) }

func encodeKMCUQ4Scalar(dst []byte, src []float32) {
	var q [32]uint8
	for ; len(src) >= 32; dst, src = dst[18:], src[32:] {
		d := abs32(extreme(src[:32])) / 8
		if d == 0 {
			// All zero, or so small that an eighth is zero.
			d = 1
		}
		putScale(dst, d)
		for j, v := range src[:32] {
			q[j] = 8
			if d <= maxFloat {
				q[j] = uint8(clamp(nearest(v/d), -8, 7) + 8)
			}
		}
		for j := range dst[2:18] {
			dst[2+j] = q[2*j] | q[2*j+1]<<4
		}
	}
}

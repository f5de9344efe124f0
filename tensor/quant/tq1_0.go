package quant

import "quern/tensor"

// tq1_0 is ggml's TQ1_0: 256 ternary values in 54 bytes, five trits a byte.
//
//	 0                                  48        52       54
//	+----------------------------------+---------+--------+
//	| qs                               | qh      | d F16  |
//	+----------------------------------+---------+--------+
//
//	byte m < 32:        values m, m+32, m+64, m+96, m+128
//	byte 32+m, m < 16:  values 160+m, +16, +32, +48, +64
//	qh[m], m < 4:       values 240+m, +4, +8, +12
//
// A byte holds the base-3 number of its trits, first trit highest, as the
// fraction number/243 of 256 rounded up: times 3^n mod 256, times 3, shifted by
// 8 is trit n. value = (trit-1)*d. Encoding: d = max|x|, trit = round half
// away(x/d) + 1.
type tq1_0 struct{}

// tritRun is a group of bytes whose trits lie stride values apart.
type tritRun struct{ bytes, at, first, stride, trits int }

var tritRuns = [...]tritRun{{32, 0, 0, 32, 5}, {16, 32, 160, 16, 5}, {4, 48, 240, 4, 4}}

func (tq1_0) Type() tensor.Type { return tensor.TQ1_0 }

func (tq1_0) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[54:] {
		d := getScale(src[52:])
		for _, run := range tritRuns {
			for m := range run.bytes {
				b := src[run.at+m]
				for n := range run.trits {
					trit := uint16(b) * 3 >> 8
					dst[run.first+m+n*run.stride] = float32(float32(int32(trit)-1) * d)
					b *= 3
				}
			}
		}
	}
}

func (tq1_0) EncodeRow(dst []byte, src, _ []float32) {
	for ; len(src) >= 256; dst, src = dst[54:], src[256:] {
		d, id := ternaryScale(src[:256])
		putScale(dst[52:], d)
		for _, run := range tritRuns {
			for m := range run.bytes {
				var q uint8
				for n := range 5 {
					q *= 3
					if n < run.trits {
						q += ternary(float32(src[run.first+m+n*run.stride] * id))
					}
				}
				dst[run.at+m] = uint8((uint16(q)*256 + 242) / 243)
			}
		}
	}
}

// ternary is code 0, 1 or 2 of a value divided by the scale. Where the
// reciprocal of a subnormal scale is Inf it is 1: C's lroundf gives the least
// long, whose lower half is zero.
func ternary(q float32) uint8 {
	r := roundAway(q)
	if r < -1 || r > 1 {
		return 1
	}
	return uint8(r + 1)
}

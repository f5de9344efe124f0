package quant

import "quern/tensor"

// tq2_0 is ggml's TQ2_0: 256 ternary values in 66 bytes.
//
//	 0                                              64       66
//	+----------------------------------------------+--------+
//	| byte 32h+m: values 128h+m, +32, +64, +96     | d F16  |
//	| in bits 0-1, 2-3, 4-5, 6-7                   |        |
//	+----------------------------------------------+--------+
//
// value = (q-1)*d. Encoding as TQ1_0.
type tq2_0 struct{}

func (tq2_0) Type() tensor.Type { return tensor.TQ2_0 }

func (tq2_0) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[66:] {
		d := getScale(src[64:])
		for v := range dst[:256] {
			q := src[v>>7*32+v&31] >> (v >> 5 & 3 * 2) & 3
			dst[v] = float32(float32(int32(q)-1) * d)
		}
	}
}

func (tq2_0) EncodeRow(dst []byte, src, _ []float32) {
	for ; len(src) >= 256; dst, src = dst[66:], src[256:] {
		clear(dst[:64])
		d, id := ternaryScale(src[:256])
		putScale(dst[64:], d)
		for v, x := range src[:256] {
			dst[v>>7*32+v&31] |= ternary(float32(x*id)) << (v >> 5 & 3 * 2)
		}
	}
}

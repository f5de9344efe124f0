package quant

import "quern/tensor"

// mxfp4 is ggml's MXFP4: 32 values in 17 bytes.
//
//	 0    1                                          17
//	+----+--------------------------------------------+
//	| e  | byte j: q[j] low nibble, q[j+16] high      |
//	+----+--------------------------------------------+
//
// value = fp4Values[q] * 2^(e-128). Encoding: e = floor(log2 max|x|) - 2 + 127,
// 0 for a zero block; q = the nearest code, the first of equals. e = 255 is no
// value: see FirstBadBlock.
type mxfp4 struct{}

func (mxfp4) Type() tensor.Type { return tensor.MXFP4 }

func (mxfp4) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[17:] {
		d := halfE8M0(src[0])
		for j, b := range src[1:17] {
			dst[j] = float32(fp4Values[b&15] * d)
			dst[j+16] = float32(fp4Values[b>>4] * d)
		}
	}
}

func (mxfp4) EncodeRow(dst []byte, src, _ []float32) {
	var q [32]uint8
	for ; len(src) >= 32; dst, src = dst[17:], src[32:] {
		var e uint8
		switch _, amax := argAbs(src[:32]); {
		case amax > maxFloat:
			e = 255
		case amax > 0:
			e = uint8(floorLog2(amax) - 2 + 127)
		}
		dst[0] = e
		d := halfE8M0(e)
		for j, v := range src[:32] {
			q[j] = nearestFP4(v, d)
		}
		packNibbles(dst[1:17], &q)
	}
}

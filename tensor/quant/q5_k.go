package quant

import "quern/tensor"

// q5_K is ggml's Q5_K: superblocks of 256 values in 176 bytes, 8 blocks of 32.
//
//	 0       2          4         16                48               176
//	+-------+----------+---------+-----------------+-----------------+
//	| d F16 | dmin F16 | sc[12]  | qh: byte v%32,  | low 4 bits, as  |
//	|       |          | as Q4_K | bit v/32        | Q4_K            |
//	+-------+----------+---------+-----------------+-----------------+
//
// value = (d*scale)*q - dmin*min. Encoding as Q4_K with codes up to 31.
type q5_K struct{}

var q5Fit = affineFit{rmin: -0.5, rdelta: 0.1, steps: 15}

func (q5_K) Type() tensor.Type { return tensor.Q5_K }

func (q5_K) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[176:] {
		d, dmin := getScale(src), getScale(src[2:])
		qh := src[16:48]
		for b := range 8 {
			sc, m := getScaleMin(src[4:16], b)
			db, mb := float32(d*float32(sc)), float32(dmin*float32(m))
			qs := src[48+b>>1*32:][:32]
			out := dst[32*b : 32*b+32]
			for l := range out {
				q := qs[l]>>(b&1*4)&15 | qh[l]>>b&1<<4
				out[l] = float32(db*float32(q)) - mb
			}
		}
	}
}

func (q5_K) EncodeRow(dst []byte, src, weights []float32) { encodeQ5_K(dst, src, weights, useSIMD) }

func encodeQ5_K(dst []byte, src, weights []float32, fast bool) {
	encodeMinBlocks(dst, src, weights, &q5Fit, 31, fast)
}

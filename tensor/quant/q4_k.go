package quant

import "quern/tensor"

// q4_K is ggml's Q4_K: superblocks of 256 values in 144 bytes, 8 blocks of 32.
//
//	 0       2          4           16                            144
//	+-------+----------+-----------+------------------------------+
//	| d F16 | dmin F16 | sc[12]    | byte 32p+l: value 64p+l low  |
//	|       |          |           | nibble, 64p+l+32 high        |
//	+-------+----------+-----------+------------------------------+
//
//	scale and min of block j, 6 bits each:
//	j < 4:  scale = sc[j] bits 0-5, min = sc[j+4] bits 0-5
//	j >= 4: scale = sc[j+4] bits 0-3 | sc[j-4] bits 6-7 above,
//	        min = sc[j+4] bits 4-7 | sc[j] bits 6-7 above
//
// value = (d*scale)*q - dmin*min. Encoding: scale and min of each block by
// fitAffine, both to 6 bits, then codes against the stored ones.
type q4_K struct{}

var q4Fit = affineFit{rmin: -1, rdelta: 0.1, steps: 20}

func (q4_K) Type() tensor.Type { return tensor.Q4_K }

func (q4_K) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[144:] {
		d, dmin := getScale(src), getScale(src[2:])
		for b := range 8 {
			sc, m := getScaleMin(src[4:16], b)
			db, mb := float32(d*float32(sc)), float32(dmin*float32(m))
			qs := src[16+b>>1*32:][:32]
			out := dst[32*b : 32*b+32]
			for l := range out {
				out[l] = float32(db*float32(qs[l]>>(b&1*4)&15)) - mb
			}
		}
	}
}

func (q4_K) EncodeRow(dst []byte, src, weights []float32) { encodeQ4_K(dst, src, weights, useSIMD) }

func encodeQ4_K(dst []byte, src, weights []float32, fast bool) {
	encodeMinBlocks(dst, src, weights, &q4Fit, 15, fast)
}

// getScaleMin reads the 6-bit scale and minimum of block j.
func getScaleMin(sc []byte, j int) (scale, m uint8) {
	if j < 4 {
		return sc[j] & 63, sc[j+4] & 63
	}
	return sc[j+4]&15 | sc[j-4]>>6<<4, sc[j+4]>>4 | sc[j]>>6<<4
}

// putScaleMins writes the 6-bit scales and minima of 8 blocks.
func putScaleMins(sc []byte, scales, mins *[8]uint8) {
	for j := range 4 {
		sc[j] = scales[j] | scales[j+4]>>4<<6
		sc[j+4] = mins[j] | mins[j+4]>>4<<6
		sc[j+8] = scales[j+4]&15 | mins[j+4]&15<<4
	}
}

// encodeMinBlocks encodes Q4_K, codes to n = 15, and Q5_K, to 31, whose fifth
// bits lie between the scales and the nibbles.
func encodeMinBlocks(dst []byte, src, weights []float32, fit *affineFit, n int32, fast bool) {
	var l [256]uint8
	s := newLanes(fast)
	if weights != nil {
		fit = &importanceFit
	}
	for len(src) >= 256 {
		var g [2]groups
		count := min(len(src)/256, len(g))
		inLanes := s != nil && s.affine8(&g, src[:256*count], weights, fit, n)
		for i := range count {
			x := src[:256]
			if !inLanes {
				searchMinBlocks(&g[i], &l, x, weights, fit, n)
			}
			ds, ms := finishMinBlocks(dst[:16], &g[i], weights != nil, n, inLanes)
			if inLanes {
				s.recode(&l, x, &g[i], &ds, &ms, 32, 0, n)
			} else {
				for b := range 8 {
					recode(l[32*b:32*b+32], x[32*b:], ds[2*b], ms[2*b], n)
				}
			}
			dst = dst[16:]
			if n == 31 {
				packPlanes(dst, &l, 4)
				dst = dst[32:]
			}
			for p := range 4 {
				packHalves(dst[32*p:], l[64*p:])
			}
			dst, src, weights = dst[128:], src[256:], after(weights, 256)
		}
	}
}

// finishMinBlocks writes the scales and minima that the searches found, and
// gives those that were stored, two entries a block.
func finishMinBlocks(head []byte, g *groups, weighted bool, n int32, fast bool) (ds, ms [16]float32) {
	var sc, mc [8]uint8
	scales, mins, sums := g.scales[:8], g.mins[:8], g.sums[:8]
	if weighted {
		putScale(head, fitPositive(63, scales, sums, sc[:], fast))
		putScale(head[2:], fitPositive(63, mins, sums, mc[:], fast))
		if n == 31 {
			// A fit may be negative and leave a code near 255. ggml bounds it
			// in Q5_K; in Q4_K it runs over the upper bits of block j+4.
			for b := range 8 {
				sc[b], mc[b] = min(sc[b], 63), min(mc[b], 63)
			}
		}
	} else {
		putScale(head, roundScales(sc[:], scales, 63))
		putScale(head[2:], roundScales(mc[:], mins, 63))
	}
	putScaleMins(head[4:16], &sc, &mc)
	d, dmin := getScale(head), getScale(head[2:])
	for b := range 8 {
		sc, m := getScaleMin(head[4:16], b)
		ds[2*b], ms[2*b] = float32(d*float32(sc)), float32(dmin*float32(m))
		ds[2*b+1], ms[2*b+1] = ds[2*b], ms[2*b]
	}
	return ds, ms
}

// searchMinBlocks runs fitAffine over 8 blocks of 32.
func searchMinBlocks(g *groups, l *[256]uint8, x, weights []float32, fit *affineFit, n int32) {
	var w [32]float32
	var sigma2 float32
	if weights != nil {
		sigma2 = 2 * sumSquares(x) / 256
	}
	for b := range 8 {
		xb := x[32*b : 32*b+32]
		if weights == nil {
			mean := sqrt32(sumSquares(xb) / 32)
			for i, v := range xb {
				w[i] = mean + abs32(v)
			}
		} else {
			importance(w[:], xb, weights[32*b:], sigma2)
			g.sums[b] = sum(w[:])
		}
		g.scales[b], g.mins[b] = fitAffine(fit, n, xb, w[:], l[32*b:])
	}
}

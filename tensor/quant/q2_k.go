package quant

import "quern/tensor"

// q2_K is ggml's Q2_K: superblocks of 256 values in 84 bytes, 16 blocks of 16.
//
//	 0                    16                     80      82         84
//	+--------------------+----------------------+-------+----------+
//	| sc[16]: low nibble | byte 32h+l: values   | d F16 | dmin F16 |
//	| scale, high min    | 128h+l, +32, +64,    |       |          |
//	|                    | +96 in bits 0-1, ... |       |          |
//	+--------------------+----------------------+-------+----------+
//
// value = (d*scale)*q - dmin*min. Encoding: scale and min of each block by
// fitAffine, both to 4 bits, then codes against the stored ones.
type q2_K struct{}

var q2Fit = affineFit{rmin: -0.5, rdelta: 0.1, steps: 15, absolute: true}

func (q2_K) Type() tensor.Type { return tensor.Q2_K }

func (q2_K) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[84:] {
		d, dmin := getScale(src[80:]), getScale(src[82:])
		for v := range dst[:256] {
			sc := src[v>>4]
			q := src[16+v>>7*32+v&31] >> (v >> 5 & 3 * 2) & 3
			m := float32(dmin * float32(sc>>4))
			dst[v] = float32(d*float32(sc&15)*float32(q)) - m
		}
	}
}

func (q2_K) EncodeRow(dst []byte, src, weights []float32) { encodeQ2_K(dst, src, weights, useSIMD) }

func encodeQ2_K(dst []byte, src, weights []float32, fast bool) {
	var l [256]uint8
	s := newLanes(fast)
	for ; len(src) >= 256; dst, src = dst[84:], src[256:] {
		x := src[:256]
		var g groups
		fit, sigma2 := &q2Fit, float32(0)
		if weights != nil {
			fit, sigma2 = &importanceFit, sumSquares(x)/256
		}
		inLanes := s != nil && s.affine16(&g, x, weights, sigma2, fit, 3)
		if !inLanes {
			searchQ2_K(&g, &l, x, weights, sigma2, fit)
		}
		var low, high [16]uint8
		if weights == nil {
			putScale(dst[80:], roundScales(low[:], g.scales[:], 15))
			putScale(dst[82:], roundScales(high[:], g.mins[:], 15))
		} else {
			putScale(dst[80:], fitPositive(15, g.scales[:], g.sums[:], low[:], inLanes))
			putScale(dst[82:], fitPositive(15, g.mins[:], g.sums[:], high[:], inLanes))
			weights = weights[256:]
		}
		d, dmin := getScale(dst[80:]), getScale(dst[82:])
		var ds, ms [16]float32
		for b := range low {
			sc := low[b] | high[b]<<4
			dst[b] = sc
			ds[b], ms[b] = float32(d*float32(sc&15)), float32(dmin*float32(sc>>4))
		}
		if inLanes {
			s.recode(&l, x, &g, &ds, &ms, 16, 0, 3)
		} else {
			for b := range 16 {
				recode(l[16*b:16*b+16], x[16*b:], ds[b], ms[b], 3)
			}
		}
		packPairs(dst[16:80], &l)
	}
}

// searchQ2_K runs fitAffine over 16 blocks of 16.
func searchQ2_K(g *groups, l *[256]uint8, x, weights []float32, sigma2 float32, fit *affineFit) {
	var w [16]float32
	for b := range 16 {
		xb := x[16*b : 16*b+16]
		if weights == nil {
			for i, v := range xb {
				w[i] = abs32(v)
			}
		} else {
			importance(w[:], xb, weights[16*b:], sigma2)
		}
		g.sums[b] = sum(w[:])
		g.scales[b], g.mins[b] = fitAffine(fit, 3, xb, w[:], l[16*b:])
	}
}

func sum(x []float32) float32 {
	var s float32
	for _, v := range x {
		s += v
	}
	return s
}

// roundScales maps values that are not negative to codes of 0..n with the
// greatest at n, and gives the step, 0 when all are zero.
func roundScales(codes []uint8, x []float32, n float32) float32 {
	var top float32
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	var inv float32
	if top > 0 {
		inv = n / top
	}
	for i, v := range x {
		c := uint8(nearest(float32(inv * v)))
		if c > uint8(n) && n == 63 {
			c = 63
		}
		codes[i] = c
	}
	if top > 0 {
		return top / n
	}
	return 0
}

// recode gives a block its codes under the scale and minimum that were stored;
// a scale of zero keeps the codes of the search.
func recode(l []uint8, x []float32, d, m float32, n int32) {
	if d == 0 {
		return
	}
	for i := range l {
		l[i] = uint8(clamp(nearest((x[i]+float32(m))/d), 0, n))
	}
}

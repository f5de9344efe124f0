package quant

import "quern/tensor"

// q3_K is ggml's Q3_K: superblocks of 256 values in 110 bytes, 16 blocks of 16.
//
//	 0                32                  96             108     110
//	+----------------+-------------------+--------------+-------+
//	| hmask: byte    | qs: low 2 bits of | sc[12], 6    | d F16 |
//	| v%32, bit v/32 | q+4, as Q2_K      | bits each    |       |
//	+----------------+-------------------+--------------+-------+
//
//	scale j, stored with 32 added: low nibble in sc[j%8], low half for j < 8,
//	high for j >= 8; bits 4-5 in sc[8+j%4] at 2*(j/4)
//
// value = (d*(sc-32))*q with q in -4..3; its mask bit is set from 0 on. With
// weights scales come from fitSymmetric, without from fitSweep.
type q3_K struct{}

func (q3_K) Type() tensor.Type { return tensor.Q3_K }

func q3Scale(sc []byte, j int) int32 {
	lo := sc[j&7] >> (j >> 3 * 4) & 15
	hi := sc[8+j&3] >> (j >> 2 * 2) & 3
	return int32(lo|hi<<4) - 32
}

func (q3_K) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[110:] {
		d := getScale(src[108:])
		for v := range dst[:256] {
			q := int32(src[32+v>>7*32+v&31] >> (v >> 5 & 3 * 2) & 3)
			if src[v&31]>>(v>>5)&1 == 0 {
				q -= 4
			}
			dst[v] = float32(d * float32(q3Scale(src[96:108], v>>4)) * float32(q))
		}
	}
}

func (q3_K) EncodeRow(dst []byte, src, weights []float32) { encodeQ3_K(dst, src, weights, useSIMD) }

func encodeQ3_K(dst []byte, src, weights []float32, fast bool) {
	s := newLanes(fast)
	for ; len(src) >= 256; dst, src = dst[110:], src[256:] {
		encodeQ3_KBlock(dst[:110], src[:256], weights, s)
		weights = after(weights, 256)
	}
}

func encodeQ3_KBlock(dst []byte, x, weights []float32, s *lanes) {
	var l [256]uint8
	var g groups
	var codes [16]uint8
	var inLanes bool
	if weights == nil {
		inLanes = s != nil && s.sweep16(&g, x)
		if !inLanes {
			for b := range 16 {
				g.scales[b] = fitSweep(4, x[16*b:16*b+16], l[16*b:])
			}
		}
		putScale(dst[108:], q3RoundScales(&codes, g.scales[:]))
	} else {
		sigma2 := 2 * sumSquares(x) / 256
		inLanes = s != nil && s.symmetric16(&g, x, weights, sigma2, 4)
		var d float32
		if inLanes {
			d = s.symmetricScales(32, g.scales[:], g.sums[:], codes[:])
		} else {
			searchQ3_K(&g, &l, x, weights, sigma2)
			d = fitSymmetric(32, g.scales[:], g.sums[:], codes[:])
		}
		putScale(dst[108:], d)
	}
	clear(dst[96:108])
	for j, c := range codes {
		dst[96+j&7] |= c & 15 << (j >> 3 * 4)
		dst[104+j&3] |= c >> 4 << (j >> 2 * 2)
	}
	d := getScale(dst[108:])
	var ds, zeros [16]float32
	for b, c := range codes {
		ds[b] = float32(d * float32(int32(c&63)-32))
	}
	if inLanes {
		s.recode(&l, x, &g, &ds, &zeros, 16, -4, 3)
	} else {
		for b, db := range ds {
			if db == 0 {
				continue
			}
			for i, v := range x[16*b : 16*b+16] {
				l[16*b+i] = uint8(clamp(nearest(v/db), -4, 3) + 4)
			}
		}
	}
	packPlanes(dst[:32], &l, 2)
	packPairs(dst[32:96], &l)
}

// searchQ3_K runs fitSymmetric over 16 blocks of 16 with weights.
func searchQ3_K(g *groups, l *[256]uint8, x, weights []float32, sigma2 float32) {
	var w [16]float32
	for b := range 16 {
		xb := x[16*b : 16*b+16]
		importance(w[:], xb, weights[16*b:], sigma2)
		g.sums[b] = sum(w[:])
		g.scales[b] = fitSymmetric(4, xb, w[:], l[16*b:])
	}
}

// q3RoundScales maps scales to codes 0..63 with 32 for zero, so that the one of
// greatest magnitude is 0, and gives the step.
func q3RoundScales(codes *[16]uint8, scales []float32) float32 {
	top, _ := argAbs(scales)
	if top == 0 {
		clear(codes[:])
		return 0
	}
	inv := -32 / top
	for j, s := range scales {
		codes[j] = uint8(clamp(int32(int8(nearest(float32(inv*s)))), -32, 31) + 32)
	}
	return 1 / inv
}

// fitSweep finds a scale for codes -n..n-1, stored with n added, with weights
// x*x: one guess from the extreme, then up to five sweeps over single codes.
func fitSweep(n int32, x []float32, l []uint8) float32 {
	extreme, amax := argAbs(x)
	if amax < groupEps {
		clear(l[:len(x)])
		return 0
	}
	iscale := -float32(n) / extreme
	var sumlx, suml2 float32
	var buf [16]int32
	codes := buf[:len(x)]
	for i, v := range x {
		codes[i] = clamp(nearest(float32(iscale*v)), -n, n-1)
		w, q := float32(v*v), float32(codes[i])
		sumlx += float32(float32(w*v) * q)
		suml2 += float32(float32(w*q) * q)
	}
	for range 5 {
		changed := false
		for i, v := range x {
			w, q := float32(v*v), float32(codes[i])
			slx := sumlx - float32(float32(w*v)*q)
			if !(slx > 0) {
				continue
			}
			sl2 := suml2 - float32(float32(w*q)*q)
			next := clamp(nearest(v*sl2/slx), -n, n-1)
			if next == codes[i] {
				continue
			}
			q = float32(next)
			slx += float32(float32(w*v) * q)
			sl2 += float32(float32(w*q) * q)
			if sl2 > 0 && float32(slx*slx)*suml2 > float32(sumlx*sumlx)*sl2 {
				codes[i] = next
				sumlx, suml2 = slx, sl2
				changed = true
			}
		}
		if !changed {
			break
		}
	}
	for i, c := range codes {
		l[i] = uint8(c + n)
	}
	if suml2 > 0 {
		return sumlx / suml2
	}
	return 0
}

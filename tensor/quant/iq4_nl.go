package quant

import (
	"encoding/binary"

	"quern/tensor"
)

// iq4Values are the 16 levels of IQ4_NL and IQ4_XS.
var iq4Values = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// iq4_NL is ggml's IQ4_NL: 32 values in 18 bytes.
//
//	 0        2                                        18
//	+--------+------------------------------------------+
//	| d F16  | byte j: q[j] low nibble, q[j+16] high    |
//	+--------+------------------------------------------+
//
// value = iq4Values[q]*d. Encoding: d by fitIQ4.
type iq4_NL struct{}

func (iq4_NL) Type() tensor.Type { return tensor.IQ4_NL }

func (iq4_NL) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[18:] {
		d := getScale(src)
		for j, b := range src[2:18] {
			dst[j] = float32(iq4Values[b&15] * d)
			dst[j+16] = float32(iq4Values[b>>4] * d)
		}
	}
}

func (iq4_NL) EncodeRow(dst []byte, src, weights []float32) { encodeIQ4_NL(dst, src, weights, useSIMD) }

func encodeIQ4_NL(dst []byte, src, weights []float32, fast bool) {
	s := newLanes(fast)
	for len(src) >= 32 {
		n := min(len(src)/32*32, 256)
		w := part(weights, 0, n)
		if s == nil || !s.iq4Blocks(dst, src[:n], w) {
			encodeIQ4_NLScalar(dst, src[:n], w)
		}
		dst, src, weights = dst[n/32*18:], src[n:], after(weights, n)
	}
}

func encodeIQ4_NLScalar(dst []byte, src, weights []float32) {
	var q [32]uint8
	for ; len(src) >= 32; dst, src = dst[18:], src[32:] {
		x := src[:32]
		sigma2 := float32(sumSquares(x) * (2.0 / 32))
		d := fitIQ4(x, weights, sigma2)
		putScale(dst, d)
		id := invert(d)
		for j, v := range x {
			q[j] = nearestIQ4(float32(id * v))
		}
		packNibbles(dst[2:18], &q)
		weights = after(weights, 32)
	}
}

// nearestIQ4 gives the level nearest to v, the upper one in a tie.
func nearestIQ4(v float32) uint8 {
	if v <= iq4Values[0] {
		return 0
	}
	if v >= iq4Values[15] {
		return 15
	}
	lo, hi := 0, 15
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; v < iq4Values[mid] {
			hi = mid
		} else {
			lo = mid
		}
	}
	if v-iq4Values[lo] < iq4Values[hi]-v {
		return uint8(lo)
	}
	return uint8(hi)
}

// fitIQ4 finds the scale of 32 values among 16 candidates that put the extreme
// at or near the lowest level.
func fitIQ4(x, weights []float32, sigma2 float32) float32 {
	var w [32]float32
	if weights == nil {
		for i, v := range x {
			w[i] = float32(v * v)
		}
	} else {
		importance(w[:], x, weights, sigma2)
	}
	extreme, amax := argAbs(x)
	if amax < groupEps {
		return 0
	}
	pass := func(id float32) (sumqx, sumq2 float32) {
		for i, v := range x {
			q := iq4Values[nearestIQ4(float32(id*v))]
			sumqx += float32(float32(w[i]*q) * v)
			sumq2 += float32(float32(w[i]*q) * q)
		}
		return sumqx, sumq2
	}
	d := -extreme / iq4Values[0]
	sumqx, sumq2 := pass(1 / d)
	d = 0
	if sumq2 > 0 {
		d = sumqx / sumq2
	}
	best := float32(d * sumqx)
	for t := -7; t <= 7; t++ {
		sumqx, sumq2 := pass((float32(t) + iq4Values[0]) / extreme)
		if sumq2 > 0 && sumqx*sumqx > best*sumq2 {
			d = sumqx / sumq2
			best = float32(d * sumqx)
		}
	}
	return d
}

// iq4_XS is ggml's IQ4_XS: superblocks of 256 values in 136 bytes, 8 blocks of
// 32.
//
//	 0       2        4        8                              136
//	+-------+--------+--------+-------------------------------+
//	| d F16 | sh u16 | sl[4]  | block i: bytes 16i..16i+15,   |
//	|       |        |        | nibbles as IQ4_NL             |
//	+-------+--------+--------+-------------------------------+
//
//	scale of block i, stored with 32 added: low nibble in sl[i/2], low half for
//	even i; bits 4-5 in sh at 2i
//
// value = (d*(scale-32))*iq4Values[q]. Encoding: a scale for each block by
// fitIQ4, the scales to 6 bits, codes against d before its rounding to F16.
type iq4_XS struct{}

func (iq4_XS) Type() tensor.Type { return tensor.IQ4_XS }

func (iq4_XS) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[136:] {
		d := getScale(src)
		sh := binary.LittleEndian.Uint16(src[2:])
		for i := range 8 {
			ls := int32(src[4+i>>1]>>(i&1*4)&15) | int32(sh>>(2*i)&3<<4)
			dl := float32(d * float32(ls-32))
			out := dst[32*i : 32*i+32]
			for j, b := range src[8+16*i : 24+16*i] {
				out[j] = float32(dl * iq4Values[b&15])
				out[j+16] = float32(dl * iq4Values[b>>4])
			}
		}
	}
}

func (iq4_XS) EncodeRow(dst []byte, src, weights []float32) { encodeIQ4_XS(dst, src, weights, useSIMD) }

func encodeIQ4_XS(dst []byte, src, weights []float32, fast bool) {
	s := newLanes(fast)
	for ; len(src) >= 256; dst, src = dst[136:], src[256:] {
		encodeIQ4_XSBlock(dst[:136], src[:256], weights, s)
		weights = after(weights, 256)
	}
}

func encodeIQ4_XSBlock(dst []byte, x, weights []float32, s *lanes) {
	var q [32]uint8
	sigma2 := float32(sumSquares(x) * (2.0 / 256))
	var scales, by [8]float32
	inLanes := s != nil && s.iq4Super(&scales, x, weights, sigma2)
	if !inLanes {
		for i := range scales {
			scales[i] = fitIQ4(x[32*i:32*i+32], part(weights, 32*i, 32), sigma2)
		}
	}
	top, _ := argAbs(scales[:])
	d := -top / 32
	putScale(dst, d)
	id := invert(d)
	clear(dst[4:8])
	var sh uint16
	for i, s := range scales {
		l := clamp(nearest(float32(id*s)), -32, 31)
		by[i] = invert(float32(d * float32(l)))
		dst[4+i>>1] |= uint8(l+32) & 15 << (i & 1 * 4)
		sh |= uint16(l+32) >> 4 << (2 * i)
	}
	binary.LittleEndian.PutUint16(dst[2:], sh)
	if inLanes {
		s.iq4Codes(dst[8:], x, &by)
		return
	}
	for i := range by {
		for j, v := range x[32*i : 32*i+32] {
			q[j] = nearestIQ4(float32(by[i] * v))
		}
		packNibbles(dst[8+16*i:24+16*i], &q)
	}
}

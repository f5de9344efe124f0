package quant

import (
	"encoding/binary"

	"quern/tensor"
)

// q6_K is ggml's Q6_K: superblocks of 256 values in 210 bytes, 16 blocks of 16.
//
//	 0                  128                192            208     210
//	+------------------+------------------+--------------+-------+
//	| ql: low 4 bits   | qh: high 2 bits  | sc int8[16]  | d F16 |
//	+------------------+------------------+--------------+-------+
//
//	half h = 0,1 (128 values v), l = 0..31:
//	ql[64h+l]    low nibble v(l),    high nibble v(l+64)
//	ql[64h+32+l] low nibble v(l+32), high nibble v(l+96)
//	qh[32h+l]    bits 0-1 v(l), 2-3 v(l+32), 4-5 v(l+64), 6-7 v(l+96)
//
// value = (d*sc)*(q-32). Encoding: a scale for each block by fitSymmetric, the
// scales to 8 bits around the one of greatest magnitude, then codes against the
// stored scales.
type q6_K struct{}

func (q6_K) Type() tensor.Type { return tensor.Q6_K }

func (q6_K) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[210:] {
		d := getScale(src[208:])
		sc := src[192:208]
		for v := range dst[:256] {
			h, l := v>>7, v&127
			ql := src[64*h+l&63]
			qh := src[128+32*h+l&31]
			q := int32(ql>>(l>>6*4)&15 | qh>>(l>>5*2)&3<<4)
			dst[v] = float32(float32(d*float32(int8(sc[v>>4]))) * float32(q-32))
		}
	}
}

func (q6_K) EncodeRow(dst []byte, src, weights []float32) { encodeQ6_K(dst, src, weights, useSIMD) }

func encodeQ6_K(dst []byte, src, weights []float32, fast bool) {
	s := newLanes(fast)
	for ; len(src) >= 256; dst, src = dst[210:], src[256:] {
		encodeQ6_KBlock(dst[:210], src[:256], weights, s)
		weights = after(weights, 256)
	}
}

func encodeQ6_KBlock(dst []byte, x, weights []float32, s *lanes) {
	var q [256]uint8
	var g groups
	inLanes := s != nil && s.symmetric16(&g, x, weights, -1, 32)
	if !inLanes {
		for b := range 16 {
			g.scales[b] = fitSymmetric(32, x[16*b:16*b+16], part(weights, 16*b, 16), q[16*b:])
		}
	}
	top, amax := argAbs(g.scales[:])
	if amax < groupEps {
		clear(dst)
		return
	}
	iscale := -128 / top
	putScale(dst[208:], 1/iscale)
	d := getScale(dst[208:])
	var ds, zeros [16]float32
	for b, s := range g.scales {
		c := nearest(float32(iscale * s))
		if c > 127 {
			c = 127
		}
		dst[192+b] = byte(c)
		ds[b] = float32(d * float32(int8(c)))
	}
	if inLanes {
		s.recode(&q, x, &g, &ds, &zeros, 16, -32, 31)
	} else {
		for b, db := range ds {
			if db == 0 {
				continue
			}
			for i, v := range x[16*b : 16*b+16] {
				q[16*b+i] = uint8(clamp(nearest(v/db), -32, 31) + 32)
			}
		}
	}
	for h := range 2 {
		v := q[128*h : 128*h+128]
		for l := 0; l < 32; l += 8 {
			a, b := binary.LittleEndian.Uint64(v[l:]), binary.LittleEndian.Uint64(v[l+32:])
			c, d := binary.LittleEndian.Uint64(v[l+64:]), binary.LittleEndian.Uint64(v[l+96:])
			const low, high = 15 * everyByte, 3 * everyByte
			binary.LittleEndian.PutUint64(dst[64*h+l:], a&low|c&low<<4)
			binary.LittleEndian.PutUint64(dst[64*h+32+l:], b&low|d&low<<4)
			binary.LittleEndian.PutUint64(dst[128+32*h+l:], a>>4&high|b>>4&high<<2|c>>4&high<<4|d>>4&high<<6)
		}
	}
}

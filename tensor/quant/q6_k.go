package quant

import (
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

func (q6_K) EncodeRow(dst []byte, src, weights []float32) {
	for ; len(src) >= 256; dst, src = dst[210:], src[256:] {
		encodeQ6_K(dst[:210], src[:256], weights)
		if weights != nil {
			weights = weights[256:]
		}
	}
}

func encodeQ6_K(dst []byte, x, weights []float32) {
	var q [256]uint8
	var scales [16]float32
	for b := range scales {
		var w []float32
		if weights != nil {
			w = weights[16*b : 16*b+16]
		}
		scales[b] = fitSymmetric(32, x[16*b:16*b+16], w, q[16*b:])
	}
	top, amax := argAbs(scales[:])
	if amax < groupEps {
		clear(dst)
		return
	}
	iscale := -128 / top
	putScale(dst[208:], 1/iscale)
	d := getScale(dst[208:])
	for b, s := range scales {
		c := nearest(float32(iscale * s))
		if c > 127 {
			c = 127
		}
		dst[192+b] = byte(c)
		db := float32(d * float32(int8(c)))
		if db == 0 {
			continue
		}
		for i, v := range x[16*b : 16*b+16] {
			q[16*b+i] = uint8(clamp(nearest(v/db), -32, 31) + 32)
		}
	}
	for h := 0; h < 2; h++ {
		v := q[128*h : 128*h+128]
		for l := 0; l < 32; l++ {
			dst[64*h+l] = v[l]&15 | v[l+64]<<4
			dst[64*h+32+l] = v[l+32]&15 | v[l+96]<<4
			dst[128+32*h+l] = v[l]>>4 | v[l+32]>>4<<2 | v[l+64]>>4<<4 | v[l+96]>>4<<6
		}
	}
}

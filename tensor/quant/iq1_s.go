package quant

import (
	"encoding/binary"

	"quern/tensor"
)

// iq1_S is ggml's IQ1_S: superblocks of 256 values in 50 bytes, 8 blocks of 32.
//
//	 0       2                34                                    50
//	+-------+----------------+--------------------------------------+
//	| d F16 | low 8 bits of  | qh u16 for each block: bits 8-10 of  |
//	|       | 32 entries of  | run l at 3l, scale s in bits 12-14,  |
//	|       | 8 values       | bit 15 set for a shift down          |
//	+-------+----------------+--------------------------------------+
//
// value = d*(2s+1) * (grid + or - 1/8). ggml wants weights.
type iq1_S struct{}

func (iq1_S) Type() tensor.Type { return tensor.IQ1_S }

func (iq1_S) Decode(dst []float32, src []byte) {
	g := gridIQ1S()
	for ; len(dst) >= 256; dst, src = dst[256:], src[50:] {
		d := getScale(src)
		for i := range 8 {
			qh := binary.LittleEndian.Uint16(src[34+2*i:])
			dl := float32(d * float32(2*(qh>>12&7)+1))
			delta := float32(iq1Delta)
			if qh>>15 == 1 {
				delta = -iq1Delta
			}
			for l := range 4 {
				e := int(src[2+4*i+l]) | int(qh>>(3*l)&7)<<8
				for j, v := range g.value(e) {
					dst[32*i+8*l+j] = float32(dl * (v + delta))
				}
			}
		}
	}
}

func (iq1_S) EncodeRow(dst []byte, src, weights []float32) {
	weights = onesFor(weights, len(src))
	for ; len(src) >= 256; dst, src, weights = dst[50:], src[256:], weights[256:] {
		clear(dst[:50])
		sigma2 := 2 * sumSquares(src[:256]) / 256
		var scales [8]float32
		var codes, down [8]uint8
		var qh [8]uint16
		for i := range 8 {
			var entries [4]uint16
			scales[i], down[i], entries = iq1sBlock(src[32*i:32*i+32], weights[32*i:], sigma2)
			for l, e := range entries {
				dst[2+4*i+l] = uint8(e)
				qh[i] |= e >> 8 << (3 * l)
			}
		}
		d, ok := scaleCodes(codes[:], scales[:], 7)
		if ok {
			putScale(dst, float32(d*1.125))
			for i, c := range codes {
				qh[i] |= uint16(c|down[i]<<3) << 12
			}
		}
		for i, h := range qh {
			binary.LittleEndian.PutUint16(dst[34+2*i:], h)
		}
	}
}

// iq1sBlock finds scale, shift (1 is down) and entries of 32 values. Every cut
// of the sorted values into three runs is tried with both shifts.
func iq1sBlock(x, weights []float32, sigma2 float32) (scale float32, down uint8, entries [4]uint16) {
	const n = 32
	var w [n]float32
	importance(w[:], x, weights, sigma2)
	top := maxAbs(x)
	if top < 1e-12 {
		return 0, 0, entries
	}
	s := sorted(x, top)
	var sumx, sumw [n + 1]float32
	for j, i := range s.order {
		sumx[j+1] = sumx[j] + float32(w[i]*x[i])
		sumw[j+1] = sumw[j] + w[i]
	}
	for i1 := 0; i1 <= n; i1++ {
		for i2 := i1; i2 <= n; i2++ {
			x0, x1, x2 := sumx[i1]-sumx[0], sumx[i2]-sumx[i1], sumx[n]-sumx[i2]
			w0, w1, w2 := sumw[i1]-sumw[0], sumw[i2]-sumw[i1], sumw[n]-sumw[i2]
			for shift := range iq1Levels {
				v := &iq1Levels[shift]
				sumqx := float32(x0*v[0]) + float32(x1*v[1]) + float32(x2*v[2])
				sumq2 := float32(float32(w0*v[0])*v[0]) + float32(float32(w1*v[1])*v[1]) + float32(float32(w2*v[2])*v[2])
				s.offer(i1, i2, shift, sumqx, sumq2)
			}
		}
	}
	if s.shift < 0 {
		return 0, 0, entries
	}
	scale, shift := s.scale, s.shift
	codes := s.codes(n, scale < 0)
	if scale < 0 {
		scale, shift = -scale, 1-shift
	}
	g, levels := gridIQ1S(), &iq1Levels[shift]
	moved := false
	for k := range entries {
		e, m := iq1Entry(g, codes[8*k:], x[8*k:], w[8*k:], scale, levels)
		entries[k] = e
		moved = moved || m
	}
	if moved {
		var sumqx, sumq2 float32
		for k, e := range entries {
			sumqx, sumq2 = addFit(sumqx, sumq2, g.entry(int(e)), x[8*k:], w[8*k:], levels, 1)
		}
		if sumqx > 0 && sumq2 > 0 {
			scale = sumqx / sumq2
		}
	}
	return scale, uint8(shift), entries
}

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

func (iq1_S) EncodeRow(dst []byte, src, weights []float32) { encodeIQ1_S(dst, src, weights, useSIMD) }

func encodeIQ1_S(dst []byte, src, weights []float32, fast bool) {
	search := newIQ1Search(fast)
	weights = onesFor(weights, len(src))
	for ; len(src) >= 256; dst, src, weights = dst[50:], src[256:], weights[256:] {
		clear(dst[:50])
		search.load(src[:256], weights, 2*sumSquares(src[:256])/256, 32)
		var scales [8]float32
		var codes, down [8]uint8
		var qh [8]uint16
		for i := range 8 {
			var entries [4]uint16
			scales[i], down[i], entries = search.blockS(src[32*i:32*i+32], i)
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

// blockS finds scale, shift (1 is down) and entries of the 32 values of block b.
func (s *iq1Search) blockS(x []float32, b int) (scale float32, down uint8, entries [4]uint16) {
	w := s.w[32*b : 32*b+32]
	scale, shift, keys, ok := s.lanes.found(b)
	if !ok {
		if scale, shift, keys, ok = splitS(x, w); !ok {
			return 0, 0, entries
		}
	}
	if scale < 0 {
		scale, shift = -scale, 1-shift
	}
	levels := &iq1Levels[shift]
	scale = s.settle(entries[:], &keys, x, w, scale, &[4]*[8]float32{levels, levels, levels, levels})
	return scale, uint8(shift), entries
}

// splitS tries every cut of the sorted values into three runs with both shifts.
func splitS(x, w []float32) (scale float32, shift int, keys [4]uint32, ok bool) {
	const n = 32
	top := maxAbs(x)
	if top < 1e-12 {
		return 0, 0, keys, false
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
	return s.scale, s.shift, s.keys(n), s.shift >= 0
}

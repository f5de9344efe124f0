package quant

import (
	"encoding/binary"

	"quern/tensor"
)

// iq1_M is ggml's IQ1_M: superblocks of 256 values in 56 bytes, 16 blocks of 16.
//
//	 0                32                  48                      56
//	+----------------+-------------------+------------------------+
//	| low 8 bits of  | qh[16]: a byte    | 4 u16: scale of block  |
//	| 32 entries of  | for each block    | b in word b/4 at 3(b%4)|
//	| 8 values       |                   | d F16 in top nibbles   |
//	+----------------+-------------------+------------------------+
//
//	qh: bits 0-2 and 4-6 are bits 8-10 of the two entries, bits 3 and 7 are set
//	for a shift down. The top nibbles of the four words are d, lowest first.
//
// value = d*(2s+1) * (grid + or - 1/8).
type iq1_M struct{}

func (iq1_M) Type() tensor.Type { return tensor.IQ1_M }

func (iq1_M) Decode(dst []float32, src []byte) {
	g := gridIQ1S()
	for ; len(dst) >= 256; dst, src = dst[256:], src[56:] {
		var sc [4]uint16
		var h uint16
		for k := range sc {
			sc[k] = binary.LittleEndian.Uint16(src[48+2*k:])
			h |= sc[k] >> 12 << (4 * k)
		}
		d := FromF16(h)
		for r := range 32 {
			b := r / 2
			qh := src[32+b] >> (r & 1 * 4)
			dl := float32(d * float32(2*(sc[b/4]>>(3*(b%4))&7)+1))
			delta := float32(iq1Delta)
			if qh&8 != 0 {
				delta = -iq1Delta
			}
			for j, v := range g.value(int(src[r]) | int(qh&7)<<8) {
				dst[8*r+j] = float32(dl * (v + delta))
			}
		}
	}
}

func (iq1_M) EncodeRow(dst []byte, src, weights []float32) { encodeIQ1_M(dst, src, weights, useSIMD) }

func encodeIQ1_M(dst []byte, src, weights []float32, fast bool) {
	search := newIQ1Search(fast)
	w := search.w
	g := gridIQ1S()
	for ; len(src) >= 256; dst, src = dst[56:], src[256:] {
		clear(dst[:56])
		search.load(src[:256], weights, 2*sumSquares(src[:256])/256, 16)
		weights = after(weights, 256)
		var scales [16]float32
		var codes, shifts [16]uint8
		var entries [16][2]uint16
		for b := range 16 {
			scales[b], shifts[b], entries[b] = search.blockM(src[16*b:16*b+16], b)
			dst[2*b], dst[2*b+1] = uint8(entries[b][0]), uint8(entries[b][1])
			dst[32+b] = uint8(entries[b][0]>>8 | entries[b][1]>>8<<4)
		}
		d, ok := scaleCodes(codes[:], scales[:], 7)
		if !ok {
			continue
		}
		// With all codes known, fit d once more to the whole superblock.
		var sc [4]uint16
		var sumqx, sumq2 float32
		for b, c := range codes {
			sc[b/4] |= uint16(c) << (3 * (b % 4))
			dst[32+b] |= shifts[b]>>1<<3 | shifts[b]&1<<7
			for k := range 2 {
				at := 16*b + 8*k
				sumqx, sumq2 = addFit(sumqx, sumq2, g.entry(int(entries[b][k])), src[at:], w[at:], iq1mLevels(shifts[b], k), float32(2*c+1))
			}
		}
		if sumq2 > 0 {
			d = sumqx / sumq2
		}
		var h [2]byte
		putScale(h[:], float32(d*1.1125))
		bits := binary.LittleEndian.Uint16(h[:])
		for k := range sc {
			binary.LittleEndian.PutUint16(dst[48+2*k:], sc[k]|bits>>(4*k)<<12)
		}
	}
}

// iq1mLevels gives the levels of half k of a block. Bit 1 of the shifts is set
// when the first half moves down, bit 0 when the second does.
func iq1mLevels(shifts uint8, k int) *[8]float32 { return &iq1Levels[shifts>>(1-k)&1] }

// blockM finds scale, shifts and entries of the 16 values of block b.
func (s *iq1Search) blockM(x []float32, b int) (scale float32, shifts uint8, entries [2]uint16) {
	w := s.w[16*b : 16*b+16]
	scale, shift, keys, ok := s.lanes.found(b)
	if !ok {
		if scale, shift, keys, ok = splitM(x, w); !ok {
			return 0, 0, entries
		}
	}
	if scale < 0 {
		scale, shift = -scale, 3-shift
	}
	shifts = uint8(shift)
	levels := [4]*[8]float32{iq1mLevels(shifts, 0), iq1mLevels(shifts, 1)}
	scale = s.settle(entries[:], &keys, x, w, scale, &levels)
	return scale, shifts, entries
}

// splitM tries every cut of the sorted values into three runs with the four
// pairs of shifts. Levels
// are one apart, so the sum over three runs folds into total*top - (sum below
// the first cut) - (sum below the second); the order of those operations is
// ggml's since v0.5.0 and decides bytes.
func splitM(x, w []float32) (scale float32, shift int, keys [4]uint32, ok bool) {
	const n = 16
	top := maxAbs(x)
	if top < 1e-7 {
		return 0, 0, keys, false
	}
	s := sorted(x, top)
	var px, pw [2][n + 1]float32 // running sums of each half of the block
	for j, i := range s.order[:n] {
		h := i / 8
		px[h][j+1] = px[h][j] + float32(w[i]*x[i])
		px[1-h][j+1] = px[1-h][j]
		pw[h][j+1] = pw[h][j] + w[i]
		pw[1-h][j+1] = pw[1-h][j]
	}
	for i1 := 0; i1 <= n; i1++ {
		for i2 := i1; i2 <= n; i2++ {
			var qx, q2 [2][2]float32 // by half and shift
			for h := range 2 {
				sx := px[h][i1] + px[h][i2]
				for shift := range iq1Levels {
					v := &iq1Levels[shift]
					// Differences of squared levels: exact constants.
					c1, c2 := float32(v[0]*v[0])-float32(v[1]*v[1]), float32(v[1]*v[1])-float32(v[2]*v[2])
					qx[h][shift] = float32(px[h][n]*v[2]) - sx
					q2[h][shift] = float32(float32(pw[h][n]*v[2])*v[2]) + float32(pw[h][i1]*c1) + float32(pw[h][i2]*c2)
				}
			}
			for k := range 4 {
				s.offer(i1, i2, k, qx[0][k>>1]+qx[1][k&1], q2[0][k>>1]+q2[1][k&1])
			}
		}
	}
	return s.scale, s.shift, s.keys(n), s.shift >= 0
}

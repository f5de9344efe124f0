package quant

import (
	"sync"

	"quern/tensor"
)

// iq3_S is ggml's IQ3_S: superblocks of 256 values in 110 bytes, 8 blocks of 32.
//
//	 0       2               66              74           106          110
//	+-------+---------------+---------------+------------+------------+
//	| d F16 | low 8 bits of | qh[8]: bit 8  | 8 signs of | sc[4]: a   |
//	|       | 64 entries of | of entry r in | each run   | nibble for |
//	|       | 4 values      | byte r/8      | of 8       | each block |
//	+-------+---------------+---------------+------------+------------+
//
// value = d*(1+2s) * grid * sign.
//
// ggml's encoder does not step over a block of 32 zeros: the entries and signs
// of the blocks after it, but not their ninth bits and scales, are stored one
// block too low, and the superblock decodes to something else. The bytes here
// are the same. Matrices with runs of zeros want another type.
type iq3_S struct{}

func (iq3_S) Type() tensor.Type { return tensor.IQ3_S }

func (iq3_S) Decode(dst []float32, src []byte) {
	g := gridIQ3S()
	for ; len(dst) >= 256; dst, src = dst[256:], src[110:] {
		d := getScale(src)
		for r := range 64 {
			e := int(src[2+r]) | int(src[66+r/8]>>(r%8)&1)<<8
			s := src[106+r/16] >> (r / 8 & 1 * 4) & 15
			db := float32(d * float32(1+2*s))
			place(dst[4*r:], g.value(e), db, src[74+r/2]>>(r%2*4))
		}
	}
}

// fitIQ3_S is the search of IQ3_S.
var fitIQ3_S = sync.OnceValue(func() *latticeFit {
	return &latticeFit{grid: gridIQ3S(), lists: listsIQ3S, group: 32, top: 7, steps: 9, step: 0.2, refitAll: true}
})

func (iq3_S) EncodeRow(dst []byte, src, weights []float32) { encodeIQ3_S(dst, src, weights, useSIMD) }

func encodeIQ3_S(dst []byte, src, weights []float32, fast bool) {
	search := newLatticeSearch(fitIQ3_S(), fast)
	for ; len(src) >= 256; dst, src = dst[110:], src[256:] {
		clear(dst[:110])
		sigma2 := 2 * sumSquares(src[:256]) / 256
		search.load(src[:256], weights, sigma2, 0)
		weights = after(weights, 256)
		var scales [8]float32
		var codes [8]uint8
		at := 0 // the place of the next block that is not zero
		for i := range 8 {
			s, ok := search.search(i)
			if !ok {
				continue
			}
			scales[i] = s
			for k := range 8 {
				dst[2+8*at+k] = uint8(search.entries[k])
				dst[66+i] |= uint8(search.entries[k]>>8) << k
			}
			copy(dst[74+4*at:78+4*at], search.signs[:])
			at++
		}
		d, ok := scaleCodes(codes[:], scales[:], 15)
		if !ok {
			continue
		}
		putScale(dst, float32(d*1.033))
		for i := range 4 {
			dst[106+i] = codes[2*i] | codes[2*i+1]<<4
		}
	}
}

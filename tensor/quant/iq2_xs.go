package quant

import (
	"encoding/binary"
	"sync"

	"quern/tensor"
)

// iq2_XS is ggml's IQ2_XS: superblocks of 256 values in 74 bytes, 16 blocks of
// 16.
//
//	 0       2                               66                74
//	+-------+--------------------------------+------------------+
//	| d F16 | u16 for each run of 8: entry   | sc[8]: scale of  |
//	|       | bits 0-8, 7 signs above        | block 2i low, of |
//	|       |                                | 2i+1 high nibble |
//	+-------+--------------------------------+------------------+
//
// Signs and values as IQ2_XXS. ggml wants weights.
type iq2_XS struct{}

func (iq2_XS) Type() tensor.Type { return tensor.IQ2_XS }

func (iq2_XS) Decode(dst []float32, src []byte) {
	g := gridIQ2XS()
	for ; len(dst) >= 256; dst, src = dst[256:], src[74:] {
		d := getScale(src)
		for r := range 32 {
			q := binary.LittleEndian.Uint16(src[2+2*r:])
			s := src[66+r/4] >> (r / 2 & 1 * 4) & 15
			db := float32(d * (0.5 + float32(s)) * 0.25)
			place(dst[8*r:], g.value(int(q&511)), db, parity8(uint8(q>>9)))
		}
	}
}

// fitIQ2_XS is the search of IQ2_XS.
var fitIQ2_XS = sync.OnceValue(func() *latticeFit {
	return &latticeFit{grid: gridIQ2XS(), lists: listsIQ2XS, group: 16, top: 2, steps: 9, step: 0.1, eps: groupEps, parity: true}
})

func (iq2_XS) EncodeRow(dst []byte, src, weights []float32) { encodeIQ2_XS(dst, src, weights, useSIMD) }

func encodeIQ2_XS(dst []byte, src, weights []float32, fast bool) {
	weights = onesFor(weights, len(src))
	search := newLatticeSearch(fitIQ2_XS(), fast)
	for ; len(src) >= 256; dst, src = dst[74:], src[256:] {
		clear(dst[:74])
		sigma2 := sumSquares(src[:256]) / 256
		search.load(src[:256], weights, sigma2, 0)
		weights = after(weights, 256)
		var scales [16]float32
		var codes [16]uint8
		for i := range 16 {
			s, ok := search.search(i)
			if !ok {
				continue
			}
			scales[i] = s
			for k := range 2 {
				binary.LittleEndian.PutUint16(dst[2+4*i+2*k:], search.entries[k]|uint16(search.signs[k]&127)<<9)
			}
		}
		d, ok := scaleCodes(codes[:], scales[:], 15)
		if !ok {
			clear(dst[:74])
			continue
		}
		putScale(dst, d)
		for i := range 8 {
			dst[66+i] = codes[2*i] | codes[2*i+1]<<4
		}
	}
}

package quant

import (
	"encoding/binary"
	"sync"

	"quern/tensor"
)

// iq2_XXS is ggml's IQ2_XXS: superblocks of 256 values in 66 bytes, 8 blocks of
// 32.
//
//	 0       2                                                 66
//	+-------+---------------------------------------------------+
//	| d F16 | block i at 2+8i: 4 grid entries of 8 values, then |
//	|       | u32: 4 times 7 signs, scale s in the top 4 bits   |
//	+-------+---------------------------------------------------+
//
// The eighth sign of a run makes the number of negative values even. value =
// (d*(0.5+s)/4) * grid * sign. ggml wants weights.
type iq2_XXS struct{}

func (iq2_XXS) Type() tensor.Type { return tensor.IQ2_XXS }

func (iq2_XXS) Decode(dst []float32, src []byte) {
	g := gridIQ2XXS()
	for ; len(dst) >= 256; dst, src = dst[256:], src[66:] {
		d := getScale(src)
		for i := range 8 {
			b := src[2+8*i : 10+8*i]
			bits := binary.LittleEndian.Uint32(b[4:])
			db := float32(d * (0.5 + float32(bits>>28)) * 0.25)
			for l := range 4 {
				place(dst[32*i+8*l:], g.value(int(b[l])), db, parity8(uint8(bits>>(7*l)&127)))
			}
		}
	}
}

// fitIQ2_XXS is the search of IQ2_XXS.
var fitIQ2_XXS = sync.OnceValue(func() *latticeFit {
	return &latticeFit{grid: gridIQ2XXS(), lists: listsIQ2XXS, group: 32, top: 2, steps: 6, step: 0.1, eps: groupEps, parity: true, positive: true, refitAll: true}
})

func (iq2_XXS) EncodeRow(dst []byte, src, weights []float32) {
	encodeIQ2_XXS(dst, src, weights, useSIMD)
}

func encodeIQ2_XXS(dst []byte, src, weights []float32, fast bool) {
	weights = onesFor(weights, len(src))
	search := newLatticeSearch(fitIQ2_XXS(), fast)
	for ; len(src) >= 256; dst, src = dst[66:], src[256:] {
		clear(dst[:66])
		sigma2 := sumSquares(src[:256]) / 256
		search.load(src[:256], weights, sigma2, 0)
		weights = after(weights, 256)
		var scales [8]float32
		var codes [8]uint8
		var words [8]uint32
		for i := range 8 {
			s, ok := search.search(i)
			if !ok {
				continue
			}
			scales[i] = s
			for l := range 4 {
				dst[2+8*i+l] = uint8(search.entries[l])
				words[i] |= uint32(search.signs[l]&127) << (7 * l)
			}
		}
		d, ok := scaleCodes(codes[:], scales[:], 15)
		if !ok {
			clear(dst[:66])
			continue
		}
		putScale(dst, d)
		for i, c := range codes {
			binary.LittleEndian.PutUint32(dst[6+8*i:], words[i]|uint32(c)<<28)
		}
	}
}

package quant

import (
	"encoding/binary"

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

func (iq2_XXS) EncodeRow(dst []byte, src, weights []float32) {
	weights = onesFor(weights, len(src))
	fit := latticeFit{grid: gridIQ2XXS(), group: 32, top: 2, steps: 6, step: 0.1, eps: groupEps, positive: true, refitAll: true}
	var g latticeGroup
	for ; len(src) >= 256; dst, src, weights = dst[66:], src[256:], weights[256:] {
		clear(dst[:66])
		sigma2 := sumSquares(src[:256]) / 256
		var scales [8]float32
		var codes [8]uint8
		var words [8]uint32
		for i := range 8 {
			x := src[32*i : 32*i+32]
			g.weigh(x, weights[32*i:32*i+32], sigma2, 0)
			g.fold(x, true)
			s, ok := fit.fit(&g)
			if !ok {
				continue
			}
			scales[i] = s
			for l := range 4 {
				dst[2+8*i+l] = uint8(g.entries[l])
				words[i] |= uint32(g.signs[l]&127) << (7 * l)
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

package quant

import (
	"encoding/binary"

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

func (iq2_XS) EncodeRow(dst []byte, src, weights []float32) {
	weights = onesFor(weights, len(src))
	fit := latticeFit{grid: gridIQ2XS(), group: 16, top: 2, steps: 9, step: 0.1, eps: groupEps}
	var g latticeGroup
	for ; len(src) >= 256; dst, src, weights = dst[74:], src[256:], weights[256:] {
		clear(dst[:74])
		sigma2 := sumSquares(src[:256]) / 256
		var scales [16]float32
		var codes [16]uint8
		for i := range 16 {
			x := src[16*i : 16*i+16]
			g.weigh(x, weights[16*i:16*i+16], sigma2, 0)
			g.fold(x, true)
			s, ok := fit.fit(&g)
			if !ok {
				continue
			}
			scales[i] = s
			for k := range 2 {
				binary.LittleEndian.PutUint16(dst[2+4*i+2*k:], g.entries[k]|uint16(g.signs[k]&127)<<9)
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

package quant

import (
	"encoding/binary"
	"sync"

	"quern/tensor"
)

// iq3_XXS is ggml's IQ3_XXS: superblocks of 256 values in 98 bytes, 8 blocks of
// 32.
//
//	 0       2                        66                          98
//	+-------+------------------------+----------------------------+
//	| d F16 | 64 entries of 4 values | u32 for each block: signs  |
//	|       |                        | and scale as IQ2_XXS       |
//	+-------+------------------------+----------------------------+
//
// value = (d*(0.5+s)/2) * grid * sign.
type iq3_XXS struct{}

func (iq3_XXS) Type() tensor.Type { return tensor.IQ3_XXS }

func (iq3_XXS) Decode(dst []float32, src []byte) {
	g := gridIQ3XXS()
	for ; len(dst) >= 256; dst, src = dst[256:], src[98:] {
		d := getScale(src)
		for r := range 64 {
			bits := binary.LittleEndian.Uint32(src[66+r/8*4:])
			db := float32(d * (0.5 + float32(bits>>28)) * 0.5)
			signs := parity8(uint8(bits >> (r / 2 % 4 * 7) & 127))
			place(dst[4*r:], g.value(int(src[2+r])), db, signs>>(r%2*4))
		}
	}
}

// fitIQ3_XXS is the search of IQ3_XXS.
var fitIQ3_XXS = sync.OnceValue(func() *latticeFit {
	return &latticeFit{grid: gridIQ3XXS(), lists: listsIQ3XXS, group: 32, top: 7, steps: 15, step: 0.2, eps: 1e-8, parity: true}
})

func (iq3_XXS) EncodeRow(dst []byte, src, weights []float32) {
	encodeIQ3_XXS(dst, src, weights, useSIMD)
}

func encodeIQ3_XXS(dst []byte, src, weights []float32, fast bool) {
	search := newLatticeSearch(fitIQ3_XXS(), fast)
	for ; len(src) >= 256; dst, src = dst[98:], src[256:] {
		clear(dst[:98])
		sigma2 := 2 * sumSquares(src[:256]) / 256
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
			for k := range 8 {
				dst[2+8*i+k] = uint8(search.entries[k])
			}
			for l := range 4 {
				words[i] |= uint32(search.signs[l]&127) << (7 * l)
			}
		}
		d, ok := scaleCodes(codes[:], scales[:], 15)
		if !ok {
			clear(dst[:98])
			continue
		}
		putScale(dst, float32(d*1.0125))
		for i, c := range codes {
			binary.LittleEndian.PutUint32(dst[66+4*i:], words[i]|uint32(c)<<28)
		}
	}
}

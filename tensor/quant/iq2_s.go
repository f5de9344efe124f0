package quant

import (
	"sync"

	"quern/tensor"
)

// iq2_S is ggml's IQ2_S: superblocks of 256 values in 82 bytes, 16 blocks of 16.
//
//	 0       2              34              66             74       82
//	+-------+--------------+---------------+--------------+--------+
//	| d F16 | low 8 bits   | 8 signs of    | qh[8]: bits  | sc[8]  |
//	|       | of 32        | each run      | 8-9 of run r | as     |
//	|       | entries      |               | in byte r/4  | IQ2_XS |
//	+-------+--------------+---------------+--------------+--------+
//
// value = (d*(0.5+s)/4) * grid * sign.
type iq2_S struct{}

func (iq2_S) Type() tensor.Type { return tensor.IQ2_S }

func (iq2_S) Decode(dst []float32, src []byte) {
	g := gridIQ2S()
	for ; len(dst) >= 256; dst, src = dst[256:], src[82:] {
		d := getScale(src)
		for r := range 32 {
			e := int(src[2+r]) | int(src[66+r/4]>>(r%4*2)&3)<<8
			s := src[74+r/4] >> (r / 2 & 1 * 4) & 15
			db := float32(d * (0.5 + float32(s)) * 0.25)
			place(dst[8*r:], g.value(e), db, src[34+r])
		}
	}
}

// fitIQ2_S is the search of IQ2_S.
var fitIQ2_S = sync.OnceValue(func() *latticeFit {
	return &latticeFit{grid: gridIQ2S(), lists: listsIQ2S, group: 16, top: 2, steps: 9, step: 0.1, eps: 1e-8}
})

func (iq2_S) EncodeRow(dst []byte, src, weights []float32) { encodeIQ2_S(dst, src, weights, useSIMD) }

func encodeIQ2_S(dst []byte, src, weights []float32, fast bool) {
	search := newLatticeSearch(fitIQ2_S(), fast)
	for ; len(src) >= 256; dst, src = dst[82:], src[256:] {
		clear(dst[:82])
		sigma2 := 2 * sumSquares(src[:256]) / 256
		search.load(src[:256], weights, sigma2, float32(0.25*sigma2))
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
				r := 2*i + k
				dst[2+r] = uint8(search.entries[k])
				dst[34+r] = search.signs[k]
				dst[66+r/4] |= uint8(search.entries[k]>>8) << (r % 4 * 2)
			}
		}
		d, ok := scaleCodes(codes[:], scales[:], 15)
		if !ok {
			continue
		}
		putScale(dst, float32(d*0.9875))
		for i := range 8 {
			dst[74+i] = codes[2*i] | codes[2*i+1]<<4
		}
	}
}

// part is n weights from i on, nil for no weights.
func part(w []float32, i, n int) []float32 {
	if w == nil {
		return nil
	}
	return w[i : i+n]
}

// after is the weights from n on, nil for no weights.
func after(w []float32, n int) []float32 {
	if w == nil {
		return nil
	}
	return w[n:]
}

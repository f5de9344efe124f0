package quant

import (
	"math"

	"quern/tensor"
)

// nvfp4 is ggml's NVFP4: 64 values in 36 bytes, four blocks of 16.
//
//	 0        4                                                36
//	+--------+--------------------------------------------------+
//	| d[4]   | block s: bytes 8s..8s+7, byte j: q[j] low nibble, |
//	| UE4M3  | q[j+8] high                                      |
//	+--------+--------------------------------------------------+
//
// value = fp4Values[q] * d/2 with d an unsigned 8-bit float: 4 exponent bits of
// bias 7, 3 mantissa bits. Encoding: d = UE4M3(max|x|/6), q = the nearest code.
// Values beyond 2688 are cut to what scale 448 can hold.
type nvfp4 struct{}

func (nvfp4) Type() tensor.Type { return tensor.NVFP4 }

func (nvfp4) Decode(dst []float32, src []byte) {
	for ; len(dst) >= 64; dst, src = dst[64:], src[36:] {
		for s := range 4 {
			d := halfUE4M3(src[s])
			out := dst[16*s : 16*s+16]
			for j, b := range src[4+8*s : 12+8*s] {
				out[j] = float32(fp4Values[b&15] * d)
				out[j+8] = float32(fp4Values[b>>4] * d)
			}
		}
	}
}

func (nvfp4) EncodeRow(dst []byte, src, _ []float32) {
	for ; len(src) >= 64; dst, src = dst[36:], src[64:] {
		for s := range 4 {
			x := src[16*s : 16*s+16]
			_, amax := argAbs(x)
			dst[s] = toUE4M3(amax / 6)
			d := halfUE4M3(dst[s])
			for j := range 8 {
				dst[4+8*s+j] = nearestFP4(x[j], d) | nearestFP4(x[j+8], d)<<4
			}
		}
	}
}

// halfUE4M3 decodes half of an unsigned E4M3 scale. Code 0x7F is zero and the
// bit that would be the sign is ignored.
func halfUE4M3(b uint8) float32 {
	if b == 0 || b == 0x7f {
		return 0
	}
	exp, man := uint32(b>>3&15), uint32(b&7)
	if exp == 0 {
		return float32(float32(man) * (1.0 / 1024))
	}
	return math.Float32frombits((exp+119)<<23 | man<<20)
}

// toUE4M3 rounds a scale, halves up, to at most 448.
func toUE4M3(x float32) uint8 {
	if !(x > 0) {
		return 0
	}
	if x > 448 {
		x = 448
	}
	b := math.Float32bits(x)
	exp := int32(b>>23) - 127 + 7
	if exp <= 0 {
		return uint8(clamp(truncate(float32(x*512)+0.5), 0, 7))
	}
	if exp >= 15 {
		return 0x7e
	}
	man := b>>20&7 + b>>19&1
	if man == 8 {
		man = 0
		exp++
		if exp >= 15 {
			return 0x7e
		}
	}
	return uint8(exp<<3) | uint8(man)
}

package quant

import (
	"math"

	"quern/tensor"
)

// 8-bit floats of safetensors checkpoints, read only.
//
//	F8_E4M3  s eeee mmm   bias 7, no infinities; 0x7F and 0xFF are NaN, 0x7E is 448
//	F8_E5M2  s eeeee mm   the upper byte of an IEEE half, with Inf and NaN
type (
	f8e4m3 struct{}
	f8e5m2 struct{}
)

func (f8e4m3) Type() tensor.Type { return tensor.F8E4M3 }
func (f8e5m2) Type() tensor.Type { return tensor.F8E5M2 }

func (f8e4m3) Decode(dst []float32, src []byte) {
	for i, b := range src[:len(dst)] {
		dst[i] = fromF8E4M3(b)
	}
}

func (f8e5m2) Decode(dst []float32, src []byte) {
	for i, b := range src[:len(dst)] {
		dst[i] = FromF16(uint16(b) << 8)
	}
}

func fromF8E4M3(b byte) float32 {
	sign := uint32(b&0x80) << 24
	abs := uint32(b & 0x7f)
	switch {
	case abs == 0x7f:
		return math.Float32frombits(sign | 0x7fc00000)
	case abs < 8: // subnormal: mmm * 2^-9, exact
		return math.Float32frombits(sign | math.Float32bits(float32(float32(abs)*(1.0/512))))
	}
	return math.Float32frombits(sign | (abs<<20 + 120<<23))
}

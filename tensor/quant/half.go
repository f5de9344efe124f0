package quant

import (
	"encoding/binary"
	"math"
)

// 16-bit floats.
//
//	F16   s eeeee mmmmmmmmmm        bias 15, subnormals, Inf, NaN (IEEE binary16)
//	BF16  s eeeeeeee mmmmmmm        the upper half of a float32
//
// The rules are those of ggml's reference conversions and of x86's F16C: round
// to nearest even with subnormals, overflow to Inf. Encoding drops a NaN's
// payload for F16 (0x7E00 with the sign) and keeps its upper part for BF16;
// decoding keeps payloads and makes them quiet for F16.

// FromF16 widens an IEEE half. It is exact.
func FromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	abs := uint32(h & 0x7fff)
	switch {
	case abs >= 0x7c00:
		b := sign | 0x7f800000 | (abs&0x3ff)<<13
		if abs > 0x7c00 {
			b |= 0x00400000
		}
		return math.Float32frombits(b)
	case abs < 0x0400:
		// The product with a power of two is exact: a subnormal half is a
		// normal float32.
		return math.Float32frombits(sign | math.Float32bits(float32(float32(abs)*(1.0/(1<<24)))))
	}
	return math.Float32frombits(sign | (abs<<13 + 112<<23))
}

// ToF16 rounds to an IEEE half. Finite values from 65520 on become Inf, those
// up to 2^-25 become zero.
func ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	abs := b & 0x7fffffff
	switch {
	case abs >= 0x47800000: // 65536
		if abs > 0x7f800000 {
			return sign | 0x7e00
		}
		return sign | 0x7c00
	case abs < 0x38800000: // 2^-14: a subnormal half
		// Adding 0.5, whose last place is 2^-24, rounds to the subnormal
		// half's last place in one float32 addition.
		return sign | uint16(math.Float32bits(math.Float32frombits(abs)+0.5)-0x3f000000)
	}
	return sign | uint16((abs+0xfff+(abs>>13)&1-112<<23)>>13)
}

// FromBF16 widens a bfloat16. It is exact and keeps every bit of a NaN.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBF16 rounds to a bfloat16. A NaN keeps its sign and upper payload and
// becomes quiet.
func ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

// putScale stores a block's scale as F16. A NaN loses its sign: whether the
// outcome of an undefined operation has one depends on the machine.
func putScale(dst []byte, d float32) {
	h := ToF16(d)
	if d != d {
		h = 0x7e00
	}
	binary.LittleEndian.PutUint16(dst, h)
}

// getScale reads an F16 scale.
func getScale(src []byte) float32 { return FromF16(binary.LittleEndian.Uint16(src)) }

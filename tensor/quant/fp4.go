package quant

import (
	"math"
	"math/bits"
)

// fp4Values are the 16 codes of E2M1 (sign, two exponent bits, one mantissa
// bit), doubled to be integers.
var fp4Values = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// nearestFP4 gives the first code that is nearest to x at scale d.
func nearestFP4(x, d float32) uint8 {
	best := 0
	bestErr := abs32(float32(fp4Values[0]*d) - x)
	for i := 1; i < 16; i++ {
		if e := abs32(float32(fp4Values[i]*d) - x); e < bestErr {
			best, bestErr = i, e
		}
	}
	return uint8(best)
}

// halfE8M0 is half of the power of two 2^(e-127) that MXFP4 stores as e.
func halfE8M0(e uint8) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// floorLog2 is floor(log2(x)) where log2 is rounded to float32 first, as C's
// log2f does: just under a power of two the logarithm rounds up to the integer.
// x is positive and finite.
func floorLog2(x float32) int32 {
	b := math.Float32bits(x)
	exp, man := int32(b>>23), b&0x7fffff|0x800000
	if exp == 0 {
		shift := bits.LeadingZeros32(b) - 8
		exp, man = 1-int32(shift), b<<shift
	}
	k := exp - 127 + 1 // the power of two above x
	// x is 2^k * (1 - below*2^-24). log2(x) rounds to k when below*2^-24/ln 2
	// is at most half of the float32 spacing under k, which is 2^(j-23) for
	// 2^j < k <= 2^(j+1) and for -2^(j+1) < k <= -2^j.
	below := 0x1000000 - man
	var j int
	switch {
	case k > 0:
		j = bits.Len32(uint32(k-1)) - 1
	case k < 0:
		j = bits.Len32(uint32(-k)) - 1
	default:
		j = -1
	}
	// The limit is floor(2^j * ln 2).
	if j >= 0 && below <= [...]uint32{0, 1, 2, 5, 11, 22, 44, 88}[j] {
		return k
	}
	return k - 1
}

package quant

import "math"

// Roundings of the encoders. The argument is converted first: a product that
// the caller hands over must be rounded before the addition in here, or a
// compiler that inlines the function may fuse the two.

const (
	// groupEps is the magnitude under which ggml takes a group of values as
	// all zero.
	groupEps = 1e-15
	maxFloat = math.MaxFloat32
)

// nearest rounds half to even by adding 1.5*2^23, which leaves the integer in
// the low mantissa bits. Beyond 2^22 the result wraps, as ggml's does.
func nearest(x float32) int32 {
	return int32(math.Float32bits(float32(x)+12582912)&0x7fffff) - 0x400000
}

// roundAway rounds half away from zero. It adds the largest float32 under one
// half, so that 0.49999997 stays 0 while 0.5, a tie in the sum, goes to 1.
func roundAway(x float32) int32 {
	const half = 0x3effffff
	sign := math.Float32bits(x) & 0x80000000
	return truncate(float32(x) + math.Float32frombits(half|sign))
}

// truncate rounds toward zero and gives the least int32 for what does not fit,
// NaN included. It is x86's conversion; Go leaves that case to the machine.
func truncate(x float32) int32 {
	if x > -1<<31 && x < 1<<31 {
		return int32(x)
	}
	return math.MinInt32
}

func clamp(v, lo, hi int32) int32 {
	if v < lo {
		return lo
	}
	if v > hi {
		return hi
	}
	return v
}

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ 0x80000000) }

// sqrt32 is exact: the float64 root of a float32 rounds to the same float32.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// invert is 1/d, and 0 for 0.
func invert(d float32) float32 {
	if d != 0 {
		return 1 / d
	}
	return 0
}

// argAbs gives the first value of greatest magnitude, and the magnitude.
func argAbs(x []float32) (v, amax float32) {
	for _, f := range x {
		if a := abs32(f); a > amax {
			amax, v = a, f
		}
	}
	return v, amax
}

// sumSquares is the sequential sum of x*x.
func sumSquares(x []float32) float32 {
	var s float32
	for _, v := range x {
		s += float32(v * v)
	}
	return s
}

// importance fills dst with the weights of an importance-guided search:
// w * sqrt(sigma2 + x*x).
func importance(dst, x, w []float32, sigma2 float32) {
	for i, v := range x {
		dst[i] = float32(w[i] * sqrt32(float32(sigma2)+float32(v*v)))
	}
}

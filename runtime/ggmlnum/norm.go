package ggmlnum

import (
	"math"

	"quern/runtime/num"
)

// RMSNorm writes x / sqrt(mean(x^2) + eps), times w where w is not nil, to dst, which may be x. All have one length. Squares
// are rounded to float32 and added in order in float64.
func RMSNorm(dst, x, w []float32, eps float32) {
	sum := 0.0
	for _, v := range x {
		sum += float64(float32(v * v))
	}
	mean := float32(sum / float64(len(x)))
	by := 1 / num.Sqrt(mean+eps)
	dst = dst[:len(x)]
	if w == nil {
		for i, v := range x {
			dst[i] = float32(v * by)
		}
		return
	}
	w = w[:len(x)]
	for i, v := range x {
		dst[i] = float32(float32(v*by) * w[i])
	}
}

// negInf is what masks are made of.
var negInf = float32(math.Inf(-1))

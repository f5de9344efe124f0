//go:build !noasm

package num

import (
	"os"

	"golang.org/x/sys/cpu"
)

// useAVX2 is decided once, at start. It changes the speed, not the bits.
var useAVX2 = cpu.X86.HasAVX2 && os.Getenv("QUERN_NOASM") != "1"

// dots walks the result in tiles of four rows of w and two of x, whose eight
// chains of additions hide each other's latency.
func dots(dst []float32, ld int, w, x Matrix, n int) {
	if !useAVX2 {
		dotsScalar(dst, ld, w, x, n)
		return
	}
	c := 0
	for ; c+2 <= x.Rows; c += 2 {
		b := &x.Data[c*x.Stride]
		r := 0
		for ; r+4 <= w.Rows; r += 4 {
			dots4x2AVX2(&dst[c*ld+r], ld, &w.Data[r*w.Stride], w.Stride, b, x.Stride, n)
		}
		for ; r < w.Rows; r++ {
			dots1x2AVX2(&dst[c*ld+r], ld, &w.Data[r*w.Stride], w.Stride, b, x.Stride, n)
		}
	}
	for ; c < x.Rows; c++ {
		b := &x.Data[c*x.Stride]
		r := 0
		for ; r+4 <= w.Rows; r += 4 {
			dots4x1AVX2(&dst[c*ld+r], ld, &w.Data[r*w.Stride], w.Stride, b, x.Stride, n)
		}
		for ; r < w.Rows; r++ {
			dots1x1AVX2(&dst[c*ld+r], ld, &w.Data[r*w.Stride], w.Stride, b, x.Stride, n)
		}
	}
}

func weightedSum(dst, p []float32, v Matrix) {
	i := 0
	if useAVX2 {
		for ; i+32 <= len(dst); i += 32 {
			weightedSum32AVX2(&dst[i], &p[0], &v.Data[i], v.Stride, len(p))
		}
		for ; i+8 <= len(dst); i += 8 {
			weightedSum8AVX2(&dst[i], &p[0], &v.Data[i], v.Stride, len(p))
		}
	}
	if i < len(dst) {
		weightedSumScalar(dst[i:], p, Matrix{v.Data[i:], v.Rows, v.Stride})
	}
}

// ExpMinus replaces every value v of x by e^(v-m).
func ExpMinus(x []float32, m float32) {
	n := 0
	if useAVX2 {
		if n = len(x) &^ 7; n > 0 {
			expMinusAVX2(&x[0], n, m)
		}
	}
	expMinusScalar(x[n:], m)
}

//go:build !noasm

package num

import (
	"os"

	"golang.org/x/sys/cpu"
)

// useAVX2 is decided once, at start. It changes the speed, not the bits.
var useAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasF16C && os.Getenv("QUERN_NOASM") != "1"

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

// dotsHalf is dots for rows of F16.
func dotsHalf(dst []float32, ld int, w HalfMatrix, x Matrix, n int) {
	if !useAVX2 || n < 8 || n%8 != 0 {
		dotsHalfScalar(dst, ld, w, x, n)
		return
	}
	c := 0
	for ; c+2 <= x.Rows; c += 2 {
		b := &x.Data[c*x.Stride]
		r := 0
		for ; r+4 <= w.Rows; r += 4 {
			dotsHalf4x2AVX2(&dst[c*ld+r], ld, &w.Data[2*r*w.Stride], w.Stride, b, x.Stride, n)
		}
		for ; r < w.Rows; r++ {
			dotsHalf1x2AVX2(&dst[c*ld+r], ld, &w.Data[2*r*w.Stride], w.Stride, b, x.Stride, n)
		}
	}
	for ; c < x.Rows; c++ {
		b := &x.Data[c*x.Stride]
		r := 0
		for ; r+4 <= w.Rows; r += 4 {
			dotsHalf4x1AVX2(&dst[c*ld+r], ld, &w.Data[2*r*w.Stride], w.Stride, b, x.Stride, n)
		}
		for ; r < w.Rows; r++ {
			dotsHalf1x1AVX2(&dst[c*ld+r], ld, &w.Data[2*r*w.Stride], w.Stride, b, x.Stride, n)
		}
	}
}

func addWeighted(dst, p []float32, v Matrix) {
	i := 0
	if useAVX2 {
		for ; i+64 <= len(dst); i += 64 {
			addWeighted64AVX2(&dst[i], &p[0], &v.Data[i], v.Stride, len(p))
		}
		for ; i+32 <= len(dst); i += 32 {
			addWeighted32AVX2(&dst[i], &p[0], &v.Data[i], v.Stride, len(p))
		}
		for ; i+8 <= len(dst); i += 8 {
			addWeighted8AVX2(&dst[i], &p[0], &v.Data[i], v.Stride, len(p))
		}
	}
	if i < len(dst) {
		addWeightedScalar(dst[i:], p, Matrix{v.Data[i:], v.Rows, v.Stride})
	}
}

func addWeightedHalf(dst, p []float32, v HalfMatrix) {
	i := 0
	if useAVX2 {
		for ; i+64 <= len(dst); i += 64 {
			addWeightedHalf64AVX2(&dst[i], &p[0], &v.Data[2*i], v.Stride, len(p))
		}
		for ; i+32 <= len(dst); i += 32 {
			addWeightedHalf32AVX2(&dst[i], &p[0], &v.Data[2*i], v.Stride, len(p))
		}
		for ; i+8 <= len(dst); i += 8 {
			addWeightedHalf8AVX2(&dst[i], &p[0], &v.Data[2*i], v.Stride, len(p))
		}
	}
	if i < len(dst) {
		addWeightedHalfScalar(dst[i:], p, HalfMatrix{v.Data[2*i:], v.Rows, v.Stride})
	}
}

// whole is the number of values that vector code takes: all but the last n%8.
func whole(n int) int {
	if !useAVX2 {
		return 0
	}
	return n &^ 7
}

// The functions below do the first values of what their names say and give the
// number of these.

func expMinus(x []float32, m float32) int {
	n := whole(len(x))
	if n > 0 {
		expMinusAVX2(&x[0], n, m)
	}
	return n
}

func siluMul(g, u []float32) int {
	n := whole(len(g))
	if n > 0 {
		siluMulAVX2(&g[0], &u[0], n)
	}
	return n
}

func geluMul(g, u []float32) int {
	n := whole(len(g))
	if n > 0 {
		geluMulAVX2(&g[0], &u[0], n)
	}
	return n
}

func scale(x []float32, a float32) int {
	n := whole(len(x))
	if n > 0 {
		scaleAVX2(&x[0], n, a)
	}
	return n
}

func add(dst, x []float32) int {
	n := whole(len(dst))
	if n > 0 {
		addAVX2(&dst[0], &x[0], n)
	}
	return n
}

func scaleMul(dst, x, w []float32, a float32) int {
	n := whole(len(dst))
	if n > 0 {
		scaleMulAVX2(&dst[0], &x[0], &w[0], n, a)
	}
	return n
}

func maxLanes(l *[8]float32, x []float32) int {
	n := whole(len(x))
	if n > 0 {
		maxLanesAVX2(&l[0], &x[0], n)
	}
	return n
}

func sumLanes(l *[8]float32, x []float32) int {
	n := whole(len(x))
	if n > 0 {
		sumLanesAVX2(&l[0], &x[0], n)
	}
	return n
}

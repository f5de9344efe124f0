//go:build !noasm

package ggmlnum

import (
	"os"

	"golang.org/x/sys/cpu"
)

// vectors is decided once, at start. It changes the speed, not the bits.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasFMA && os.Getenv("QUERN_NOASM") != "1"

func gemm(c, a, b []float32, m, k, n int) {
	if !vectors || n%8 != 0 || k == 0 {
		gemmScalar(c, a, b, m, k, n)
		return
	}
	if m == 0 || n == 0 {
		return
	}
	_, _, _ = c[m*n-1], a[m*k-1], b[k*n-1]
	for i := 0; i < m; {
		rows, wide, narrow := 6, gemm6x16AVX2, gemm6x8AVX2
		if m-i < 6 {
			rows, wide, narrow = 1, gemm1x16AVX2, gemm1x8AVX2
		}
		j := 0
		for ; j+16 <= n; j += 16 {
			wide(&c[i*n+j], &a[i*k], &b[j], k, n)
		}
		if j < n {
			narrow(&c[i*n+j], &a[i*k], &b[j], k, n)
		}
		i += rows
	}
}

func expSum(x []float32, top float32) float64 {
	if !vectors || len(x) == 0 {
		return expSumScalar(x, top)
	}
	return expSumAVX2(&x[0], len(x), top)
}

func siluMul(x, g []float32) {
	if !vectors || len(x) == 0 {
		siluMulScalar(x, g)
		return
	}
	siluMulAVX2(&x[0], &g[0], len(x))
}

func turn(a, b, cos, sin []float32) {
	n := 0
	if vectors {
		if n = len(a) &^ 7; n > 0 {
			turnAVX2(&a[0], &b[0], &cos[0], &sin[0], n)
		}
	}
	turnScalar(a[n:], b[n:], cos[n:], sin[n:])
}

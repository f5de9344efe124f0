package ggmlnum

import (
	"math"
	"math/rand/v2"
	"testing"
)

// values are numbers of all sizes that activations have, and some that they have not.
func values(r *rand.Rand, n int) []float32 {
	odd := []float32{0, float32(math.Copysign(0, -1)), 126, -126, 87.5, -87.5, 88.5, -88.5, 104, -104, 150, -150, 1e30, -1e30, negInf, 1e-30, 0x1p-126}
	x := make([]float32, n)
	for i := range x {
		if x[i] = float32(r.NormFloat64() * math.Exp(3*r.NormFloat64())); r.IntN(20) == 0 {
			x[i] = odd[r.IntN(len(odd))]
		}
	}
	return x
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !(got[i] != got[i] && want[i] != want[i]) {
			t.Fatalf("%s: value %d is %x, want %x", what, i, got[i], want[i])
		}
	}
}

// TestKernels holds the kernels of this build against scalar code.
func TestKernels(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		n := 8 * (1 + r.IntN(12))
		x, g := values(r, n), values(r, n)
		a, b := append([]float32(nil), x...), append([]float32(nil), x...)
		top := float32(r.NormFloat64() * 20)
		if got, want := expSum(a, top), expSumScalar(b, top); got != want && got == got {
			t.Fatalf("sum of exponentials %x, want %x", got, want)
		}
		same(t, "exponentials", a, b)
		copy(a, x)
		copy(b, x)
		siluMul(a, g)
		siluMulScalar(b, g)
		same(t, "silu", a, b)

		m, k := 1+r.IntN(20), r.IntN(70)
		left, right, c := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
		for _, v := range [][]float32{left, right, c} {
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
		}
		want := append([]float32(nil), c...)
		gemm(c, left, right, m, k, n)
		gemmScalar(want, left, right, m, k, n)
		same(t, "products", c, want)

		half := r.IntN(40)
		pair := make([][]float32, 6)
		for i := range pair {
			pair[i] = make([]float32, half)
			for j := range pair[i] {
				pair[i][j] = float32(r.NormFloat64())
			}
		}
		copy(pair[4], pair[0])
		copy(pair[5], pair[1])
		turn(pair[0], pair[1], pair[2], pair[3])
		turnScalar(pair[4], pair[5], pair[2], pair[3])
		same(t, "turned", append(pair[0], pair[1]...), append(pair[4], pair[5]...))
	}
}

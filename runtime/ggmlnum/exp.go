package ggmlnum

import (
	"math"

	"quern/internal/fma"
	"quern/runtime/num"
)

// vexp is e^x as ggml's vectors compute it: with n = x/ln 2 rounded to a whole number and b = x - n ln 2,
//
//	e^x = 2^n (1 + j)    j = c1 b + u (c2 + c3 b + u (c4 + c5 b)),  u = b^2
//
// Where |n| > 126 the power of two is applied in two parts, beyond 192 it is 0 or infinite.
func vexp(x float32) float32 {
	const magic = 0x1.8p23
	z := fma.F32(x, 0x1.715476p+0, magic)
	n := z - magic
	b := fma.F32(-n, 0x1.7f7d1cp-20, fma.F32(-n, 0x1.62e4p-1, x))
	e := math.Float32bits(z) << 23
	u := float32(b * b)
	low := fma.F32(0x1.555e66p-3, b, 0x1.fffdb6p-2)
	j := fma.F32(fma.F32(fma.F32(0x1.0e4020p-7, b, 0x1.573e2ep-5), u, low), u, float32(0x1.ffffecp-1*b))
	size := n
	if size < 0 {
		size = -size
	}
	if !(size > 126) {
		k := math.Float32frombits(e + 0x3f800000)
		return fma.F32(j, k, k)
	}
	g := uint32(0)
	if n <= 0 {
		g = 0x82000000
	}
	s1 := math.Float32frombits(g + 0x7f000000)
	if size > 192 {
		return float32(s1 * s1)
	}
	s2 := math.Float32frombits(e - g)
	return float32(fma.F32(s2, j, s2) * s1)
}

// ExpSum replaces every value v of x by e^(v-top) and gives their sum: of 8 values each in float32, of these in float64. What is
// left after whole 8s goes through Exp.
func ExpSum(x []float32, top float32) float64 {
	n := len(x) &^ 7
	sum := expSum(x[:n], top)
	for i := n; i < len(x); i++ {
		x[i] = Exp(x[i] - top)
		sum += float64(x[i])
	}
	return sum
}

func expSumScalar(x []float32, top float32) float64 {
	sum := 0.0
	for ; len(x) >= 8; x = x[8:] {
		for i, v := range x[:8] {
			x[i] = vexp(v - top)
		}
		sum += float64(((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])))
	}
	return sum
}

// SiLUMul replaces every value v of x by v/(1+e^-v) times the value of g in its place.
func SiLUMul(x, g []float32) {
	g = g[:len(x)]
	n := len(x) &^ 7
	siluMul(x[:n], g)
	for i := n; i < len(x); i++ {
		x[i] = float32(x[i] / (1 + Exp(-x[i])) * g[i])
	}
}

func siluMulScalar(x, g []float32) {
	for i, v := range x {
		x[i] = float32(v / (1 + vexp(0-v)) * g[i])
	}
}

// ExpMinus replaces every value v of x by Exp(v-m).
func ExpMinus(x []float32, m float32) {
	for i, v := range x {
		x[i] = Exp(v - m)
	}
}

// Softmax turns x into e^(x-max) times the inverse of the sum of these, in place.
func Softmax(x []float32) {
	if len(x) == 0 {
		return
	}
	sum := ExpSum(x, num.Max(x))
	num.Scale(x, float32(1/sum))
}

// Sigmoid is 1/(1+e^-x).
func Sigmoid(x float32) float32 { return 1 / (1 + Exp(-x)) }

// Sum adds in order, in float64.
func Sum(x []float32) float32 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	return float32(sum)
}

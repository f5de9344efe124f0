package num

import "math"

// Max is the greatest of x, which must not be empty; NaNs are passed over unless
// the first is one.
func Max(x []float32) float32 {
	m := x[0]
	for _, v := range x[1:] {
		if v > m {
			m = v
		}
	}
	return m
}

// Sum adds in the order of Dot.
func Sum(x []float32) float32 {
	var s [8]float32
	for i, v := range x {
		s[i&7] += v
	}
	return tree(&s)
}

// Softmax turns x into e^(x-max) divided by the sum of these, in place. At least
// one value must be finite; -Inf becomes 0.
func Softmax(x []float32) {
	if len(x) == 0 {
		return
	}
	ExpMinus(x, Max(x))
	Scale(x, 1/Sum(x))
}

// Scale multiplies x by a in place.
func Scale(x []float32, a float32) {
	for i, v := range x {
		x[i] = float32(v * a)
	}
}

// Add adds x to dst; they have one length.
func Add(dst, x []float32) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] += v
	}
}

// Mul multiplies dst by x, element by element.
func Mul(dst, x []float32) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] = float32(dst[i] * v)
	}
}

// RMSNorm writes x / sqrt(mean(x^2) + eps), times w where w is not nil, to dst,
// which may be x. All have one length.
func RMSNorm(dst, x, w []float32, eps float32) {
	if len(x) == 0 {
		return
	}
	mean := Dot(x, x) / float32(len(x))
	scale := 1 / Sqrt(mean+eps)
	dst = dst[:len(x)]
	if w == nil {
		for i, v := range x {
			dst[i] = float32(v * scale)
		}
		return
	}
	w = w[:len(x)]
	for i, v := range x {
		dst[i] = float32(float32(v*scale) * w[i])
	}
}

// Sqrt is the square root, rounded correctly: that of float64 has more than
// twice the digits.
func Sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

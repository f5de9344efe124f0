package num

import "math"

// ExpMinus replaces every value v of x by e^(v-m).
func ExpMinus(x []float32, m float32) {
	n := expMinus(x, m)
	expMinusScalar(x[n:], m)
}

func expMinusScalar(x []float32, m float32) {
	for i, v := range x {
		x[i] = Exp(v - m)
	}
}

// Max is the greatest of x, which must not be empty; NaNs are passed over unless
// the first is one. Of zeros it is either.
func Max(x []float32) float32 {
	var l [8]float32
	for i := range l {
		l[i] = x[0]
	}
	n := maxLanes(&l, x)
	maxLanesScalar(&l, x[n:])
	m := l[0]
	for _, v := range l[1:] {
		if v > m {
			m = v
		}
	}
	return m
}

// maxLanesScalar takes the values l, l+8, ... to lane l.
func maxLanesScalar(l *[8]float32, x []float32) {
	for i, v := range x {
		if v > l[i&7] {
			l[i&7] = v
		}
	}
}

// Sum adds in the order of Dot.
func Sum(x []float32) float32 {
	var l [8]float32
	n := sumLanes(&l, x)
	sumLanesScalar(&l, x[n:])
	return tree(&l)
}

func sumLanesScalar(l *[8]float32, x []float32) {
	for i, v := range x {
		l[i&7] += v
	}
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
	n := scale(x, a)
	scaleScalar(x[n:], a)
}

func scaleScalar(x []float32, a float32) {
	for i, v := range x {
		x[i] = float32(v * a)
	}
}

// Add adds x to dst; they have one length.
func Add(dst, x []float32) {
	x = x[:len(dst)]
	n := add(dst, x)
	addScalar(dst[n:], x[n:])
}

func addScalar(dst, x []float32) {
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
	by := 1 / Sqrt(mean+eps)
	dst = dst[:len(x)]
	if w == nil {
		for i, v := range x {
			dst[i] = float32(v * by)
		}
		return
	}
	w = w[:len(x)]
	n := scaleMul(dst, x, w, by)
	scaleMulScalar(dst[n:], x[n:], w[n:], by)
}

func scaleMulScalar(dst, x, w []float32, a float32) {
	for i, v := range x {
		dst[i] = float32(float32(v*a) * w[i])
	}
}

// Sqrt is the square root, rounded correctly: that of float64 has more than
// twice the digits.
func Sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

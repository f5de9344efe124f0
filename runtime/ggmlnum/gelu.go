package ggmlnum

import (
	"math"
	"sync"

	"quern/internal/fma"
	"quern/tensor/quant"
)

// expm1 is e^x - 1 as glibc's expm1f gives it for -2 < x < 64: in float32 without fused operations. With
// x = k ln 2 + r, c what r lost in rounding, and h = r/2:
//
//	s = 1 + q1 rh + q2 (rh)^2 ...    e = rh * (s-t)/(6-rt), t = 3-hs
func expm1(x float32) float32 {
	const ln2High, ln2Low, invLn2 = 0x1.62e300p-1, 0x1.2fefa2p-17, 0x1.715476p+0
	var c float32
	k := int32(0)
	switch size := math.Float32bits(x) & 0x7fffffff; {
	case size < 0x33000000: // below 2^-25
		return x
	case size > 0x3eb17218: // above ln(2)/2
		var high, low float32
		switch {
		case size < 0x3f851592 && x > 0: // below 3 ln(2)/2
			high, low, k = x-ln2High, ln2Low, 1
		case size < 0x3f851592:
			high, low, k = x+ln2High, -ln2Low, -1
		default:
			half := float32(0.5)
			if x < 0 {
				half = -0.5
			}
			k = int32(float32(invLn2*x) + half)
			high, low = x-float32(float32(k)*ln2High), float32(float32(k)*ln2Low)
		}
		x = high - low
		c = (high - x) - low
	}
	h := float32(0.5 * x)
	xh := float32(x * h)
	s := float32(-0x1.afdb76p-23*xh) + 0x1.0cfca8p-18
	s = float32(s*xh) - 0x1.4ce19ap-14
	s = float32(s*xh) + 0x1.a01a02p-10
	s = float32(s*xh) - 0x1.111112p-5
	s = float32(s*xh) + 1
	t := 3 - float32(s*h)
	e := float32((s - t) / (6 - float32(x*t)) * xh)
	if k == 0 {
		return x - (float32(x*e) - xh)
	}
	e = float32((e-c)*x) - c - xh
	switch {
	case k == -1:
		return float32(0.5*(x-e)) - 0.5
	case k == 1 && x < -0.25:
		return float32(-2 * (e - (x + 0.5)))
	case k == 1:
		return 1 + float32(2*(x-e))
	}
	scale := func(y float32) float32 { return math.Float32frombits(math.Float32bits(y) + uint32(k)<<23) }
	switch {
	case k <= -2 || k > 56:
		return scale(1-(e-x)) - 1
	case k < 23:
		return scale(math.Float32frombits(0x3f800000-0x1000000>>k) - (e - x))
	}
	return scale(x - (e + math.Float32frombits(uint32(0x7f-k)<<23)) + 1)
}

// Tanh is the hyperbolic tangent as glibc 2.36's tanhf gives it; from 2.41 on glibc rounds it correctly.
func Tanh(x float32) float32 {
	size := x
	if math.Signbit(float64(x)) {
		size = -x
	}
	var z float32
	switch {
	case x != x || x == 0:
		return x
	case size >= 22:
		z = 1
	case size < 0x1p-55:
		return float32(x * (1 + x))
	case size >= 1:
		z = 1 - 2/(expm1(float32(2*size))+2)
	default:
		t := expm1(float32(-2 * size))
		z = -t / (t + 2)
	}
	if x < 0 {
		return -z
	}
	return z
}

// geluTable holds GELU of every F16 number, rounded to F16: ggml looks it up.
var geluTable = sync.OnceValue(func() *[1 << 16]float32 {
	t := new([1 << 16]float32)
	for i := range t {
		x := quant.FromF16(uint16(i))
		inner := fma.F32(x, float32(0.044715*x), 1)
		y := float32(float32(0.5*x) * (1 + Tanh(float32(float32(0.79788456080286535587989211986876*x)*inner))))
		t[i] = quant.FromF16(quant.ToF16(y))
	}
	return t
})

// GELUMul replaces every value v of x by its GELU (the tanh approximation, of v rounded to F16) times the value of g in its place.
func GELUMul(x, g []float32) {
	table := geluTable()
	g = g[:len(x)]
	for i, v := range x {
		switch {
		case v <= -10:
			x[i] = 0
			continue
		case !(v >= 10):
			v = table[quant.ToF16(v)]
		}
		x[i] = float32(v * g[i])
	}
}

// Softcap bends values to within c: c * Tanh(x * (1/c)).
func Softcap(x []float32, c float32) {
	by := 1 / c
	for i, v := range x {
		x[i] = float32(Tanh(float32(v*by)) * c)
	}
}

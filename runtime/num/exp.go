package num

import "math"

// ln2 in two parts. The upper one has so few bits that its product with any
// exponent is exact.
const (
	ln2High = 0x1.62e42feep-1
	ln2Low  = math.Ln2 - ln2High

	ln2High32 = 0x1.62ep-1
	ln2Low32  = math.Ln2 - ln2High32
)

// Adding one of these to a small number and taking it away again rounds to the
// nearest whole number, halves to even; in between, the low bits are that
// number.
const (
	roundMagic   = 0x1.8p52
	roundMagic32 = 0x1.8p23
)

// Arguments beyond these give +Inf and 0 all the same.
const (
	expTop32    = 89
	expBottom32 = -104
)

// Exp is e to the power x, within 1.5 units in the last place. Results below
// the normal range are rounded to it, not to zero.
func Exp(x float32) float32 {
	if x > expTop32 {
		x = expTop32
	}
	if x < expBottom32 {
		x = expBottom32
	}
	t := float32(x*(1/math.Ln2)) + roundMagic32
	n := t - roundMagic32
	// x = n ln 2 + r with |r| <= ln(2)/2, and e^r by its series.
	r := x - float32(n*ln2High32)
	r -= float32(n * ln2Low32)
	p := float32(1.0 / 5040)
	p = float32(p*r) + 1.0/720
	p = float32(p*r) + 1.0/120
	p = float32(p*r) + 1.0/24
	p = float32(p*r) + 1.0/6
	p = float32(p*r) + 0.5
	y := float32(float32(r*r)*p) + r + 1
	// Two factors, since 2^n itself may be below the normal range.
	k := int32(math.Float32bits(t)) - int32(math.Float32bits(roundMagic32))
	half := k >> 1
	y = float32(y * math.Float32frombits(uint32(half+127)<<23))
	return float32(y * math.Float32frombits(uint32(k-half+127)<<23))
}

// Exp64 is Exp for float64, within 1 unit in the last place.
func Exp64(x float64) float64 {
	if x > 710 {
		x = 710
	}
	if x < -746 {
		x = -746
	}
	t := float64(x*(1/math.Ln2)) + roundMagic
	n := t - roundMagic
	r := x - float64(n*ln2High)
	r -= float64(n * ln2Low)
	p := 1.0 / 87178291200
	p = float64(p*r) + 1.0/6227020800
	p = float64(p*r) + 1.0/479001600
	p = float64(p*r) + 1.0/39916800
	p = float64(p*r) + 1.0/3628800
	p = float64(p*r) + 1.0/362880
	p = float64(p*r) + 1.0/40320
	p = float64(p*r) + 1.0/5040
	p = float64(p*r) + 1.0/720
	p = float64(p*r) + 1.0/120
	p = float64(p*r) + 1.0/24
	p = float64(p*r) + 1.0/6
	p = float64(p*r) + 0.5
	y := float64(float64(r*r)*p) + r + 1
	k := int64(math.Float64bits(t)) - int64(math.Float64bits(roundMagic))
	half := k >> 1
	y = float64(y * math.Float64frombits(uint64(half+1023)<<52))
	return float64(y * math.Float64frombits(uint64(k-half+1023)<<52))
}

// Log64 is the natural logarithm, within 2 units in the last place: -Inf for 0,
// NaN below.
func Log64(x float64) float64 {
	switch {
	case x < 0 || x != x:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	case x > math.MaxFloat64:
		return x
	}
	k := 0
	if x < 0x1p-1022 {
		x = float64(x * 0x1p54)
		k = -54
	}
	b := math.Float64bits(x)
	// m is in [sqrt(1/2), sqrt(2)).
	k += int(b>>52) - 1023
	m := math.Float64frombits(b&(1<<52-1) | 1023<<52)
	if m >= math.Sqrt2 {
		m = float64(m * 0.5)
		k++
	}
	// log(1+f) = 2 atanh(s) = 2s + 2s^3/3 + ... = f - s(f - the series after 2s)
	// with s = f/(2+f).
	f := m - 1
	s := f / (2 + f)
	z := float64(s * s)
	p := 2.0 / 23
	p = float64(p*z) + 2.0/21
	p = float64(p*z) + 2.0/19
	p = float64(p*z) + 2.0/17
	p = float64(p*z) + 2.0/15
	p = float64(p*z) + 2.0/13
	p = float64(p*z) + 2.0/11
	p = float64(p*z) + 2.0/9
	p = float64(p*z) + 2.0/7
	p = float64(p*z) + 2.0/5
	p = float64(p*z) + 2.0/3
	n := float64(k)
	low := float64(s*(f-float64(z*p))) - float64(n*ln2Low)
	return float64(n*ln2High) - (low - f)
}

// Pow64 is base to the power y for a base above 0; the error in units of the
// last place grows with |y log base|, to about 20 at 16.
func Pow64(base, y float64) float64 {
	if y == 0 || base == 1 {
		return 1
	}
	return Exp64(float64(y * Log64(base)))
}

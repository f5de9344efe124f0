package num

import "math"

// Pi/2 in parts of at most 33 bits, so that products with whole numbers up to
// 2^20 are exact.
const (
	halfPi1 = 0x1.921fb544p0
	halfPi2 = 0x1.0b4611a6p-34
	halfPi3 = math.Pi/2 - halfPi1 - halfPi2
)

// SinCos64 gives sine and cosine of x in radians, within 1 unit in the last
// place for |x| up to 2^20, then with an absolute error of about |x| 2^-53. Beyond
// 2^50 both are NaN: no position of a text lies there.
func SinCos64(x float64) (sin, cos float64) {
	if !(x <= 0x1p50 && x >= -0x1p50) {
		return math.NaN(), math.NaN()
	}
	t := float64(x*(2/math.Pi)) + roundMagic
	n := t - roundMagic
	// r + low = x - n pi/2, |r| <= pi/4. What the difference loses is kept.
	a := x - float64(n*halfPi1)
	b := float64(n * halfPi2)
	c := float64(n * halfPi3)
	r := a - b
	low := (a - r) - b
	low -= c
	r, low = r+low, low-((r+low)-r)
	z := float64(r * r)
	p := -1.0 / 1307674368000
	p = float64(p*z) + 1.0/6227020800
	p = float64(p*z) - 1.0/39916800
	p = float64(p*z) + 1.0/362880
	p = float64(p*z) - 1.0/5040
	p = float64(p*z) + 1.0/120
	p = float64(p*z) - 1.0/6
	s := r + (float64(float64(z*r)*p) + float64(low*(1-float64(0.5*z))))
	p = 1.0 / 20922789888000
	p = float64(p*z) - 1.0/87178291200
	p = float64(p*z) + 1.0/479001600
	p = float64(p*z) - 1.0/3628800
	p = float64(p*z) + 1.0/40320
	p = float64(p*z) - 1.0/720
	p = float64(p*z) + 1.0/24
	h := float64(0.5 * z)
	w := 1 - h
	k := w + (((1 - w) - h) + (float64(float64(z*z)*p) - float64(r*low)))
	switch int64(math.Float64bits(t)) & 3 {
	case 1:
		return k, -s
	case 2:
		return -s, -k
	case 3:
		return -k, s
	}
	return s, k
}

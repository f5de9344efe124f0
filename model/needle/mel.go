package needle

import (
	"math"
	"math/big"

	"quern/formats/cact"
)

// MelBank gives the weights of a speech model's mel bands, [FFT/2+1, Mels]: triangles
// of equal area on the Slaney scale, linear to 1000 Hz and logarithmic above.
// Logarithms and powers are rounded correctly, the rest is float64 in NumPy's order.
func MelBank(a *cact.Audio) []float32 {
	step := lnRounded(6.4)
	nyquist := float64(a.Rate) / 2
	top := nyquist * 3 / 200
	if nyquist >= 1000 {
		top = 15 + float64(lnRounded(nyquist/1000)*27)/step
	}
	bands, bins := int(a.Mels), int(a.FFT/2)+1
	hz := make([]float64, bands+2)
	for i, m := range linspace(top, bands+2) {
		if hz[i] = float64(m*200) / 3; m >= 15 {
			hz[i] = float64(1000 * expRounded(float64((m-15)*step)/27))
		}
	}
	out := make([]float32, bins*bands)
	for i, f := range linspace(nyquist, bins) {
		for j := range bands {
			lo, mid, hi := hz[j], hz[j+1], hz[j+2]
			w := (f - lo) / (mid - lo)
			if v := (hi - f) / (hi - mid); v < w {
				w = v
			}
			if w > 0 {
				out[i*bands+j] = float32(float64(w*2) / (hi - lo))
			}
		}
	}
	return out
}

// linspace is n numbers from 0 to top at equal distances.
func linspace(top float64, n int) []float64 {
	out := make([]float64, n)
	if n == 1 {
		return out
	}
	step := top / float64(n-1)
	for i := range out {
		out[i] = float64(float64(i) * step)
	}
	out[n-1] = top
	return out
}

// precision is that of the sums below, in bits; results are rounded to 53.
const precision = 160

func exact(x float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(x) }

// expBig is e to the power x, |x| below 100, by its series after halving x.
func expBig(x *big.Float) *big.Float {
	const halvings = 12
	r := new(big.Float).SetPrec(precision).SetMantExp(x, -halvings)
	sum, term := exact(1), exact(1)
	for i := 1; i < 24; i++ {
		term.Mul(term, r)
		term.Quo(term, exact(float64(i)))
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum
}

// expRounded is e to the power x.
func expRounded(x float64) float64 {
	y, _ := expBig(exact(x)).Float64()
	return y
}

// lnRounded is the natural logarithm of a positive number, by Newton's method.
func lnRounded(x float64) float64 {
	if x == 1 {
		return 0 // the only result that the method does not end at
	}
	_, k := math.Frexp(x)
	y := exact(float64(float64(k) * 0.6875))
	for range 9 { // twice the digits each time
		e := expBig(new(big.Float).SetPrec(precision).Neg(y))
		e.Mul(e, exact(x))
		y.Add(y, e.Sub(e, exact(1)))
	}
	out, _ := y.Float64()
	return out
}

package needle

import (
	"quern/formats/cact"
	"quern/internal/exact"
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

// expRounded is e to the power x.
func expRounded(x float64) float64 {
	y, _ := exact.Exp(exact.Num(x)).Float64()
	return y
}

// lnRounded is the natural logarithm of a positive number.
func lnRounded(x float64) float64 {
	y, _ := exact.Ln(x).Float64()
	return y
}

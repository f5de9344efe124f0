package convert

import (
	"math"

	"quern/internal/exact"
)

// Powers as PyTorch computes them for rope factors, to the last bit.
//
// For float32 on the CPU, PyTorch raises runs of 32 values (AVX-512) with
// SLEEF's powf, which is good to 1 ulp and not correctly rounded; what is left
// of a row goes through the C library, whose result is the correctly rounded
// one but for rare cases. Published models have heads of 64 or 128 values, whose
// 32 or 64 powers are whole runs.

// powRun is the length of a run.
const powRun = 32

// powers gives base^(exps[i]) for 0 <= exps[i] < 1 and base > 0.
func powers(base float32, exps []float32) []float32 {
	out := make([]float32, len(exps))
	whole := len(exps) / powRun * powRun
	for i, y := range exps {
		if i < whole {
			out[i] = powSleef(base, y)
		} else {
			out[i] = powExact(base, y)
		}
	}
	return out
}

// pair is a number held as the sum of two float32, the second a correction of
// the first.
type pair struct{ hi, lo float32 }

// fma is x*y + z with one rounding. The product is exact in float64; the sum is
// rounded to odd there, so that rounding it again to float32 is right.
func fma(x, y, z float32) float32 {
	p, c := float64(float64(x)*float64(y)), float64(z)
	s := p + c
	v := s - p
	e := (p - (s - v)) + (c - v)
	if bits := math.Float64bits(s); e != 0 && bits&1 == 0 {
		if (e > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}

// sum adds two numbers of any size.
func sum(x, y float32) pair {
	s := x + y
	v := s - x
	return pair{s, (x - (s - v)) + (y - v)}
}

// addAny adds pairs of any size.
func addAny(x, y pair) pair {
	s := sum(x.hi, y.hi)
	return pair{s.hi, s.lo + (x.lo + y.lo)}
}

// addNumber adds a number of any size to a pair.
func addNumber(x pair, y float32) pair {
	s := sum(x.hi, y)
	return pair{s.hi, s.lo + x.lo}
}

// addSmall adds a pair that is smaller than x.
func addSmall(x, y pair) pair {
	s := x.hi + y.hi
	return pair{s, ((x.hi - s) + y.hi) + x.lo + y.lo}
}

func mul(x, y pair) pair {
	s := float32(x.hi * y.hi)
	return pair{s, fma(x.hi, y.lo, fma(x.lo, y.hi, fma(x.hi, y.hi, -s)))}
}

func mulNumber(x pair, y float32) pair {
	s := float32(x.hi * y)
	return pair{s, fma(x.lo, y, fma(x.hi, y, -s))}
}

func square(x pair) pair {
	s := float32(x.hi * x.hi)
	return pair{s, fma(x.hi+x.hi, x.lo, fma(x.hi, x.hi, -s))}
}

func quotient(n, d pair) pair {
	t := 1 / d.hi
	s := float32(n.hi * t)
	u := fma(t, n.hi, -s)
	v := fma(-d.lo, t, fma(-d.hi, t, 1))
	return pair{s, fma(s, v, fma(n.lo, t, u))}
}

// logPair is the natural logarithm of a positive normal number: that of the
// power of two plus 2*atanh((m-1)/(m+1)) as a polynomial, 0.75 <= m < 1.5.
func logPair(d float32) pair {
	_, e := math.Frexp(float64(float32(d * float32(1/0.75))))
	e--
	m := float32(math.Ldexp(float64(d), -e))
	x := quotient(sum(-1, m), sum(1, m))
	x2 := square(x)
	t := float32(0.240320354700088500976562)
	t = fma(t, x2.hi, 0.285112679004669189453125)
	t = fma(t, x2.hi, 0.400007992982864379882812)
	third := addAny(mulNumber(x2, t), pair{0.66666662693023681640625, 3.69183861259614332084311e-09})
	s := mulNumber(pair{0.69314718246459960938, -1.904654323148236017e-09}, float32(e))
	s = addSmall(s, pair{float32(x.hi * 2), float32(x.lo * 2)})
	return addSmall(s, mul(mul(x2, x), third))
}

// expPair is e^d: 2^q times a polynomial in d - q*ln 2.
func expPair(d pair) float32 {
	u := float32((d.hi + d.lo) * float32(math.Log2E))
	q := float32(math.RoundToEven(float64(u)))
	s := addNumber(d, float32(q*-0.693145751953125))
	s = addNumber(s, float32(q*-1.428606765330187045e-06))
	hi := s.hi + s.lo
	s = pair{hi, (s.hi - hi) + s.lo}
	u = 0.00136324646882712841033936
	u = fma(u, s.hi, 0.00836596917361021041870117)
	u = fma(u, s.hi, 0.0416710823774337768554688)
	u = fma(u, s.hi, 0.166665524244308471679688)
	u = fma(u, s.hi, 0.499999850988388061523438)
	t := addSmall(s, mulNumber(square(s), u))
	t = addSmall(pair{1, 0}, t)
	return float32(math.Ldexp(float64(t.hi+t.lo), int(q)))
}

func powSleef(x, y float32) float32 { return expPair(mulNumber(logPair(x), y)) }

// powExact is the float32 nearest to x^y.
func powExact(x, y float32) float32 {
	a := exact.Ln(float64(x))
	out, _ := exact.Exp(a.Mul(a, exact.Num(float64(y)))).Float32()
	return out
}

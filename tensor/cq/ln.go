package cq

import "math"

// dd is an unevaluated sum of two float64 values, the second at most half a last
// place of the first: about 106 bits.
type dd struct{ hi, lo float64 }

// twoSum adds exactly.
func twoSum(a, b float64) dd {
	s := a + b
	v := s - a
	return dd{s, (a - (s - v)) + (b - v)}
}

// quick is twoSum for |a| >= |b|.
func quick(a, b float64) dd {
	s := a + b
	return dd{s, b - (s - a)}
}

// twoProd multiplies exactly.
func twoProd(a, b float64) dd {
	p := float64(a * b)
	return dd{p, math.FMA(a, b, -p)}
}

func (a dd) add(b dd) dd {
	s := twoSum(a.hi, b.hi)
	t := twoSum(a.lo, b.lo)
	s = quick(s.hi, s.lo+t.hi)
	return quick(s.hi, s.lo+t.lo)
}

func (a dd) mul(b dd) dd {
	p := twoProd(a.hi, b.hi)
	return quick(p.hi, p.lo+(float64(a.hi*b.lo)+float64(a.lo*b.hi)))
}

// div divides in two steps of long division and a correction.
func (a dd) div(b dd) dd {
	q := a.hi / b.hi
	r := a.add(b.mul(dd{-q, 0}))
	q2 := r.hi / b.hi
	r = r.add(b.mul(dd{-q2, 0}))
	s := quick(q, q2)
	return s.add(dd{r.hi / b.hi, 0})
}

// ln2 is the natural logarithm of 2.
var ln2 = dd{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56}

// lnTerms are 1/(2i+1), the coefficients of atanh(s)/s in s*s.
var lnTerms = func() (t [24]dd) {
	for i := range t {
		t[i] = dd{1, 0}.div(dd{float64(2*i + 1), 0})
	}
	return t
}()

// ln is the natural logarithm of a positive normal number, right to the last
// place unless it lies within 2^-15 of such a place's middle: computed in double
// double, so that it is the same on every machine. C libraries agree with it but
// where their own last place is wrong.
//
// x = 2^k m with m within a factor sqrt(2) of 1; ln m = 2 atanh((m-1)/(m+1)), a
// series in s*s <= 0.0295. Its later terms weigh so little that float64 is
// enough for them.
func ln(x float64) float64 {
	const exact = 6
	m, k := math.Frexp(x) // m in [0.5, 1)
	if m < math.Sqrt2/2 {
		m, k = float64(2*m), k-1
	}
	s := twoSum(m, -1).div(twoSum(m, 1))
	s2 := s.mul(s)
	var tail float64
	for i := len(lnTerms) - 1; i >= exact; i-- {
		tail = float64(tail*s2.hi) + lnTerms[i].hi
	}
	sum := dd{tail, 0}
	for i := exact - 1; i >= 0; i-- {
		sum = sum.mul(s2).add(lnTerms[i])
	}
	sum = sum.mul(s)
	sum = dd{float64(2 * sum.hi), float64(2 * sum.lo)}.add(ln2.mul(dd{float64(k), 0}))
	return sum.hi + sum.lo
}

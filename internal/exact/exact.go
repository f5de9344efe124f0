// Package exact has exponentials and logarithms of 160 bits: rounded once, they are
// the float32 or float64 nearest to the true value.
package exact

import (
	"math"
	"math/big"
	"sync"
)

// precision is that of all results, in bits.
const precision = 160

// Num is a finite number.
func Num(v float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(v) }

// negligible reports that a term of a series no longer counts.
func negligible(t *big.Float) bool { return t.Sign() == 0 || t.MantExp(nil) < -precision }

// ln2 is only read.
var ln2 = sync.OnceValue(func() *big.Float { return lnNear(Num(2)) })

// Ln is the natural logarithm of a positive number.
func Ln(v float64) *big.Float {
	frac, e := math.Frexp(v)
	out := new(big.Float).Mul(ln2(), Num(float64(e)))
	return out.Add(out, lnNear(Num(frac)))
}

// lnNear is the natural logarithm as 2*atanh((v-1)/(v+1)), for v near 1.
func lnNear(v *big.Float) *big.Float {
	z := new(big.Float).Quo(new(big.Float).Sub(v, Num(1)), new(big.Float).Add(v, Num(1)))
	z2 := new(big.Float).Mul(z, z)
	total, term := Num(0), new(big.Float).Add(z, z)
	for k := 1; !negligible(term); k += 2 {
		total.Add(total, new(big.Float).Quo(term, Num(float64(k))))
		term.Mul(term, z2)
	}
	return total
}

// Exp is e^a = 2^q * e^r with r small.
func Exp(a *big.Float) *big.Float {
	ratio, _ := new(big.Float).Quo(a, ln2()).Float64()
	q := math.RoundToEven(ratio)
	r := new(big.Float).Sub(a, new(big.Float).Mul(ln2(), Num(q)))
	total, term := Num(0), Num(1)
	for k := 1; !negligible(term); k++ {
		total.Add(total, term)
		term.Mul(term, r).Quo(term, Num(float64(k)))
	}
	return total.SetMantExp(total, int(q))
}

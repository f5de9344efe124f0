package convert

import (
	"math"
	"math/big"
	"sync"

	"quern/internal/exact"
)

// Exponentials as PyTorch computes them, to the last bit.
//
// For float32 on the CPU, PyTorch calls a vector library that has code for each
// kind of processor; this is what it does on those that are not Intel's. It is off
// the nearest float32 in the last bit for about one value in a hundred. With
// n = round(x * 128/ln 2) and j = n mod 128:
//
//	r   = x - n*ln 2/128                in two steps
//	e^x = 2^((n-j)/128) * (hi + (lo + hi*(r + r*r/2)))
//
// where hi + lo is 2^(j/128). Every operation rounds to float32.

const expSteps = 128

// expPowers are hi and lo of each step.
var expPowers = sync.OnceValue(func() (out [expSteps]pair) {
	// 2^(1/128) by seven square roots, and its powers.
	root := exact.Num(2)
	for range 7 {
		root = new(big.Float).Sqrt(root)
	}
	p := exact.Num(1)
	for j := range out {
		hi, _ := p.Float32()
		lo, _ := new(big.Float).Sub(p, exact.Num(float64(hi))).Float32()
		out[j] = pair{hi, lo}
		p = new(big.Float).Mul(p, root)
	}
	return out
})

// expTorch is e^x.
func expTorch(x float32) float32 {
	if !(x > -87 && x < 87) {
		return expExact(x) // the library leaves its main path
	}
	const shift = 3 << 22
	n := float32(x*0x1.715476p+7) + shift
	n -= shift
	r := float32(n*-0x1.63p-8) + x
	r = float32(n*0x1.bd0106p-20) + r
	k := int(n)
	t := expPowers()[k&(expSteps-1)]
	p := float32(float32(r*r)*0.5) + r
	p = float32(p*t.hi) + t.lo
	return float32(math.Ldexp(float64(p+t.hi), k>>7))
}

// expExact is the float32 nearest to e^x.
func expExact(x float32) float32 {
	switch {
	case x != x:
		return x
	case x > 89:
		return float32(math.Inf(1))
	case x < -104:
		return 0
	}
	out, _ := exact.Exp(exact.Num(float64(x))).Float32()
	return out
}

// Package fma multiplies and adds float32 numbers with one rounding, the same on every
// machine: what a processor's fused multiply-add does, for code that must equal a program
// that uses it.
package fma

import "math"

// F32 is x*y+z rounded once to float32.
//
// The product of two float32 numbers is exact in float64. Their sum with z is rounded to odd:
// where it was not exact, to the neighbour whose last bit is 1. A second rounding to float32, with
// at least two bits fewer, subnormal results included, then gives what one rounding of the exact sum would.
func F32(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	sum := p + c
	// What rounding lost of the sum (Knuth's two-sum); it is exact.
	b := sum - p
	lost := (p - (sum - b)) + (c - b)
	if lost == 0 || lost != lost || math.IsInf(sum, 0) {
		return float32(sum)
	}
	bits := math.Float64bits(sum)
	if bits&1 == 0 {
		// Toward what was lost: away from zero where both have one sign.
		if (lost > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
	}
	return float32(math.Float64frombits(bits))
}

package cq

import (
	"math"
	"math/bits"

	"quern/tensor/quant"
)

// The exporter turns groups by a matrix product, the fast transform adds in another
// order, and the two differ in the last places of a float32. Where such a place
// decides, because a coordinate lies next to a border of the codebook or the norm
// next to the middle of two F16 values, the product is worked out as the exporter's
// would be. That is one group in a few hundred.

// doubt is the distance from a border, as a part of the norm, within which the order
// of additions may matter; it rarely matters beyond a tenth of that.
const doubt = 4e-7

// wavers reports whether a norm is so near the middle of two F16 values that its
// last places decide.
func wavers(norm float32) bool {
	return quant.ToF16(float32(norm*(1-1e-6))) != quant.ToF16(float32(norm*(1+1e-6)))
}

// settle writes the indices of the at-th of the groups of a row and gives its norm,
// with the sums of a matrix product.
func (c *Codec) settle(index []byte, x []float32, at, groups int) float32 {
	var rot [256]float32
	r := rot[:len(x)]
	switch {
	case groups == 1:
		productBlocks(r, x, c.root)
	case paired(at, groups):
		productPaired(r, x, c.root)
	default:
		product(r, x, c.root)
	}
	norm := float32(math.Sqrt(float64(sumSquares(r))))
	nearest(index, r, norm, &c.cuts)
	return norm
}

// paired says which rows of a product of so many rows OpenBLAS (its kernels for
// AVX2) makes with two sums for each value: after the panels of twelve rows, those
// that fill panels of four.
func paired(at, rows int) bool {
	rest := rows % 12
	return at >= rows-rest && at < rows-rest%4
}

// addTerm adds x[k] times row k of H to the sums, each fused: the product of two
// float32 is exact in float64.
func addTerm(sums, x []float32, k int, root float32) {
	v := math.Float64bits(float64(float64(x[k]) * float64(root)))
	for j, s := range sums {
		sign := uint64(odd[k&j]) << 63
		sums[j] = float32(float64(s) + math.Float64frombits(v^sign))
	}
}

// odd has 1 for numbers with an odd number of ones: entries of H with such places
// in common are negative.
var odd = func() (t [256]uint8) {
	for i := range t {
		t[i] = uint8(bits.OnesCount(uint(i)) & 1)
	}
	return t
}()

// product adds one fused term after the other.
func product(dst, x []float32, root float32) {
	clear(dst)
	for k := range x {
		addTerm(dst, x, k, root)
	}
}

// productPaired has a sum for the even terms and one for the odd ones.
func productPaired(dst, x []float32, root float32) {
	var second [256]float32
	s := second[:len(x)]
	clear(dst)
	for k := 0; k < len(x); k += 2 {
		addTerm(dst, x, k, root)
		addTerm(s, x, k+1, root)
	}
	for j, v := range s {
		dst[j] += v
	}
}

// productBlocks is the product with a vector: eight fused terms make a sum that is
// added to the whole.
func productBlocks(dst, x []float32, root float32) {
	var part [256]float32
	t := part[:len(x)]
	clear(dst)
	for k := 0; k < len(x); k += 8 {
		clear(t)
		for i := k; i < k+8; i++ {
			addTerm(t, x, i, root)
		}
		for j, v := range t {
			dst[j] += v
		}
	}
}

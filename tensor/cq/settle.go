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

// term gives x[k] times entry (k, j) of H. It is exact in float64.
func term(x []float32, k, j int, root float32) float64 {
	v := float64(float64(x[k]) * float64(root))
	if bits.OnesCount(uint(k&j))&1 == 1 {
		return -v
	}
	return v
}

// product adds one fused term after the other.
func product(dst, x []float32, root float32) {
	for j := range dst {
		var s float32
		for k := range x {
			s = float32(float64(s) + term(x, k, j, root))
		}
		dst[j] = s
	}
}

// productPaired has a sum for the even terms and one for the odd ones.
func productPaired(dst, x []float32, root float32) {
	for j := range dst {
		var even, odd float32
		for k := 0; k < len(x); k += 2 {
			even = float32(float64(even) + term(x, k, j, root))
			odd = float32(float64(odd) + term(x, k+1, j, root))
		}
		dst[j] = even + odd
	}
}

// productBlocks is the product with a vector: eight fused terms make a sum that is
// added to the whole.
func productBlocks(dst, x []float32, root float32) {
	for j := range dst {
		var s float32
		for k := 0; k < len(x); k += 8 {
			var t float32
			for i := k; i < k+8; i++ {
				t = float32(float64(t) + term(x, i, j, root))
			}
			s += t
		}
		dst[j] = s
	}
}

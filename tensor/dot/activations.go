package dot

import (
	"math"

	"quern/tensor/quant"
)

// quantizeQ8_0Scalar quantizes blocks of 32 values, as many as d has places.
// For each it gives the codes, the scale and the sum of the codes:
//
//	d = max|x|/127, q = x * (1/d) to the nearest, ties to even
//
// as ggml's kernels on devices do; the scale is rounded to F16 after use. A
// scale that rounds to 0 leaves no codes.
func quantizeQ8_0Scalar(q []int8, d []float32, sums []int32, x []float32) {
	for u := range d {
		q, x := q[32*u:32*u+32], x[32*u:32*u+32]
		clear(q)
		d[u], sums[u] = 0, 0
		bits := top(x)
		if bits >= infinite {
			d[u] = quietNaN
			continue
		}
		scale := math.Float32frombits(bits) / 127
		d[u] = quant.FromF16(quant.ToF16(scale))
		if d[u] == 0 {
			continue
		}
		by := 1 / scale
		for i, v := range x {
			q[i] = nearest(float32(v * by))
			sums[u] += int32(q[i])
		}
	}
}

// quantizeQ8_KScalar quantizes a block of 256 values, and gives its scale and
// the sums of each 16 codes:
//
//	by = 127/max|x|, q = x*by to the nearest, ties to even, d = 1/by
//
// ggml's scale has a sign, and so have all its codes: their products are the
// same. A block so small that by is infinite is all zero.
func quantizeQ8_KScalar(q *[256]int8, sums *[16]int16, x *[256]float32) float32 {
	clear(q[:])
	clear(sums[:])
	bits := top(x[:])
	if bits >= infinite {
		return quietNaN
	}
	if bits <= smallestQ8_K {
		return 0
	}
	by := 127 / math.Float32frombits(bits)
	for i, v := range x {
		q[i] = nearest(float32(v * by))
		sums[i/16] += int16(q[i])
	}
	return 1 / by
}

// smallestQ8_K is the magnitude bits of 2^-121: 127 over it is under 2^128.
const smallestQ8_K = 6 << 23

// quietNaN is the one NaN that results and scales have.
var quietNaN = math.Float32frombits(0x7fc00000)

// infinite is the magnitude bits of an infinity; NaNs lie above.
const infinite = 0x7f800000

// top gives the greatest magnitude's bits.
func top(x []float32) uint32 {
	var bits uint32
	for _, f := range x {
		if a := math.Float32bits(f) & 0x7fffffff; a > bits {
			bits = a
		}
	}
	return bits
}

// nearest rounds a value of magnitude under 2^22 to the nearest integer, ties
// to even.
func nearest(x float32) int8 {
	return int8(int32(math.Float32bits(float32(x)+12582912)&0x7fffff) - 0x400000)
}

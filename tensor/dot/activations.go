package dot

import "quern/tensor/quant"

// quantizeQ8_0Scalar fills q with the codes of a block of 32 and gives its
// scale:
//
//	d = max|x|/127, q = x * (1/d) to the nearest, ties to even
//
// as ggml's kernels on devices do; the scale is rounded to F16 after use. A
// scale that rounds to 0 leaves no codes.
func quantizeQ8_0Scalar(q *[32]int8, x *[32]float32) float32 {
	v, bits := top(x[:])
	if bits >= infinite {
		*q = [32]int8{}
		return quietNaN
	}
	if v < 0 {
		v = -v
	}
	d := v / 127
	stored := quant.FromF16(quant.ToF16(d))
	if stored == 0 {
		*q = [32]int8{}
		return 0
	}
	id := 1 / d
	for i, v := range x {
		q[i] = nearest(float32(v * id))
	}
	return stored
}

// quantizeQ8_KScalar fills q with the codes of a block of 256 and gives its
// scale, whose sign is such that the first value of greatest magnitude, m, has
// code -127:
//
//	by = -127/m, q = x*by to the nearest, ties to even, d = 1/by
//
// A block so small that by is infinite is all zero.
func quantizeQ8_KScalar(q *[256]int8, x *[256]float32) float32 {
	m, bits := top(x[:])
	if bits >= infinite {
		*q = [256]int8{}
		return quietNaN
	}
	if bits <= smallestQ8_K {
		*q = [256]int8{}
		return 0
	}
	by := -127 / m
	for i, v := range x {
		q[i] = nearest(float32(v * by))
	}
	return 1 / by
}

// smallestQ8_K is 2^-121: 127 over it is under 2^128.
const smallestQ8_K = 6 << 23

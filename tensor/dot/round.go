package dot

// RoundQ8_0 writes to dst, which may be x, what values of x are after rounding to
// Q8_0: code times scale, in blocks of 32 from the first value on. The last block
// may be shorter. A block with a value that is not finite becomes NaN.
func RoundQ8_0(dst, x []float32) {
	var block [32]float32
	var q [32]int8
	var d [1]float32
	var sum [1]int32
	for len(x) > 0 {
		n := copy(block[:], x)
		clear(block[n:])
		quantizeQ8_0(q[:], d[:], sum[:], block[:])
		for i := range n {
			dst[i] = float32(float32(q[i]) * d[0])
		}
		dst, x = dst[n:], x[n:]
	}
}

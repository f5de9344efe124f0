//go:build (amd64 || arm64) && !noasm

package quant

func decodeF16(dst []float32, src []byte) {
	n := fast(len(dst), 16)
	if n > 0 {
		decodeF16SIMD(&dst[0], &src[:2*n][0], n)
	}
	decodeF16Scalar(dst[n:], src[2*n:])
}

func encodeF16(dst []byte, src []float32) {
	n := fast(len(src), 16)
	if n > 0 {
		encodeF16SIMD(&dst[:2*n][0], &src[0], n)
	}
	encodeF16Scalar(dst[2*n:], src[n:])
}

func decodeBF16(dst []float32, src []byte) {
	n := fast(len(dst), 16)
	if n > 0 {
		decodeBF16SIMD(&dst[0], &src[:2*n][0], n)
	}
	decodeBF16Scalar(dst[n:], src[2*n:])
}

func encodeBF16(dst []byte, src []float32) {
	n := fast(len(src), 16)
	if n > 0 {
		encodeBF16SIMD(&dst[:2*n][0], &src[0], n)
	}
	encodeBF16Scalar(dst[2*n:], src[n:])
}

func encodeQ8_0(dst []byte, src []float32) {
	if n := fast(len(src), 32); n > 0 {
		encodeQ8_0SIMD(&dst[:n/32*34][0], &src[0], n/32)
		return
	}
	encodeQ8_0Scalar(dst, src)
}

func encodeQ4_0(dst []byte, src []float32) {
	if n := fast(len(src), 32); n > 0 {
		encodeQ4_0SIMD(&dst[:n/32*18][0], &src[0], n/32)
		return
	}
	encodeQ4_0Scalar(dst, src)
}

func encodeKMCUQ4(dst []byte, src []float32) {
	if n := fast(len(src), 32); n > 0 {
		encodeKMCUQ4SIMD(&dst[:n/32*18][0], &src[0], n/32)
		return
	}
	encodeKMCUQ4Scalar(dst, src)
}

func scanCounts(src []float32, lim limits) counts {
	n := fast(len(src), 16)
	if n == 0 {
		return scanCountsScalar(src, lim)
	}
	var c counts
	scanCountsSIMD(&c[0], &src[0], n, lim.over, lim.flush)
	for i, v := range scanCountsScalar(src[n:], lim) {
		c[i] += v
	}
	return c
}

// fast is the number of values that the kernels take.
func fast(n, step int) int {
	if !useSIMD {
		return 0
	}
	return n - n%step
}

//go:build !amd64 || noasm

package num

func dots(dst []float32, ld int, w, x Matrix, n int) { dotsScalar(dst, ld, w, x, n) }

func dotsHalf(dst []float32, ld int, w HalfMatrix, x Matrix, n int) {
	dotsHalfScalar(dst, ld, w, x, n)
}

func addWeighted(dst, p []float32, v Matrix) { addWeightedScalar(dst, p, v) }

func addWeightedHalf(dst, p []float32, v HalfMatrix) { addWeightedHalfScalar(dst, p, v) }

// No vector code: scalar code does all values.

func expMinus([]float32, float32) int { return 0 }

func siluMul(_, _ []float32) int { return 0 }

func geluMul(_, _ []float32) int { return 0 }

func scale([]float32, float32) int { return 0 }

func add(_, _ []float32) int { return 0 }

func scaleMul(_, _, _ []float32, _ float32) int { return 0 }

func maxLanes(*[8]float32, []float32) int { return 0 }

func sumLanes(*[8]float32, []float32) int { return 0 }

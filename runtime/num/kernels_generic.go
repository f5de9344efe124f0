//go:build !amd64 || noasm

package num

func dots(dst []float32, ld int, w, x Matrix, n int) { dotsScalar(dst, ld, w, x, n) }

func weightedSum(dst, p []float32, v Matrix) { weightedSumScalar(dst, p, v) }

// ExpMinus replaces every value v of x by e^(v-m).
func ExpMinus(x []float32, m float32) { expMinusScalar(x, m) }

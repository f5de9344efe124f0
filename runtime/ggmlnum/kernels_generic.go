//go:build !amd64 || noasm

package ggmlnum

func gemm(c, a, b []float32, m, k, n int)     { gemmScalar(c, a, b, m, k, n) }
func expSum(x []float32, top float32) float64 { return expSumScalar(x, top) }
func siluMul(x, g []float32)                  { siluMulScalar(x, g) }
func turn(a, b, cos, sin []float32)           { turnScalar(a, b, cos, sin) }

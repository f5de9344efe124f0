//go:build !amd64 || noasm

package ggmldot

func mulNVFP4(dst []float32, stride, n int, b *Batch, p *int8Rows) {
	mulLowScalar(dst, stride, n, b, p, dotNVFP4)
}

func mulQ1_0(dst []float32, stride, n int, b *Batch, p *int8Rows) {
	mulLowScalar(dst, stride, n, b, p, dotQ1_0)
}

func mulQ2_0(dst []float32, stride, n int, b *Batch, p *int8Rows) {
	mulQ2_0Scalar(dst, stride, n, b, p, 0, b.rows)
}

//go:build !amd64 || noasm

package ggmldot

const useFMA = false

func quantize(q []int8, d, s []float32, sums []int32, x []float32) bool {
	return quantizeScalar(q, d, s, sums, x)
}

func spread(p *int8Rows, u, blocks int, bias int8, second form) {
	spreadScalar(p, u, blocks, bias, second)
}

func mulLanes(dst []float32, stride, n int, b *Batch, p *int8Rows, how adding) {
	mulLanesScalar(dst, stride, n, b, p, how)
}

func mulBlocks(dst []float32, stride, n int, b *Batch, p *int8Rows, _ int8) {
	mulBlocksScalar(dst, stride, n, b, p, 0, b.rows)
}

func mulTiled(dst []float32, stride, n int, rows []float32, b *Batch, _ *Scratch) {
	mulTiledScalar(dst, stride, n, rows, b)
}

func lanes32s(l *[floatLanes]float32, w, x []float32) { lanes32sScalar(l, w, x) }

//go:build !amd64 || noasm

package dot

import "quern/tensor"

const useAVX2 = false

func quantizeQ8_0(q []int8, d []float32, sums []int32, x []float32) {
	quantizeQ8_0Scalar(q, d, sums, x)
}

func quantizeQ8_K(q *[256]int8, sums *[16]int16, x *[256]float32) float32 {
	return quantizeQ8_KScalar(q, sums, x)
}

func unpackRows(typ tensor.Type, t *tile, rows, blocks int, src []byte, rowBytes, _ int) {
	unpackRowsScalar(typ, t, rows, blocks, src, rowBytes)
}

func vectorUnpacks(tensor.Type) bool { return false }

func sumGroup(k kind, acc *[64]float32, t *tile, b *Batch, at, units int) {
	sumGroupScalar(k, acc, t, b, at, units)
}

func sumSingle(k kind, acc *[lanes]float32, t *tile, b *Batch, at, units int) {
	sumSingleScalar(k, acc, t, b, at, units)
}

func gemv(*Kernel, []float32, []byte, *Batch) int { return 0 }

func lookUpQ1_0(dst *[32]float32, w []byte, _ int, tables []byte, da []float32, blocks int) {
	lookUpQ1_0Scalar(dst, w, tables, da, blocks)
}

func gemvPacked(*Kernel, []float32, []byte, *Batch) int { return 0 }

func turn(acc *[64]float32) { turnScalar(acc) }

func vectorDecodes(tensor.Type) bool { return false }

func expandRow(*family, []float32, *tile) {}

func dotFloats(dst []float32, stride, n int, rows, x []float32, width int) {
	dotFloatsScalar(dst, stride, n, rows, x, width)
}

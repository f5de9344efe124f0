//go:build !amd64 || noasm

package dot

import "quern/tensor"

const useAVX2 = false

func quantizeQ8_0(q *[32]int8, x *[32]float32) float32   { return quantizeQ8_0Scalar(q, x) }
func quantizeQ8_K(q *[256]int8, x *[256]float32) float32 { return quantizeQ8_KScalar(q, x) }

func unpackRow(typ tensor.Type, t *tile, i int, src []byte) { families[typ].unpack(t, i, src) }

func sumGroup(k kind, acc *[64]float32, t *tile, p piece, units int) {
	sumGroupScalar(k, acc, t, p, units)
}

func sumSingle(k kind, acc *[8]float32, t *tile, p piece, units int) {
	sumSingleScalar(k, acc, t, p, units)
}

func dotFloats(dst, rows, x []float32) { dotFloatsScalar(dst, rows, x) }

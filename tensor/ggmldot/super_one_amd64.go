//go:build !noasm

package ggmldot

import "quern/tensor/dot"

// oneSums is how far the sums of rows with a single column lie apart: 8 lanes, or a sum,
// and those of minima.
const oneSums = columns + 4

// oneOrder reports whether an order has code for a single column, which needs not be
// filled up to eight.
func oneOrder(o *order) bool {
	switch o {
	case &lanesPlain, &lanesSums, &lanesMins8, &lanesMins4, &lanesMins1, &wholeQ4_K:
		return useFMA
	}
	return false
}

// mulOne multiplies rows with the only column of b.
func (k *Kernel) mulOne(o *order, dst []float32, w []byte, b *superRows, s *Scratch) {
	f, units, t := superFamilies[k.typ], k.width/superValues, &s.tile
	rows := len(w) / k.rowBytes
	for r := 0; r < rows; r += columns {
		n := min(rows-r, columns)
		var acc [columns * oneSums]float32
		for u := 0; u < units; u += superUnits {
			count := min(units-u, superUnits)
			t.Unpack(k.typ, n, count, w[r*k.rowBytes+u*f.bytes:(r+n)*k.rowBytes], k.rowBytes)
			scaleTile(o, f, t, count)
			for i := range n {
				sumOne(o, f, acc[oneSums*i:], t, i, b, u, count)
			}
		}
		for i := range n {
			dst[r+i] = number(finishOne(o, f, (*[oneSums]float32)(acc[oneSums*i:])))
		}
	}
}

// sumOne adds n units of row i of a tile, the first of which is unit u.
func sumOne(o *order, f *superFamily, acc []float32, t *dot.Tile, i int, b *superRows, u, n int) {
	to, codes, d, m := &acc[0], &t.Codes()[i*dot.TileWidth], &t.D()[i], &t.M()[i]
	scales, corr := &t.Scales()[i*dot.TileWidth/16], &t.Corr()[i*dot.TileWidth/16]
	a, da, sums := &b.one.codes[superValues*u], &b.one.scales[u], &b.one.sums[16*u]
	switch o {
	case &lanesPlain:
		onePlainAVX2(to, codes, d, scales, uint32(f.bias)*0x01010101, a, da, n)
	case &lanesSums:
		oneSumsAVX2(to, codes, d, scales, corr, sums, a, da, n)
	case &lanesMins8:
		oneMins8AVX2(to, codes, d, scales, m, corr, sums, a, da, n)
	case &lanesMins4:
		oneMins4AVX2(to, codes, d, scales, m, corr, sums, a, da, n)
	case &lanesMins1:
		oneMins1AVX2(to, codes, d, scales, m, corr, sums, a, da, n)
	default:
		oneWholeAVX2(to, codes, d, scales, m, corr, sums, a, da, n)
	}
}

// finishOne is the product of a row.
func finishOne(o *order, f *superFamily, acc *[oneSums]float32) float32 {
	if o == &wholeQ4_K {
		return acc[0] - acc[1]
	}
	sum, least := addLanes((*[columns]float32)(acc[:])), acc[columns:]
	switch o {
	case &lanesMins4:
		return sum + ((least[0] + least[2]) + (least[1] + least[3]))
	case &lanesMins1:
		return sum + least[0]
	}
	return float32(f.over * sum)
}

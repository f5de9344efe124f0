package ggmldot

import (
	"quern/internal/fma"
	"quern/tensor/dot"
)

// Orders that add whole integers of a superblock: one sum a product, and one more of
// the minima in Q4_K, which is taken off at the end.
//
//	panel   n = all of a superblock                       sum = fma(d*da, float32(n), sum)
//	        (d divided as codes are multiplied, so that those are integers)
//	one     n, and m of all its minima                    mins = fma(dmin*da, float32(m), mins)
//	quarter n and m of each 64 values in turn, in the same way
//
// The panel serves types of a grid and IQ4_XS (iqp.cpp), from 8 columns on in matrices
// of whole groups of 8 rows. Repacked Q4_K takes quarters for columns in fours and
// one for those that are left.
var (
	panel        = order{acc: 1, sum: sumPanel, finish: finishPanel}
	wholeQ4_K    = order{acc: 2, sum: sumWholeQ4_K, finish: finishQ4_K}
	quartersQ4_K = order{acc: 2, sum: sumQuartersQ4_K, finish: finishQ4_K}
)

// panelColumns are the fewest columns for which ggml unpacks rows to panels of
// panelRows.
const (
	panelColumns = 8
	panelRows    = 8
)

var panelPath = &path{format: Q8_K, mul: func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
	o := superFamilies[k.typ].lanes
	if b.rows >= panelColumns {
		o = &panel
	}
	k.mulSuper(o, dst, stride, w, b.super, 0, s, 0, b.rows)
}}

// panelSuper is the family of types that ggml unpacks to panels.
func panelSuper(rows int, _ bool) *path {
	if rows%panelRows != 0 {
		return plainPath
	}
	return panelPath
}

var repackedQ4_K = &path{format: Q8_K, mul: func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
	fours := b.rows &^ 3
	k.mulSuper(&quartersQ4_K, dst, stride, w, b.super, 0, s, 0, fours)
	k.mulSuper(&wholeQ4_K, dst, stride, w, b.super, 0, s, fours, b.rows)
	for t, odd := range b.super.odd[:fours] {
		if odd != nil {
			k.mulSuper(&quartersQ4_K, dst, stride, w, odd, t/columns, s, t, t+1)
		}
	}
}}

// familyQ4_K is Q4_K, which ggml can repack.
func familyQ4_K(_ int, repacked bool) *path {
	if repacked {
		return repackedQ4_K
	}
	return plainPath
}

func total(n [columns]int32) (sum int32) {
	for _, v := range n {
		sum += v
	}
	return sum
}

func sumPanel(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, units int) {
	cells(o, f, acc, t, rows, g, func(c *cell, acc []float32) {
		for u := range units {
			n := total(c.values(u, f.bias, f.bias == 0))
			acc[0] = fma.F32(float32(n), c.d(u), acc[0])
		}
	})
}

func sumWholeQ4_K(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, units int) {
	cells(o, f, acc, t, rows, g, func(c *cell, acc []float32) {
		for u := range units {
			n, m := total(c.values(u, 0, false)), total(c.corrections(u))
			acc[0] = fma.F32(float32(n), c.d(u), acc[0])
			acc[columns] = fma.F32(float32(m), c.dmin(u), acc[columns])
		}
	})
}

func sumQuartersQ4_K(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, units int) {
	cells(o, f, acc, t, rows, g, func(c *cell, acc []float32) {
		for u := range units {
			corr, d, dmin := c.corrections(u), c.d(u), c.dmin(u)
			for quarter := range 4 {
				var n int32
				for v := 64 * quarter; v < 64*(quarter+1); v += 4 {
					w, a := c.codes(u, v)
					n += c.scale(u, v) * dot4(w, a, 0, false)
				}
				acc[0] = fma.F32(float32(n), d, acc[0])
				acc[columns] = fma.F32(float32(corr[2*quarter]+corr[2*quarter+1]), dmin, acc[columns])
			}
		}
	})
}

func finishPanel(_ *superFamily, out *[columns]float32, acc []float32) { *out = [columns]float32(acc) }

func finishQ4_K(_ *superFamily, out *[columns]float32, acc []float32) {
	for c := range out {
		out[c] = acc[c] - acc[columns+c]
	}
}

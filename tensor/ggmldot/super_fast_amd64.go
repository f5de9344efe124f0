//go:build !noasm

package ggmldot

import "quern/tensor/dot"

// vectorOrder reports whether an order has vector code.
func vectorOrder(o *order) bool {
	return useFMA && o != &lanesIQ1_S && o != &lanesIQ1_M
}

func settleVector(o *order, f *superFamily, t *dot.Tile, rows, units int, s *superScratch) {
	switch {
	case !useFMA || f.wide:
		return
	case o == &panel && f.bias == 0:
	case o == &lanesPlain:
	default:
		return
	}
	for i := range rows {
		basesAVX2(&s.bases[i*superUnits*columns], &t.Codes()[i*dot.TileWidth], &t.Scales()[i*dot.TileWidth/16], uint32(f.bias)*0x01010101, units)
	}
	if o != &panel {
		return
	}
	for i := range rows {
		for u := range units {
			s.totals[columns*u+i] = total([columns]int32(s.bases[(i*superUnits+u)*columns:]))
		}
	}
}

func finishSuper(o *order, f *superFamily, out *[columns * columns]float32, acc []float32) {
	switch {
	case !vectorOrder(o):
		finishSuperScalar(o, f, out, acc)
	case o == &lanesMins4:
		finishMins4AVX2(&out[0], &acc[0], &f.over)
	case o == &lanesMins1:
		finishMins1AVX2(&out[0], &acc[0], &f.over)
	case o == &quartersQ4_K || o == &wholeQ4_K:
		finishQ4_KAVX2(&out[0], &acc[0])
	case o == &panel:
		copy(out[:], acc)
	default:
		finishPlainAVX2(&out[0], &acc[0], &f.over)
	}
}

// sumSuper adds n units of a tile to the sums of 8 weight rows with a group of columns.
// The tile has been settled.
func sumSuper(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, n int, s *superScratch) {
	if !vectorOrder(o) {
		o.sum(o, f, acc, t, rows, g, n)
		return
	}
	codes, d, m, scales, corr := t.Codes(), t.D(), t.M(), t.Scales(), t.Corr()
	a, da, sums16, sums32 := &g.codes[0], &g.scales[0], &g.sums16[0], &g.sums32[0]
	for i := 0; i < rows; i += 2 {
		to, codes, d, m := &acc[columns*o.acc*i], &codes[i*dot.TileWidth], &d[i], &m[i]
		scales, corr := &scales[i*dot.TileWidth/16], &corr[i*dot.TileWidth/16]
		switch o {
		case &lanesPlain:
			if f.wide {
				lanesWideAVX2(to, codes, d, scales, a, da, n)
			} else {
				lanesPlainAVX2(to, codes, d, scales, &s.bases[i*superUnits*columns], a, da, n)
			}
		case &lanesSums:
			lanesSumsAVX2(to, codes, d, scales, corr, sums16, a, da, n)
		case &lanesMins8:
			lanesMins8AVX2(to, codes, d, scales, m, corr, sums16, a, da, n)
		case &lanesMins4:
			lanesMins4AVX2(to, codes, d, scales, a, da, n)
		case &lanesMins1:
			lanesMins1AVX2(to, codes, d, scales, a, da, n)
		}
	}
	for i := 0; i < rows; i += 4 {
		to, codes, d, m := acc[columns*o.acc*i:], &codes[i*dot.TileWidth], &d[i], &m[i]
		scales, corr := &scales[i*dot.TileWidth/16], &corr[i*dot.TileWidth/16]
		switch o {
		case &lanesMins4:
			minsMins4AVX2(&to[columns*columns], m, corr, da, sums32, n)
		case &lanesMins1:
			minsMins1AVX2(&to[columns*columns], m, corr, da, sums32, n)
		case &quartersQ4_K:
			sumQuartersAVX2(&to[0], codes, d, scales, a, da, n)
			minsQuartersAVX2(&to[columns], m, corr, da, sums32, n)
		case &panel:
			switch {
			case f.wide:
				panelWideAVX2(&to[0], codes, d, scales, a, da, n)
			case f.bias == 0:
				panelSignedAVX2(&to[0], codes, d, scales, &s.totals[i], a, da, n)
			default:
				panelBiasedAVX2(&to[0], codes, d, scales, corr, sums16, a, da, n)
			}
		case &wholeQ4_K:
			sumWholeAVX2(&to[0], codes, d, scales, a, da, n)
			minsWholeAVX2(&to[columns], m, corr, da, sums32, n)
		}
	}
}

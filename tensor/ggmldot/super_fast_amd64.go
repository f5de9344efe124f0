//go:build !noasm

package ggmldot

import (
	"encoding/binary"

	"quern/tensor/dot"
)

// settleVector makes a tile ready for vector code, which wants signed codes without bias
// of some types, and leaves it useless for other code.
func settleVector(o *order, f *superFamily, t *dot.Tile, rows, units int, s *superScratch) {
	codes, bias := t.Codes(), f.bias
	switch {
	case !useFMA:
		return
	case f.wide:
		if o == &panel {
			splitNibbles(t, &s.rests, rows, units)
		}
		return
	case o == &lanesIQ1_S || o == &lanesIQ1_M:
		splitEighths(codes, &s.rests, rows, units)
		bias = 2
		basesOf(&s.restBases, s.rests[:], t, rows, units, 1)
	case o == &panel && f.bias == 0 || o == &lanesPlain:
	default:
		return
	}
	basesOf(&s.bases, codes, t, rows, units, bias)
	bases := &s.bases
	if o == &lanesIQ1_S {
		bases = &s.restBases
	}
	if o == &panel || o == &lanesIQ1_S {
		for i := range rows {
			for u := range units {
				s.totals[columns*u+i] = total([columns]int32(bases[(i*superUnits+u)*columns:]))
			}
		}
	}
}

// basesOf takes the bias off codes and makes the bases of rows.
func basesOf(bases *[columns * superUnits * columns]int32, codes []byte, t *dot.Tile, rows, units int, bias int32) {
	for i := range rows {
		basesAVX2(&bases[i*superUnits*columns], &codes[i*dot.TileWidth], &t.Scales()[i*dot.TileWidth/16], uint32(bias)*0x01010101, units)
	}
}

// splitEighths splits codes of IQ1 types, 8g+e+16 with g and e from -1 to 1: codes become
// g+2, rests e+1.
func splitEighths(codes []byte, rests *[columns * dot.TileWidth]byte, rows, units int) {
	const each = 0x0101010101010101
	for i := range rows {
		from := codes[i*dot.TileWidth:][:superValues*units]
		to := rests[i*dot.TileWidth:][:superValues*units]
		for v := 0; v < len(from); v += 8 {
			x := binary.LittleEndian.Uint64(from[v:]) + each // 8(g+2) + e+1
			binary.LittleEndian.PutUint64(from[v:], x>>3&(0x1f*each))
			binary.LittleEndian.PutUint64(to[v:], x&(7*each))
		}
	}
}

// splitNibbles splits codes from -127 to 127, less a bias of -127: codes become the
// upper 4 bits, rests the lower.
func splitNibbles(t *dot.Tile, rests *[columns * dot.TileWidth]byte, rows, units int) {
	const each = 0x0101010101010101
	for i := range rows {
		from := t.Codes()[i*dot.TileWidth:][:superValues*units]
		to := rests[i*dot.TileWidth:][:superValues*units]
		for v := 0; v < len(from); v += 8 {
			x := (binary.LittleEndian.Uint64(from[v:]) ^ 0x80*each) - each
			binary.LittleEndian.PutUint64(from[v:], x>>4&(15*each))
			binary.LittleEndian.PutUint64(to[v:], x&(15*each))
		}
		corr := t.Corr()[i*dot.TileWidth/16:][:16*units]
		for j, s := range t.Scales()[i*dot.TileWidth/16:][:16*units] {
			corr[j] = 127 * int16(s)
		}
	}
}

func finishSuper(o *order, f *superFamily, out *[columns * columns]float32, acc []float32) {
	switch {
	case !useFMA || o == &lanesIQ1_S || o == &lanesIQ1_M:
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
	if !useFMA {
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
		case &lanesIQ1_S:
			lanesPlainOf9AVX2(to, codes, d, scales, &s.bases[i*superUnits*columns], a, da, n)
		case &lanesIQ1_M:
			lanesPlainOf16AVX2(to, codes, d, scales, &s.bases[i*superUnits*columns], a, da, n)
			lanesPlainOf16AVX2(&acc[columns*(o.acc*i+columns)], &s.rests[i*dot.TileWidth], d, scales, &s.restBases[i*superUnits*columns], a, da, n)
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
		case &lanesIQ1_S:
			panelSignedOf9AVX2(&to[columns*columns], &s.rests[i*dot.TileWidth], d, scales, &s.totals[i], a, da, n)
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
				panelNibblesAVX2(&to[0], codes, &s.rests[i*dot.TileWidth], d, scales, corr, sums16, a, da, n)
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

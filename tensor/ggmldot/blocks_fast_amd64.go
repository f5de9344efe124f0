//go:build !noasm

package ggmldot

import (
	"os"

	"golang.org/x/sys/cpu"
)

// useFMA is decided once, at start. It changes the speed, not the results.
var useFMA = cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C && os.Getenv("QUERN_NOASM") != "1"

func quantize(q []int8, d, s []float32, sums []int32, x []float32) (odd bool) {
	if !useFMA {
		return quantizeScalar(q, d, s, sums, x)
	}
	n := len(d)
	_, _, _, _ = q[32*n-1], s[n-1], sums[n-1], x[32*n-1]
	return quantizeAVX2(&q[0], &d[0], &s[0], &sums[0], &x[0], n)
}

func spread(p *int8Rows, u, blocks int, bias int8, second form) {
	if !useFMA {
		spreadScalar(p, u, blocks, bias, second)
		return
	}
	codes, scales := p.codes[stepCodes*u:][:stepCodes*blocks], p.scales[stepScales*u:][:stepScales*blocks]
	src, d, m := &p.tile.Codes()[0], &p.tile.D()[0], &p.tile.M()[0]
	switch second {
	case mags:
		spreadMagsAVX2(&codes[0], &scales[0], src, d, m, uint32(bias), blocks)
	case biased:
		spreadBiasedAVX2(&codes[0], &scales[0], src, d, m, uint32(bias), blocks)
	default:
		spreadPlainAVX2(&codes[0], &scales[0], src, d, m, uint32(bias), blocks)
	}
}

// mulLanes multiplies the first n rows with all columns.
func mulLanes(dst []float32, stride, n int, b *Batch, p *int8Rows, how adding) {
	if !useFMA {
		mulLanesScalar(dst, stride, n, b, p, how)
		return
	}
	out, apart := dst, stride
	if n < rowStep {
		out, apart = p.results(b.rows), rowStep
	}
	pairs := b.rows / 2
	if pairs > 0 {
		lanePairs(out, apart, b, pairs, p, how)
	}
	if b.rows&1 == 1 {
		laneColumn(out[(b.rows-1)*apart:], b, b.rows-1, p, how)
	}
	if n < rowStep {
		copyColumns(dst, stride, n, out, 0, b.rows)
	}
	if how == addInTurn && b.blocks&1 == 1 {
		for t := range b.rows {
			for i, v := range dst[t*stride:][:n] {
				dst[t*stride+i] = number(addLast(v, p, i, b, t))
			}
		}
	}
}

// copyColumns copies n results of columns from results that lie rowStep apart.
func copyColumns(dst []float32, stride, n int, out []float32, first, last int) {
	for t := first; t < last; t++ {
		copy(dst[t*stride:][:n], out[rowStep*t:])
	}
}

// lanePairs multiplies rowStep rows with the first pairs of columns.
func lanePairs(dst []float32, stride int, b *Batch, pairs int, p *int8Rows, how adding) {
	_ = dst[(2*pairs-1)*stride+rowStep-1]
	to, codes, d, q, da := &dst[0], &p.codes[0], &p.scales[0], &b.codes[0], &b.scales[0]
	switch how {
	case addAll:
		lanesAllAVX2(to, stride, codes, d, q, da, b.blocks, pairs)
	case addMins:
		lanesMinsAVX2(to, stride, codes, d, q, da, &b.sums[0], b.blocks, pairs)
	default:
		lanesInTurnAVX2(to, stride, codes, d, q, da, b.blocks, pairs)
	}
}

// laneColumn multiplies rowStep rows with column t.
func laneColumn(dst []float32, b *Batch, t int, p *int8Rows, how adding) {
	_ = dst[rowStep-1]
	to, codes, d, q, da := &dst[0], &p.codes[0], &p.scales[0], &b.codes[t*b.width], &b.scales[t*b.blocks]
	switch how {
	case addAll:
		lanesAllOneAVX2(to, 0, codes, d, q, da, b.blocks, 1)
	case addMins:
		lanesMinsOneAVX2(to, 0, codes, d, q, da, &b.sums[t*b.blocks], b.blocks, 1)
	default:
		lanesInTurnOneAVX2(to, 0, codes, d, q, da, b.blocks, 1)
	}
}

// mulBlocks multiplies the first n rows, repacked ones, with all columns.
func mulBlocks(dst []float32, stride, n int, b *Batch, p *int8Rows, bias int8) {
	if !useFMA {
		mulBlocksScalar(dst, stride, n, b, p, 0, b.rows)
		return
	}
	grouped := b.grouped()
	whole := grouped &^ 7
	if n < rowStep {
		whole = 0
	}
	if whole > 0 {
		blockGroups(dst, stride, b, 0, whole/8, p, bias)
	}
	if rest := grouped - whole; rest > 0 {
		groups := (rest + 7) / 8
		out := p.results(8 * groups)
		blockGroups(out, rowStep, b, whole, groups, p, bias)
		copyColumns(dst[whole*stride:], stride, n, out, 0, rest)
	}
	for t := grouped; t < b.rows; t++ {
		out := p.results(1)
		blocksOneAVX2(&out[0], &p.codes[0], &p.scales[0], &b.fewCodes[(t-grouped)*b.width], &b.fewScales[(t-grouped)*b.blocks], b.blocks)
		copy(dst[t*stride:][:n], out)
	}
	// Single columns have ggml's instructions here. In groups signs can go wrong where
	// ggml's do not, or the other way round.
	for t, odd := range b.odd[:grouped] {
		if odd && (bias == 0 || t >= b.rows&^3) {
			mulBlocksScalar(dst, stride, n, b, p, t, t+1)
		}
	}
}

// blockGroups multiplies rowStep rows with groups of 8 columns from t on.
func blockGroups(dst []float32, stride int, b *Batch, t, groups int, p *int8Rows, bias int8) {
	_ = dst[(8*groups-1)*stride+rowStep-1]
	to, codes, d, q, da := &dst[0], &p.codes[0], &p.scales[0], &b.codes[t*b.width], &b.scales[t*b.blocks]
	if bias == 0 {
		blocksSignedAVX2(to, stride, codes, d, q, da, b.blocks, groups)
	} else {
		blocksBiasedAVX2(to, stride, codes, d, q, da, &b.codeSums[t*b.blocks], b.blocks, groups)
	}
}

// mulTiled multiplies the first n of fours*4 decoded rows with all columns.
func mulTiled(dst []float32, stride, n int, rows []float32, b *Batch, s *Scratch) {
	if !useFMA {
		mulTiledScalar(dst, stride, n, rows, b)
		return
	}
	threes := b.rows / 3
	if n%4 != 0 {
		threes = 0
	}
	if threes > 0 {
		tiledThrees(dst, stride, n/4, rows, b, 0, threes)
	}
	if first := 3 * threes; first < b.rows {
		threes := (b.rows - first + 2) / 3
		out := s.int8Rows.results(3 * threes * tiledRows / rowStep)
		tiledThrees(out, tiledRows, (n+3)/4, rows, b, first, threes)
		for t := first; t < b.rows; t++ {
			copy(dst[t*stride:][:n], out[tiledRows*(t-first):])
		}
	}
}

// tiledThrees multiplies fours of rows with threes of columns from t on.
func tiledThrees(dst []float32, stride, fours int, rows []float32, b *Batch, t, threes int) {
	_, _, _ = dst[(3*threes-1)*stride+4*fours-1], rows[4*fours*b.width-1], b.floats[(t+3*threes)*b.width-1]
	tiledFloatsAVX2(&dst[0], stride, &rows[0], &b.floats[t*b.width], b.width, fours, threes)
}

// lanes32s gives the lanes of the whole 32s of a row.
func lanes32s(l *[floatLanes]float32, w, x []float32) {
	n := len(x) / 32
	if !useFMA || n == 0 {
		lanes32sScalar(l, w, x)
		return
	}
	_ = w[32*n-1]
	lanes32sAVX2(l, &w[0], &x[0], n)
}

//go:build !noasm

package ggmldot

func mulNVFP4(dst []float32, stride, n int, b *Batch, p *int8Rows) {
	if !useFMA {
		mulLowScalar(dst, stride, n, b, p, dotNVFP4)
		return
	}
	mulLow(dst, stride, n, b, p, lanesNVFP4AVX2, lanesNVFP4OneAVX2)
}

func mulQ1_0(dst []float32, stride, n int, b *Batch, p *int8Rows) {
	if !useFMA {
		mulLowScalar(dst, stride, n, b, p, dotQ1_0)
		return
	}
	mulLow(dst, stride, n, b, p, lanesQ1_0AVX2, lanesQ1_0OneAVX2)
}

// mulLow multiplies pairs of columns, and one that is left.
func mulLow(dst []float32, stride, n int, b *Batch, p *int8Rows, two, one func(dst *float32, stride int, codes *int8, d *float32, q *int8, da *float32, blocks, times int)) {
	out, pairs := p.results(b.rows), b.rows/2
	if pairs > 0 {
		two(&out[0], rowStep, &p.codes[0], &p.scales[0], &b.codes[0], &b.scales[0], b.blocks, pairs)
	}
	if t := 2 * pairs; t < b.rows {
		one(&out[rowStep*t], rowStep, &p.codes[0], &p.scales[0], &b.codes[t*b.width], &b.scales[t*b.blocks], b.blocks, 1)
	}
	copyColumns(dst, stride, n, out, 0, b.rows)
}

func mulQ2_0(dst []float32, stride, n int, b *Batch, p *int8Rows) {
	if !useFMA {
		mulQ2_0Scalar(dst, stride, n, b, p, 0, b.rows)
		return
	}
	groups := (b.rows + 7) / 8
	out := p.results(8 * groups)
	blocksQ2_0AVX2(&out[0], rowStep, &p.codes[0], &p.scales[0], &b.codes[0], &b.scales[0], &b.codeSums[0], b.blocks/2, groups)
	copyColumns(dst, stride, n, out, 0, b.rows)
	// Sums of codes are those before they were cut to 8 bits, which columns with
	// values that are not finite must not have.
	for t, odd := range b.odd[:b.rows] {
		if odd {
			mulQ2_0Scalar(dst, stride, n, b, p, t, t+1)
		}
	}
}

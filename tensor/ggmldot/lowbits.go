package ggmldot

import "quern/internal/fma"

// Products of Q1_0, Q2_0 and NVFP4 with Q8_0 activations. n[l] is as in int8.go.
//
//	Q1_0   4 blocks of activations, of scales da, share the weights' scale d. Their
//	       first product is rounded, the others are fused:
//	       part[l] = da0*n0[l], then fma(da, n[l], part[l]); lane[l] = fma(d, part[l], lane[l])
//	Q2_0   has no lanes: with n of all of a block of activations, of which two
//	       share d, part = fma(n, da, part) from 0 on; sum = fma(d, part, sum)
//	NVFP4  lane[l] = fma(d*da, n[l], lane[l]), where lanes 4 to 7 have the second half's d
//
// Lanes are added as in int8.go.

//go:generate go -C _gen run . -set low -out ../low_amd64.s -stubs ../low_stubs_amd64.go -pkg ggmldot

// lowPath gives the family of a type that mul multiplies, the first n unpacked rows
// with all columns.
func lowPath(f Format, bias int8, mul func(dst []float32, stride, n int, b *Batch, p *int8Rows)) family {
	plain := &path{format: f}
	plain.mul = func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
		k.eachRows(w, s, bias, secondForm(bias), func(r, n int) { mul(dst[r:], stride, n, b, &s.int8Rows) })
	}
	return func(int, bool) *path { return plain }
}

// mulLowScalar multiplies rows with columns by dot, which gives the product of row i
// with the column that begins at q and da.
func mulLowScalar(dst []float32, stride, n int, b *Batch, p *int8Rows, dot func(p *int8Rows, i int, q []int8, da []float32) float32) {
	for t := range b.rows {
		q, da := b.codes[t*b.width:][:b.width], b.scales[t*b.blocks:][:b.blocks]
		for i := range n {
			dst[t*stride+i] = number(dot(p, i, q, da))
		}
	}
}

// runSums are the integer sums of each 4 products of a block.
func runSums(w, a *[32]int8) (n [8]float32) {
	for l := range n {
		var sum int32
		for x := 4 * l; x < 4*l+4; x++ {
			sum += signedProduct(w[x], a[x])
		}
		n[l] = float32(sum)
	}
	return n
}

func dotQ1_0(p *int8Rows, i int, q []int8, da []float32) float32 {
	var l [8]float32
	for u := 0; u < len(da); u += 4 {
		part := runSums(p.block(i, u), (*[32]int8)(q[32*u:]))
		for j := range part {
			part[j] = float32(da[u] * part[j])
		}
		for k := u + 1; k < u+4; k++ {
			for j, n := range runSums(p.block(i, k), (*[32]int8)(q[32*k:])) {
				part[j] = fma.F32(da[k], n, part[j])
			}
		}
		for j := range l {
			l[j] = fma.F32(p.d(i, u), part[j], l[j])
		}
	}
	return addLanes(&l)
}

// mulQ2_0Scalar multiplies rows with columns from first to last-1, eight of which lie
// side by side.
func mulQ2_0Scalar(dst []float32, stride, n int, b *Batch, p *int8Rows, first, last int) {
	var q [32]int8
	for t := first; t < last; t++ {
		group, lane := t&^7, t&7
		for i := range n {
			var sum, part float32
			for u := range b.blocks {
				b.groupBlock(&q, group, u, lane)
				da := b.scales[group*b.blocks+8*u+lane]
				part = fma.F32(float32(blockSum(p.block(i, u), &q, false)), da, part)
				if u&1 == 1 {
					sum = fma.F32(p.d(i, u), part, sum)
					part = 0
				}
			}
			dst[t*stride+i] = number(sum)
		}
	}
}

// groupBlock gives a block of a column of a group.
func (b *Batch) groupBlock(q *[32]int8, group, u, lane int) {
	codes := b.codes[group*b.width+256*u+4*lane:]
	for x := 0; x < 32; x += 4 {
		*(*[4]int8)(q[x:]) = [4]int8(codes[8*x:])
	}
}

func dotNVFP4(p *int8Rows, i int, q []int8, da []float32) float32 {
	var l [8]float32
	for u := range da {
		d := [2]float32{float32(p.d(i, u) * da[u]), float32(p.m(i, u) * da[u])}
		for j, n := range runSums(p.block(i, u), (*[32]int8)(q[32*u:])) {
			l[j] = fma.F32(d[j/4], n, l[j])
		}
	}
	return addLanes(&l)
}

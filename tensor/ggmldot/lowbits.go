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

// lowPath gives the family of a type whose products come from dot, of row i with
// activations that begin at q and da.
func lowPath(bias int8, dot func(p *int8Rows, i int, q []int8, da []float32) float32) family {
	plain := &path{format: Q8_0}
	plain.mul = func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
		p := &s.int8Rows
		k.eachRows(w, s, bias, true, func(r, n int) {
			for t := range b.rows {
				q, da := b.codes[t*b.width:][:b.width], b.scales[t*b.blocks:][:b.blocks]
				for i := range n {
					dst[t*stride+r+i] = number(dot(p, i, q, da))
				}
			}
		})
	}
	return func(_, _ int, repacked bool) *path {
		if repacked {
			return nil
		}
		return plain
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

func dotQ2_0(p *int8Rows, i int, q []int8, da []float32) (sum float32) {
	for u := 0; u < len(da); u += 2 {
		var part float32
		for k := u; k < u+2; k++ {
			n := blockSum(p.block(i, k), (*[32]int8)(q[32*k:]), false)
			part = fma.F32(float32(n), da[k], part)
		}
		sum = fma.F32(p.d(i, u), part, sum)
	}
	return sum
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

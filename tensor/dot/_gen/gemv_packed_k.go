package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// addTerms adds what a unit of 256 values comes to, less its minima's part.
func (g packedGemv) addTerms(acc, n, m, d, dmin VecVirtual) {
	da := YMM()
	VBROADCASTSS(Mem{Base: g.da}, da)
	addTerm(VADDPS, acc, n, d, da)
	addTerm(VSUBPS, acc, m, dmin, da)
}

// addTo adds x to a sum, which is nil at first.
func addTo(sum *VecVirtual, x VecVirtual) {
	if *sum == nil {
		*sum = x
		return
	}
	VPADDD(x, *sum, *sum)
}

// spread gives the lanes of rows the places that vector i at a place has them in.
func (s shape) spread(x VecVirtual, i int) VecVirtual {
	if s.chunk == 4 {
		return x
	}
	y := YMM()
	order := Words("lowTwice", 0, 0, 1, 1, 2, 2, 3, 3)
	if i == 1 {
		order = Words("highTwice", 4, 4, 5, 5, 6, 6, 7, 7)
	}
	VMOVDQU(order, y)
	VPERMD(x, y, y)
	return y
}

// doubled puts bytes, one a row from an offset on, into both words of a row's lane.
func doubled(x VecVirtual) VecVirtual {
	y := YMM()
	VPSLLD(U8(16), x, y)
	VPOR(y, x, x)
	return x
}

func packedQ2_K() {
	var low2 VecVirtual
	packedKernel("q2_K_8x4", 8, 672, 1, 256, func() { low2 = fill("low2", 3) }, func(g packedGemv, acc VecVirtual) {
		var n, m VecVirtual
		low4 := Eights("low4Int", 15)
		for half := range 2 {
			for quarter := range 2 {
				var sums [4]VecVirtual
				for c := 8*half + 4*quarter; c < 8*half+4*quarter+4; c++ {
					q := Fetch(g.at(160 + 32*c))
					for k := range 4 {
						madd(&sums[k], shifted(q, 2*k, 0, low2), g.quad(128*half+32*k+4*(c%8)))
					}
				}
				for k := range 4 {
					s := YMM()
					VPMOVZXBD(g.at(32+8*(8*half+2*k+quarter)), s)
					VPAND(low4, s, s)
					VPMADDWD(doubled(s), sums[k], sums[k])
					addTo(&n, sums[k])
				}
			}
		}
		for p := range 8 {
			x, y, sum := YMM(), YMM(), YMM()
			VPMOVZXBD(g.at(32+16*p), x)
			VPMOVZXBD(g.at(32+16*p+8), y)
			VPSRLD(U8(4), x, x)
			VPSRLD(U8(4), y, y)
			VPSLLD(U8(16), y, y)
			VPOR(y, x, x)
			VPBROADCASTD(Mem{Base: g.sums, Disp: 4 * p}, sum)
			VPMADDWD(sum, x, x)
			addTo(&m, x)
		}
		g.addTerms(acc, n, m, g.scales(0), g.scales(16))
	})
}

// packedTQ2_0: as q2_0, in the order of a superblock of 256 values.
func packedTQ2_0() {
	var low2 VecVirtual
	packedKernel("tq2_0_8x4", 8, 528, 1, 256, func() { low2 = fill("low2", 3) }, func(g packedGemv, acc VecVirtual) {
		var halves [2]VecVirtual
		for c := range 16 {
			q := Fetch(g.at(16 + 32*c))
			for k := range 4 {
				madd(&halves[c/8], shifted(q, 2*k, 0, low2), g.quad(c/8*128+c%8*4+32*k))
			}
			if c%8 == 7 {
				VPMADDWD(pairOnes(), halves[c/8], halves[c/8])
			}
		}
		n := halves[0]
		VPADDD(halves[1], n, n)
		g.lessAll(n)
		g.addUnit(acc, n, g.scales(0), 0)
	})
}

// packedQ4_K: group b of the scales has scale and minimum of sub-block b of all rows.
// With fifth, a field of fifth bits stands between scales and nibbles: q5_K.
func packedQ4_K(name string, s shape, fifth bool) {
	var low4, sixteen VecVirtual
	bytes, qs := 1152, 128
	if fifth {
		bytes, qs = 1408, 128+256
	}
	constants := func() {
		low4 = fill("low4", 15)
		if fifth {
			sixteen = fill("sixteen", 16)
		}
	}
	packedKernel(name, 8, bytes, 1, 256, constants, func(g packedGemv, acc VecVirtual) {
		n := make([]VecVirtual, s.vectors())
		var m VecVirtual
		// six gives the six-bit numbers of sub-block b, their upper bits at an offset of
		// the group, their lower ones for rows 4 to 7 shifted by so much, in a lane a row.
		six := func(b, at int, shift uint8) VecVirtual {
			x, z := GP32(), GP32()
			y := GP64()
			MOVL(g.at(32+12*b+at), x)
			MOVL(g.at(32+12*b+8), z)
			if shift > 0 {
				SHRL(U8(shift), z)
			}
			ANDL(U32(0x0f0f0f0f), z)
			MOVL(x, y.As32())
			SHRL(U8(2), y.As32())
			ANDL(U32(0x30303030), y.As32())
			ORL(z, y.As32())
			ANDL(U32(0x3f3f3f3f), x)
			SHLQ(U8(32), y)
			ORQ(x.As64(), y)
			v, w := XMM(), YMM()
			VMOVQ(y, v)
			VPMOVZXBD(v, w)
			return w
		}
		for p := range 4 {
			var sums [2][2]VecVirtual
			// scaled adds what there is of the sums.
			scaled := func() {
				for k := range 2 {
					scale := doubled(six(2*p+k, 0, 0))
					for i := range n {
						VPMADDWD(s.spread(scale, i), sums[k][i], sums[k][i])
						addTo(&n[i], sums[k][i])
						sums[k][i] = nil
					}
				}
			}
			for at := 0; at < 32; at += s.step() {
				low, high := s.activations(g, 64*p+at), s.activations(g, 64*p+32+at)
				for i := range n {
					q, h := Fetch(g.at(qs+8*(32*p+at)+32*i)), YMM()
					VPSRLW(U8(4), q, h)
					VPAND(low4, q, q)
					VPAND(low4, h, h)
					if fifth {
						bits := Fetch(g.at(128 + 8*at + 32*i))
						VPOR(shifted(bits, 2*p, 4, sixteen), q, q)
						VPOR(shifted(bits, 2*p+1, 4, sixteen), h, h)
					}
					madd(&sums[0][i], q, low)
					madd(&sums[1][i], h, high)
				}
				if fifth && s.chunk == 4 && at == 12 {
					scaled() // more products of five bits would not fit a word
				}
			}
			scaled()
			for k := range 2 {
				// Both halves of a sub-block have the minimum.
				low, sum := doubled(six(2*p+k, 4, 4)), YMM()
				VPBROADCASTD(Mem{Base: g.sums, Disp: 4 * (2*p + k)}, sum)
				VPMADDWD(sum, low, low)
				addTo(&m, low)
			}
		}
		g.addTerms(acc, s.lanes(n), m, g.scales(0), g.scales(16))
	})
}

// packedQ6_K has scales of 16 values with a sign, 8 bits each, and codes 32 too high.
func packedQ6_K(name string, s shape) {
	var low4, bits45 VecVirtual
	packedKernel(name, 8, 1680, 1, 256, func() { low4, bits45 = fill("low4", 15), fill("bits45", 0x30) }, func(g packedGemv, acc VecVirtual) {
		n := make([]VecVirtual, s.vectors())
		for j := range 16 {
			half, nibble, first := j/8, j%8/4, 16*(j%4)
			scale, upper := YMM(), YMM()
			VPMOVSXBD(g.at(16+8*j), scale)
			VPSLLD(U8(16), scale, upper)
			VPBLENDW(U8(0xaa), upper, scale, scale)
			for k := first; k < first+16; k += s.step() {
				a := s.activations(g, 16*j+k-first)
				for i := range n {
					q := shifted(Fetch(g.at(144+8*(64*half+k)+32*i)), 4*nibble, 0, low4)
					h := shifted(Fetch(g.at(144+1024+8*(32*half+k%32)+32*i)), k/32*2+4*nibble, 4, bits45)
					VPOR(h, q, q)
					VPMADDUBSW(a, q, q)
					VPMADDWD(s.spread(scale, i), q, q)
					addTo(&n[i], q)
				}
			}
		}
		sum := s.lanes(n)
		var c VecVirtual
		for p := range 8 {
			x, y, pair := YMM(), YMM(), YMM()
			VPMOVSXBD(g.at(16+16*p), x)
			VPMOVSXBD(g.at(16+16*p+8), y)
			VPSLLD(U8(16), y, y)
			VPBLENDW(U8(0xaa), y, x, x)
			VPBROADCASTD(Mem{Base: g.sums, Disp: 4 * p}, pair)
			VPMADDWD(pair, x, x)
			addTo(&c, x)
		}
		VPSLLD(U8(5), c, c)
		VPSUBD(c, sum, sum)
		g.addUnit(acc, sum, g.scales(0), 0)
	})
}

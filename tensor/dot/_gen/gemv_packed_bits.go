package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// packedQ2_0 is for fields of two bits: a shift leaves four values of each row. The
// codes are 1 too high.
func packedQ2_0(name string, blocks int) {
	var low2 VecVirtual
	packedKernel(name, 8, 16+128*blocks, 2*blocks, 32, func() { low2 = fill("low2", 3) }, func(g packedGemv, acc VecVirtual) {
		d := g.scales(0)
		for u := range 2 * blocks {
			var n VecVirtual
			for c := 2 * u; c < 2*u+2; c++ {
				q := Fetch(g.at(16 + 32*c))
				for k := range 4 {
					madd(&n, shifted(q, 2*k, 0, low2), g.quad(16*c+4*k))
				}
			}
			VPMADDWD(pairOnes(), n, n)
			g.less(n, u, 0)
			g.addUnit(acc, n, d, u)
		}
	})
}

// trits takes codes out of bytes in base 3: three times a byte passes 256 as often as
// the code says, and what is left in the byte has the next one. So a byte is at
// least 86 for codes above 0, and at least 171 for code 2.
type trits struct{ one, two VecVirtual }

func (t *trits) constants() { t.one, t.two = fill("from86", 86), fill("from171", 171) }

func (t *trits) code(b VecVirtual) VecVirtual {
	x, y := YMM(), YMM()
	VPMAXUB(t.one, b, x)
	VPCMPEQB(b, x, x)
	VPMAXUB(t.two, b, y)
	VPCMPEQB(b, y, y)
	VPADDB(y, x, x)
	VPABSB(x, x)
	return x
}

func thrice(b VecVirtual) VecVirtual {
	y := YMM()
	VPADDB(b, b, y)
	VPADDB(b, y, y)
	return y
}

// packedTQ1_0 has five codes in a byte too, in the order of a superblock. All products
// fit a word: 128 codes of at most 2.
func packedTQ1_0() {
	var t trits
	packedKernel("tq1_0_8x4", 8, 432, 1, 256, t.constants, func(g packedGemv, acc VecVirtual) {
		var n VecVirtual
		for c := range 13 {
			first, apart, codes := 4*c, 32, 5
			switch {
			case c == 12:
				first, apart, codes = 240, 4, 4
			case c >= 8:
				first, apart = 160+4*(c-8), 16
			}
			b := Fetch(g.at(16 + 32*c))
			for i := range codes {
				madd(&n, t.code(b), g.quad(first+apart*i))
				if i < codes-1 {
					b = thrice(b)
				}
			}
		}
		VPMADDWD(pairOnes(), n, n)
		g.lessAll(n)
		g.addUnit(acc, n, g.scales(0), 0)
	})
}

// lessAll takes the sum of 256 activations from every lane of n.
func (g packedGemv) lessAll(n VecVirtual) {
	s, x := YMM(), XMM()
	VMOVDQU(Mem{Base: g.sums}, s)
	VPMADDWD(pairOnes(), s, s)
	VEXTRACTI128(U8(1), s, x)
	VPADDD(x, s.AsX(), x)
	VPHADDD(x, x, x)
	VPHADDD(x, x, x)
	VPBROADCASTD(x, s)
	VPSUBD(s, n, n)
}

// packedBase3 is for q2_0 in base 3.
func packedBase3() {
	var t trits
	packedKernel("q2_0_8x4_base3", 8, 120, 2, 32, t.constants, func(g packedGemv, acc VecVirtual) {
		d := g.scales(0)
		var n [2]VecVirtual
		finish := func(u int) {
			VPMADDWD(pairOnes(), n[u], n[u])
			g.less(n[u], u, 0)
			g.addUnit(acc, n[u], d, u)
		}
		for k := range 3 {
			b := Fetch(g.at(16 + 32*k))
			for i := range 5 {
				v := 20*k + 4*i
				madd(&n[v/32], t.code(b), g.quad(v))
				if i < 4 {
					b = thrice(b)
				}
			}
			if k == 1 {
				finish(0)
			}
		}
		// Quadword i has rows 2i and 2i+1, from i codes further on.
		b := YMM()
		VPBROADCASTQ(g.at(112), b)
		for i := 1; i < 4; i++ {
			next := thrice(b)
			VPBLENDD(U8(0xff<<(2*i)&0xff), next, b, b)
		}
		madd(&n[1], t.code(b), g.quad(60))
		finish(1)
	})
}

// packedPlanes: a bit of each byte is four values of each row; all ones together are
// counted twice, less the sum.
func packedPlanes() {
	var ones VecVirtual
	packedKernel("q1_0_8x4_planes", 8, 144, 4, 32, func() { ones = fill("low1", 1) }, func(g packedGemv, acc VecVirtual) {
		d := g.scales(0)
		for u := range 4 {
			q := Fetch(g.at(16 + 32*u))
			var n VecVirtual
			for k := range 8 {
				madd(&n, shifted(q, k, 0, ones), g.quad(32*u+4*k))
			}
			VPMADDWD(Eights("pairTwos", 0x00020002), n, n)
			g.less(n, u, 0)
			g.addUnit(acc, n, d, u)
		}
	})
}

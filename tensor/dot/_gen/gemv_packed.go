package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A packed gemv kernel multiplies a group of rows in a repacked layout with one
// activation row. The layouts are made for it: four or eight bytes of each row
// follow each other, so that a vector has codes of all rows beside each other, and
// lane i of a sum is row i without anything being added across.

// packedGemv holds the places that the next bundle is read from.
type packedGemv struct {
	w, ahead, a, da, sums Register
	rows                  int // of a group, 4 or 8
	bytes                 int // of a bundle
}

// packedKernel writes the function of a layout. body has the sums of one bundle; a
// bundle has so many units, of width values.
func packedKernel(layout string, rows, bytes, units, width int, constants func(), body func(g packedGemv, acc VecVirtual)) {
	sums, step := "int32", 4
	if width == 256 {
		sums, step = "int16", 32
	}
	TEXT("gemv_"+layout+"AVX2", NOSPLIT, "func(dst *float32, w *byte, ahead int, a *int8, da *float32, sums *"+sums+", bundles int)")
	Doc("gemv_"+layout+"AVX2 multiplies a group of rows in layout "+layout+" with an activation row. Bytes", "that lie ahead are asked for early.")
	Pragma("noescape")
	g := packedGemv{w: pointer("w"), ahead: pointer("ahead"), a: pointer("a"), da: pointer("da"), sums: pointer("sums"), rows: rows, bytes: bytes}
	bundles := pointer("bundles")
	constants()
	acc := YMM()
	VXORPS(acc, acc, acc)
	loop("loop", bundles, func() {
		for at := 0; at < bytes; at += 64 {
			PREFETCHT0(Mem{Base: g.w, Index: g.ahead, Scale: 1, Disp: at})
		}
		body(g, acc)
		ADDQ(I32(bytes), g.w)
		ADDQ(I32(units*width), g.a)
		ADDQ(I32(4*units), g.da)
		ADDQ(I32(step*units), g.sums)
	})
	bad := YMM()
	VCMPPS(U8(3), acc, acc, bad)
	VBLENDVPS(bad, quietNaNs(), acc, acc)
	if rows == 4 {
		VMOVUPS(acc.AsX(), Mem{Base: pointer("dst")})
	} else {
		VMOVUPS(acc, Mem{Base: pointer("dst")})
	}
	VZEROUPPER()
	RET()
}

func (g packedGemv) at(disp int) Mem { return Mem{Base: g.w, Disp: disp} }

// scales gives the F16 of each row from an offset on as floats. Of four rows the
// upper lanes are 0.
func (g packedGemv) scales(disp int) VecVirtual {
	y := YMM()
	if g.rows == 4 {
		VCVTPH2PS(g.at(disp), y.AsX())
	} else {
		VCVTPH2PS(g.at(disp), y)
	}
	return y
}

// quad gives activations v to v+3 in every lane.
func (g packedGemv) quad(v int) VecVirtual {
	y := YMM()
	VPBROADCASTD(Mem{Base: g.a, Disp: v}, y)
	return y
}

// addUnit adds the term of unit u, whose sums of products are n.
func (g packedGemv) addUnit(acc, n, d VecVirtual, u int) {
	da, scale := YMM(), YMM()
	VBROADCASTSS(Mem{Base: g.da, Disp: 4 * u}, da)
	VMULPS(da, d, scale)
	VCVTDQ2PS(n, n)
	VMULPS(scale, n, n)
	VADDPS(n, acc, acc)
}

// less takes the sum of a unit's activations, shifted, from every lane of n.
func (g packedGemv) less(n VecVirtual, u, shift int) {
	sum := YMM()
	VPBROADCASTD(Mem{Base: g.sums, Disp: 4 * u}, sum)
	if shift > 0 {
		VPSLLD(U8(shift), sum, sum)
	}
	VPSUBD(sum, n, n)
}

// madd adds the products of codes without a sign with activations to words; sum is
// nil at first. Codes are lost.
func madd(sum *VecVirtual, codes VecVirtual, a Op) {
	VPMADDUBSW(a, codes, codes)
	if *sum == nil {
		*sum = codes
		return
	}
	VPADDW(codes, *sum, *sum)
}

// shape is how chunks of a layout's rows lie in vectors of 32 bytes.
type shape struct{ rows, chunk int }

// vectors is the number of vectors that lie at one place of the rows, and step how
// many bytes of a row they have together.
func (s shape) vectors() int { return max(1, s.rows*s.chunk/32) }
func (s shape) step() int    { return max(s.chunk, 32/s.rows) }

// activations gives activations from v on as the vectors' bytes stand.
func (s shape) activations(g packedGemv, v int) VecVirtual {
	y := YMM()
	switch {
	case s.chunk == 8:
		VPBROADCASTQ(Mem{Base: g.a, Disp: v}, y)
	case s.rows == 8:
		VPBROADCASTD(Mem{Base: g.a, Disp: v}, y)
	default:
		// Four values for the lower half's rows, the next four for the upper one's.
		VPBROADCASTQ(Mem{Base: g.a, Disp: v}, y)
		VPSHUFB(words("quadEachHalf", 0x03020100, 0x03020100, 0x03020100, 0x03020100, 0x07060504, 0x07060504, 0x07060504, 0x07060504), y, y)
	}
	return y
}

// lanes brings sums of doublewords, of each vector at a place, to one lane a row.
func (s shape) lanes(n []VecVirtual) VecVirtual {
	switch {
	case s.rows == 8 && s.chunk == 4:
		return n[0]
	case s.rows == 8:
		VPHADDD(n[1], n[0], n[0])
		VPERMQ(U8(0xd8), n[0], n[0])
	case s.chunk == 8:
		VPHADDD(n[0], n[0], n[0])
		VPERMQ(U8(0x08), n[0], n[0])
	default:
		x := XMM()
		VEXTRACTI128(U8(1), n[0], x)
		VPADDD(x, n[0].AsX(), n[0].AsX())
	}
	return n[0]
}

// packedQ4_0 is for nibbles that are signed in the layout: flipped back they are 8
// too high.
func packedQ4_0(name string, s shape) {
	var low4, flip VecVirtual
	packedKernel(name, s.rows, 18*s.rows, 1, 32, func() { low4, flip = fill("low4", 15), fill("flip", 0x88) }, func(g packedGemv, acc VecVirtual) {
		n := make([]VecVirtual, s.vectors())
		for at, k := 0, 0; at < 16; at += s.step() {
			low, high := s.activations(g, at), s.activations(g, 16+at)
			for i := range n {
				q, h := YMM(), YMM()
				VPXOR(g.at(2*s.rows+32*k), flip, q)
				VPSRLW(U8(4), q, h)
				VPAND(low4, q, q)
				VPAND(low4, h, h)
				madd(&n[i], q, low)
				madd(&n[i], h, high)
				k++
			}
		}
		for i := range n {
			VPMADDWD(pairOnes(), n[i], n[i])
		}
		sum := s.lanes(n)
		g.less(sum, 0, 3)
		g.addUnit(acc, sum, g.scales(0), 0)
	})
}

// maddSigned is madd for codes with a sign, into doublewords: products of two with
// activations nearly fill a word. -128 has no opposite in 8 bits, so it is the
// activation that takes the sign.
func maddSigned(sum *VecVirtual, w, a VecVirtual) {
	s := YMM()
	VPSIGNB(w, a, s)
	VPABSB(w, w)
	VPMADDUBSW(s, w, w)
	VPMADDWD(pairOnes(), w, w)
	if *sum == nil {
		*sum = w
		return
	}
	VPADDD(w, *sum, *sum)
}

func packedIQ4_NL(name string, s shape) {
	var low4, values VecVirtual
	packedKernel(name, s.rows, 18*s.rows, 1, 32, func() { low4, values = fill("low4", 15), table("iq4Codes", 0, iq4...) }, func(g packedGemv, acc VecVirtual) {
		n := make([]VecVirtual, s.vectors())
		for at, k := 0, 0; at < 16; at += s.step() {
			low, high := s.activations(g, at), s.activations(g, 16+at)
			for i := range n {
				q, h := load(g.at(2*s.rows+32*k)), YMM()
				VPSRLW(U8(4), q, h)
				VPAND(low4, q, q)
				VPAND(low4, h, h)
				VPSHUFB(q, values, q)
				VPSHUFB(h, values, h)
				maddSigned(&n[i], q, low)
				maddSigned(&n[i], h, high)
				k++
			}
		}
		g.addUnit(acc, s.lanes(n), g.scales(0), 0)
	})
}

func packedQ8_0(name string, s shape) {
	packedKernel(name, s.rows, 34*s.rows, 1, 32, func() {}, func(g packedGemv, acc VecVirtual) {
		n := make([]VecVirtual, s.vectors())
		for at, k := 0, 0; at < 32; at += s.step() {
			a := s.activations(g, at)
			for i := range n {
				maddSigned(&n[i], load(g.at(2*s.rows+32*k)), a)
				k++
			}
		}
		g.addUnit(acc, s.lanes(n), g.scales(0), 0)
	})
}

// packedQ2_0 is for fields of two bits: a shift leaves four values of each row. The
// codes are 1 too high.
func packedQ2_0(name string, blocks int) {
	var low2 VecVirtual
	packedKernel(name, 8, 16+128*blocks, 2*blocks, 32, func() { low2 = fill("low2", 3) }, func(g packedGemv, acc VecVirtual) {
		d := g.scales(0)
		for u := range 2 * blocks {
			var n VecVirtual
			for c := 2 * u; c < 2*u+2; c++ {
				q := load(g.at(16 + 32*c))
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
			b := load(g.at(16 + 32*c))
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
			b := load(g.at(16 + 32*k))
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
			q := load(g.at(16 + 32*u))
			var n VecVirtual
			for k := range 8 {
				madd(&n, shifted(q, k, 0, ones), g.quad(32*u+4*k))
			}
			VPMADDWD(eights("pairTwos", 0x00020002), n, n)
			g.less(n, u, 0)
			g.addUnit(acc, n, d, u)
		}
	})
}

// addTerms adds what a unit of 256 values comes to, less its minima's part.
func (g packedGemv) addTerms(acc, n, m, d, dmin VecVirtual) {
	da := YMM()
	VBROADCASTSS(Mem{Base: g.da}, da)
	addTerm(VADDPS, acc, n, d, da)
	addTerm(VSUBPS, acc, m, dmin, da)
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
		add := func(sum *VecVirtual, x VecVirtual) {
			if *sum == nil {
				*sum = x
				return
			}
			VPADDD(x, *sum, *sum)
		}
		low4 := eights("low4Int", 15)
		for half := range 2 {
			for quarter := range 2 {
				var sums [4]VecVirtual
				for c := 8*half + 4*quarter; c < 8*half+4*quarter+4; c++ {
					q := load(g.at(160 + 32*c))
					for k := range 4 {
						madd(&sums[k], shifted(q, 2*k, 0, low2), g.quad(128*half+32*k+4*(c%8)))
					}
				}
				for k := range 4 {
					s := YMM()
					VPMOVZXBD(g.at(32+8*(8*half+2*k+quarter)), s)
					VPAND(low4, s, s)
					VPMADDWD(doubled(s), sums[k], sums[k])
					add(&n, sums[k])
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
			add(&m, x)
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
			q := load(g.at(16 + 32*c))
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
func packedQ4_K(name string, s shape) {
	var low4 VecVirtual
	packedKernel(name, 8, 1152, 1, 256, func() { low4 = fill("low4", 15) }, func(g packedGemv, acc VecVirtual) {
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
		add := func(sum *VecVirtual, x VecVirtual) {
			if *sum == nil {
				*sum = x
				return
			}
			VPADDD(x, *sum, *sum)
		}
		for p := range 4 {
			sums := [2][]VecVirtual{make([]VecVirtual, len(n)), make([]VecVirtual, len(n))}
			for at := 0; at < 32; at += s.step() {
				low, high := s.activations(g, 64*p+at), s.activations(g, 64*p+32+at)
				for i := range n {
					q, h := load(g.at(128+8*(32*p+at)+32*i)), YMM()
					VPSRLW(U8(4), q, h)
					VPAND(low4, q, q)
					VPAND(low4, h, h)
					madd(&sums[0][i], q, low)
					madd(&sums[1][i], h, high)
				}
			}
			for k := range 2 {
				scale := doubled(six(2*p+k, 0, 0))
				for i := range n {
					v := scale
					if len(n) == 2 { // lanes of rows 0 0 1 1 2 2 3 3, then 4 4 to 7 7
						v = YMM()
						order := words("lowTwice", 0, 0, 1, 1, 2, 2, 3, 3)
						if i == 1 {
							order = words("highTwice", 4, 4, 5, 5, 6, 6, 7, 7)
						}
						VMOVDQU(order, v)
						VPERMD(scale, v, v)
					}
					VPMADDWD(v, sums[k][i], sums[k][i])
					add(&n[i], sums[k][i])
				}
				// Both halves of a sub-block have the minimum.
				low, sum := doubled(six(2*p+k, 4, 4)), YMM()
				VPBROADCASTD(Mem{Base: g.sums, Disp: 4 * (2*p + k)}, sum)
				VPMADDWD(sum, low, low)
				add(&m, low)
			}
		}
		g.addTerms(acc, s.lanes(n), m, g.scales(0), g.scales(16))
	})
}

func gemvsPacked() {
	packedQ4_0("q4_0_4x4", shape{4, 4})
	packedQ4_0("q4_0_4x8", shape{4, 8})
	packedQ4_0("q4_0_8x8", shape{8, 8})
	packedIQ4_NL("iq4_nl_4x4", shape{4, 4})
	packedIQ4_NL("iq4_nl_8x8", shape{8, 8})
	packedQ8_0("q8_0_4x4", shape{4, 4})
	packedQ8_0("q8_0_4x8", shape{4, 8})
	packedQ4_K("q4_K_8x4", shape{8, 4})
	packedQ4_K("q4_K_8x8", shape{8, 8})
	packedQ2_K()
	packedQ2_0("q2_0_8x4", 1)
	packedQ2_0("q2_0_8x4_merged128", 2)
	packedBase3()
	packedPlanes()
	packedTQ2_0()
	packedTQ1_0()
	lookUp()
}

// lookUp is for q1_0_32_lut. Four activations with signs have 16 sums, which tables
// hold: low bytes, then high bytes. A byte of codes looks two rows' sums up.
func lookUp() {
	TEXT("lookUpQ1_0AVX2", NOSPLIT, "func(dst *float32, w *byte, ahead int, tables *byte, da *float32, blocks int)")
	Doc("lookUpQ1_0AVX2 multiplies 32 rows in layout q1_0_32_lut with an activation row, of which", "tables has the sums of each 4.")
	Pragma("noescape")
	w, ahead, tables, da, blocks := pointer("w"), pointer("ahead"), pointer("tables"), pointer("da"), pointer("blocks")
	shifts, low4 := highFour(), fill("low4", 15)
	acc := ymms(4)
	for _, a := range acc {
		VXORPS(a, a, a)
	}
	idx := GP64()
	loop("loop", blocks, func() {
		LEAQ(Mem{Base: w, Disp: 64}, idx)
		units := GP64()
		MOVQ(U64(4), units)
		loop("units", units, func() {
			PREFETCHT0(Mem{Base: idx, Index: ahead, Scale: 1})
			PREFETCHT0(Mem{Base: idx, Index: ahead, Scale: 1, Disp: 64})
			var n [2]VecVirtual // rows 0-7 and 16-23, rows 8-15 and 24-31
			for s := range 8 {
				i := nibblesAt(Mem{Base: idx, Disp: 16 * s}, shifts, low4)
				lo, hi := YMM(), YMM()
				VBROADCASTI128(Mem{Base: tables, Disp: 32 * s}, lo)
				VBROADCASTI128(Mem{Base: tables, Disp: 32*s + 16}, hi)
				VPSHUFB(i, lo, lo)
				VPSHUFB(i, hi, hi)
				VPUNPCKLBW(hi, lo, i)
				VPUNPCKHBW(hi, lo, lo)
				if s == 0 {
					n[0], n[1] = i, lo
					continue
				}
				VPADDW(i, n[0], n[0])
				VPADDW(lo, n[1], n[1])
			}
			scale := YMM()
			VBROADCASTSS(Mem{Base: da}, scale)
			for k := range 4 {
				x, y, d := XMM(), YMM(), YMM()
				VEXTRACTI128(U8(k/2), n[k%2], x)
				VPMOVSXWD(x, y)
				VCVTPH2PS(Mem{Base: w, Disp: 16 * k}, d)
				addTerm(VADDPS, acc[k], y, d, scale)
			}
			ADDQ(I32(128), idx)
			ADDQ(I32(256), tables)
			ADDQ(I32(4), da)
		})
		ADDQ(I32(576), w)
	})
	dst := pointer("dst")
	for k, a := range acc {
		bad := YMM()
		VCMPPS(U8(3), a, a, bad)
		VBLENDVPS(bad, quietNaNs(), a, a)
		VMOVUPS(a, Mem{Base: dst, Disp: 32 * k})
	}
	VZEROUPPER()
	RET()
}

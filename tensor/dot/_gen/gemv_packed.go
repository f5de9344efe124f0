package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
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
	g := packedGemv{w: Pointer("w"), ahead: Pointer("ahead"), a: Pointer("a"), da: Pointer("da"), sums: Pointer("sums"), rows: rows, bytes: bytes}
	bundles := Pointer("bundles")
	constants()
	acc := YMM()
	VXORPS(acc, acc, acc)
	Loop("loop", bundles, func() {
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
		VMOVUPS(acc.AsX(), Mem{Base: Pointer("dst")})
	} else {
		VMOVUPS(acc, Mem{Base: Pointer("dst")})
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
		VPSHUFB(Words("quadEachHalf", 0x03020100, 0x03020100, 0x03020100, 0x03020100, 0x07060504, 0x07060504, 0x07060504, 0x07060504), y, y)
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
				q, h := Fetch(g.at(2*s.rows+32*k)), YMM()
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

// packedMXFP4 has scales that are powers of two, e of each row: 2^(e-128), the exponent
// field but for the two subnormals. Codes are 16 too high.
func packedMXFP4(name string, s shape) {
	var low4, values VecVirtual
	packedKernel(name, s.rows, 17*s.rows, 1, 32, func() { low4, values = fill("low4", 15), table("mxfp4Codes", 16, fp4...) }, func(g packedGemv, acc VecVirtual) {
		n := make([]VecVirtual, s.vectors())
		for at, k := 0, 0; at < 16; at += s.step() {
			low, high := s.activations(g, at), s.activations(g, 16+at)
			for i := range n {
				q, h := Fetch(g.at(s.rows+32*k)), YMM()
				VPSRLW(U8(4), q, h)
				VPAND(low4, q, q)
				VPAND(low4, h, h)
				VPSHUFB(q, values, q)
				VPSHUFB(h, values, h)
				madd(&n[i], q, low)
				madd(&n[i], h, high)
				k++
			}
		}
		for i := range n {
			VPMADDWD(pairOnes(), n[i], n[i])
		}
		sum := s.lanes(n)
		g.less(sum, 0, 4)
		e, small, one := YMM(), YMM(), YMM()
		if s.rows == 4 {
			VPMOVZXBD(g.at(0), e.AsX())
		} else {
			VPMOVZXBD(g.at(0), e)
		}
		VMOVDQU(Eights("subnormal", 0x00200000), small)
		VPSLLVD(e, small, small)
		VMOVDQU(Eights("ones32", 1), one)
		normal := YMM()
		VPCMPGTD(one, e, normal)
		VPSUBD(one, e, e)
		VPSLLD(U8(23), e, e)
		VPBLENDVB(normal, e, small, small)
		g.addUnit(acc, sum, small, 0)
	})
}

func packedQ8_0(name string, s shape) {
	packedKernel(name, s.rows, 34*s.rows, 1, 32, func() {}, func(g packedGemv, acc VecVirtual) {
		n := make([]VecVirtual, s.vectors())
		for at, k := 0, 0; at < 32; at += s.step() {
			a := s.activations(g, at)
			for i := range n {
				maddSigned(&n[i], Fetch(g.at(2*s.rows+32*k)), a)
				k++
			}
		}
		g.addUnit(acc, s.lanes(n), g.scales(0), 0)
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
	packedMXFP4("mxfp4_4x4", shape{4, 4})
	packedMXFP4("mxfp4_8x8", shape{8, 8})
	packedQ4_K("q4_K_8x4", shape{8, 4}, false)
	packedQ4_K("q4_K_8x8", shape{8, 8}, false)
	packedQ4_K("q5_K_8x4", shape{8, 4}, true)
	packedQ4_K("q5_K_8x8", shape{8, 8}, true)
	packedQ6_K("q6_K_8x4", shape{8, 4})
	packedQ6_K("q6_K_8x8", shape{8, 8})
	packedQ2_K()
	packedQ2_0("q2_0_8x4", 1)
	packedQ2_0("q2_0_8x4_merged128", 2)
	packedBase3()
	packedPlanes()
	packedTQ2_0()
	packedTQ1_0()
	lookUp()
}

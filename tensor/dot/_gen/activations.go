package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// maxOver leaves the greatest lane of a vector in all lanes. Magnitudes compare
// as integers, so a NaN is the greatest.
func maxOver(m VecVirtual) {
	t := YMM()
	VPERM2I128(U8(1), m, m, t)
	VPMAXSD(t, m, m)
	VPSHUFD(U8(0x4e), m, t)
	VPMAXSD(t, m, m)
	VPSHUFD(U8(0xb1), m, t)
	VPMAXSD(t, m, m)
}

// codes32 scales 32 values, rounds them to the nearest and packs them to bytes
// in row order.
func codes32(x Register, at int, by, order VecVirtual) VecVirtual {
	var v [4]VecVirtual
	for i := range v {
		v[i] = YMM()
		VMULPS(Mem{Base: x, Disp: at + 32*i}, by, v[i])
		VCVTPS2DQ(v[i], v[i])
	}
	VPACKSSDW(v[1], v[0], v[0])
	VPACKSSDW(v[3], v[2], v[2])
	VPACKSSWB(v[2], v[0], v[0])
	VPERMD(v[0], order, v[0])
	return v[0]
}

func packOrder() VecVirtual { return Fetch(Words("packOrder", 0, 4, 1, 5, 2, 6, 3, 7)) }

func oneBytes() VecVirtual { return fill("oneBytes", 1) }

// laneSums adds bytes in fours.
func laneSums(q, ones VecVirtual) VecVirtual {
	s := YMM()
	VPMADDUBSW(q, ones, s)
	VPMADDWD(pairOnes(), s, s)
	return s
}

func quantizeQ8_0() {
	TEXT("quantizeQ8_0AVX2", NOSPLIT, "func(q *int8, d *float32, sums *int32, x *float32, blocks int) int")
	Doc("quantizeQ8_0AVX2 is quantizeQ8_0Scalar as far as blocks have an ordinary scale. It gives the number of blocks left.")
	Pragma("noescape")
	q, d, sums, x, blocks := Pointer("q"), Pointer("d"), Pointer("sums"), Pointer("x"), Pointer("blocks")
	abs, order, ones := Fetch(Eights("absBits", 0x7fffffff)), packOrder(), oneBytes()
	by, one := XMM(), XMM()
	VMOVSS(Words("float127", 0x42fe0000), by)
	VMOVSS(Words("oneFloat", 0x3f800000), one)
	Label("loop")
	TESTQ(blocks, blocks)
	JZ(LabelRef("done"))
	m, t := YMM(), YMM()
	VPAND(Mem{Base: x}, abs, m)
	for i := 1; i < 4; i++ {
		VPAND(Mem{Base: x, Disp: 32 * i}, abs, t)
		VPMAXSD(t, m, m)
	}
	maxOver(m)
	bits := GP32()
	VMOVD(m.AsX(), bits)
	CMPL(bits, U32(0x7f800000))
	JAE(LabelRef("done"))
	scale, stored := m.AsX(), XMM()
	VDIVSS(by, scale, scale)
	VCVTPS2PH(U8(0), scale, stored)
	VCVTPH2PS(stored, stored)
	VMOVD(stored, bits)
	TESTL(bits, bits)
	JZ(LabelRef("done"))
	MOVL(bits, Mem{Base: d})
	inverse := YMM()
	VDIVSS(scale, one, inverse.AsX())
	VBROADCASTSS(inverse.AsX(), inverse)
	c := codes32(x, 0, inverse, order)
	VMOVDQU(c, Mem{Base: q})
	s, h := laneSums(c, ones), XMM()
	VEXTRACTI128(U8(1), s, h)
	VPADDD(h, s.AsX(), h)
	u := XMM()
	VPSHUFD(U8(0x4e), h, u)
	VPADDD(u, h, h)
	VPSHUFD(U8(0xb1), h, u)
	VPADDD(u, h, h)
	VMOVD(h, Mem{Base: sums})
	ADDQ(I32(32), q)
	ADDQ(I32(4), d)
	ADDQ(I32(4), sums)
	ADDQ(I32(128), x)
	DECQ(blocks)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	Store(blocks, ReturnIndex(0))
	RET()
}

func quantizeQ8_K() {
	TEXT("quantizeQ8_KAVX2", NOSPLIT, "func(q *int8, d *float32, sums *int16, x *float32) bool")
	Doc("quantizeQ8_KAVX2 is quantizeQ8_KScalar. It is false, and does nothing, if the scale is not ordinary.")
	Pragma("noescape")
	q, d, sums, x := Pointer("q"), Pointer("d"), Pointer("sums"), Pointer("x")
	abs, order, ones := Fetch(Eights("absBits", 0x7fffffff)), packOrder(), oneBytes()
	m := YMMs(2)
	for i := range 32 {
		if i < 2 {
			VPAND(Mem{Base: x, Disp: 32 * i}, abs, m[i])
			continue
		}
		t := YMM()
		VPAND(Mem{Base: x, Disp: 32 * i}, abs, t)
		VPMAXSD(t, m[i%2], m[i%2])
	}
	VPMAXSD(m[1], m[0], m[0])
	maxOver(m[0])
	bits := GP32()
	VMOVD(m[0].AsX(), bits)
	SUBL(U32(6<<23+1), bits)
	CMPL(bits, U32(0x7f800000-6<<23-1))
	JAE(LabelRef("odd"))
	by, scale := YMM(), XMM()
	VMOVSS(Words("float127", 0x42fe0000), by.AsX())
	VDIVSS(m[0].AsX(), by.AsX(), by.AsX())
	VMOVSS(Words("oneFloat", 0x3f800000), scale)
	VDIVSS(by.AsX(), scale, scale)
	VMOVSS(scale, Mem{Base: d})
	VBROADCASTSS(by.AsX(), by)
	var v [8]VecVirtual
	for i := range v {
		c := codes32(x, 128*i, by, order)
		VMOVDQU(c, Mem{Base: q, Disp: 32 * i})
		v[i] = laneSums(c, ones)
	}
	add := func(a, b VecVirtual) VecVirtual { VPHADDD(b, a, a); return a }
	even := add(add(v[0], v[1]), add(v[2], v[3]))
	odd := add(add(v[4], v[5]), add(v[6], v[7]))
	// Sums 0, 2, ... 14 in the low half, 1, 3, ... 15 in the high one.
	VPACKSSDW(odd, even, even)
	h, lo := XMM(), XMM()
	VEXTRACTI128(U8(1), even, h)
	VPUNPCKLWD(h, even.AsX(), lo)
	VPUNPCKHWD(h, even.AsX(), h)
	VMOVDQU(lo, Mem{Base: sums})
	VMOVDQU(h, Mem{Base: sums, Disp: 16})
	VZEROUPPER()
	yes := GP8()
	MOVB(U8(1), yes)
	Store(yes, ReturnIndex(0))
	RET()
	Label("odd")
	VZEROUPPER()
	no := GP8()
	MOVB(U8(0), no)
	Store(no, ReturnIndex(0))
	RET()
}

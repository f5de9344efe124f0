package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// packOrder undoes the lane interleaving of two packs.
func packOrder() Mem { return Words("packOrder", 0, 4, 1, 5, 2, 6, 3, 7) }

// magnitudes loads a block of 32 values, clears their signs into abs when it
// is given, and leaves the greatest magnitude in every lane of the result.
// Magnitudes compare as integers, so a NaN is the greatest.
func magnitudes(src Register, mask VecVirtual, abs *[4]VecVirtual) (x [4]VecVirtual, top VecVirtual) {
	var a [4]VecVirtual
	for i := range x {
		x[i], a[i] = YMM(), YMM()
		VMOVUPS(Mem{Base: src, Disp: 32 * i}, x[i])
		VPAND(x[i], mask, a[i])
	}
	if abs != nil {
		*abs = a
	}
	m, t := YMM(), YMM()
	VPMAXSD(a[0], a[1], m)
	VPMAXSD(a[2], a[3], t)
	VPMAXSD(t, m, m)
	VPERM2I128(U8(1), m, m, t)
	VPMAXSD(t, m, m)
	VPSHUFD(U8(0x4e), m, t)
	VPMAXSD(t, m, m)
	VPSHUFD(U8(0xb1), m, t)
	VPMAXSD(t, m, m)
	return x, m
}

// packBytes narrows 32 integers, which must fit a signed 16-bit word, to bytes
// in row order.
func packBytes(x [4]VecVirtual, order VecVirtual, signed bool) VecVirtual {
	VPACKSSDW(x[1], x[0], x[0])
	VPACKSSDW(x[3], x[2], x[2])
	if signed {
		VPACKSSWB(x[2], x[0], x[0])
	} else {
		VPACKUSWB(x[2], x[0], x[0])
	}
	VPERMD(x[0], order, x[0])
	return x[0]
}

// storeHalf writes the scale in lane 0 of d as F16.
func storeHalf(d VecVirtual, dst Register) {
	h := XMM()
	VCVTPS2PH(U8(0), d.AsX(), h)
	VPEXTRW(U8(0), h, Mem{Base: dst})
}

// fixNaN overwrites a scale that is not a number, as putScale does. bits is its
// magnitude.
func fixNaN(bits Register, dst Register, label string) {
	CMPL(bits, U32(0x7f800000))
	JBE(LabelRef(label))
	MOVW(U16(0x7e00), Mem{Base: dst})
	Label(label)
}

// jumpUnlessInvertible is scalar function invertible for a magnitude.
func jumpUnlessInvertible(bits Register, label string) {
	t := GP32()
	LEAL(Mem{Base: bits, Disp: -0x00200001}, t)
	CMPL(t, U32(0x7f800000-0x00200001))
	JAE(LabelRef(label))
}

func q8_0() {
	TEXT("encodeQ8_0SIMD", NOSPLIT, "func(dst *byte, src *float32, blocks int)")
	Doc("encodeQ8_0SIMD is encodeQ8_0Scalar.")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("blocks"), GP64())
	abs, sign, half := Fetch(Eights("absBits", 0x7fffffff)), Fetch(Eights("signBit", 0x80000000)), Fetch(Eights("belowHalf", 0x3effffff))
	order := Fetch(packOrder())
	one, by := XMM(), XMM()
	VMOVSS(Words("oneFloat", 0x3f800000), one)
	VMOVSS(Words("float127", 0x42fe0000), by)
	TESTQ(n, n)
	JZ(LabelRef("q8Done"))
	Label("q8Loop")
	x, d := magnitudes(src, abs, nil)
	VDIVSS(by, d.AsX(), d.AsX())
	storeHalf(d, dst)
	bits, id := GP32(), YMM()
	VMOVD(d.AsX(), bits)
	jumpUnlessInvertible(bits, "q8Zero")
	VDIVSS(d.AsX(), one, id.AsX())
	VBROADCASTSS(id.AsX(), id)
	for i := range x {
		t := YMM()
		VMULPS(id, x[i], x[i])
		VANDPS(x[i], sign, t)
		VORPS(half, t, t)
		VADDPS(t, x[i], x[i])
		VCVTTPS2DQ(x[i], x[i])
	}
	VMOVDQU(packBytes(x, order, true), Mem{Base: dst, Disp: 2})
	Label("q8Next")
	ADDQ(I32(128), src)
	ADDQ(I32(34), dst)
	DECQ(n)
	JNZ(LabelRef("q8Loop"))
	Label("q8Done")
	VZEROUPPER()
	RET()
	Label("q8Zero")
	fixNaN(bits, dst, "q8Number")
	zero := YMM()
	VPXOR(zero, zero, zero)
	VMOVDQU(zero, Mem{Base: dst, Disp: 2})
	JMP(LabelRef("q8Next"))
}

func q4_0() {
	TEXT("encodeQ4_0SIMD", NOSPLIT, "func(dst *byte, src *float32, blocks int)")
	Doc("encodeQ4_0SIMD is encodeQ4_0Scalar.")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("blocks"), GP64())
	abs, offset := Fetch(Eights("absBits", 0x7fffffff)), Fetch(Eights("q4offset", 0x41080000))
	order, top := Fetch(packOrder()), Fetch(Eights("q4top", 0x0f0f0f0f))
	one, by := XMM(), XMM()
	VMOVSS(Words("oneFloat", 0x3f800000), one)
	VMOVSS(Words("minusEighth", 0xbe000000), by)
	TESTQ(n, n)
	JZ(LabelRef("q4Done"))
	Label("q4Loop")
	var a [4]VecVirtual
	x, amax := magnitudes(src, abs, &a)
	// The first value of the greatest magnitude, for its sign.
	for i := range a {
		VPCMPEQD(a[i], amax, a[i])
	}
	at, d, id := GP32(), YMM(), YMM()
	VPMOVMSKB(packBytes(a, order, true), at)
	BSFL(at, at)
	VMULSS(Mem{Base: src, Index: at.As64(), Scale: 4}, by, d.AsX())
	storeHalf(d, dst)
	bits := GP32()
	VMOVD(d.AsX(), bits)
	ANDL(U32(0x7fffffff), bits)
	jumpUnlessInvertible(bits, "q4Odd")
	VDIVSS(d.AsX(), one, id.AsX())
	VBROADCASTSS(id.AsX(), id)
	Label("q4Codes")
	for i := range x {
		VMULPS(id, x[i], x[i])
		VADDPS(offset, x[i], x[i])
		VCVTTPS2DQ(x[i], x[i])
	}
	q := packBytes(x, order, false)
	VPMINUB(top, q, q)
	hi := XMM()
	VEXTRACTI128(U8(1), q, hi)
	VPSLLW(U8(4), hi, hi)
	VPOR(q.AsX(), hi, hi)
	VMOVDQU(hi, Mem{Base: dst, Disp: 2})
	Label("q4Next")
	ADDQ(I32(128), src)
	ADDQ(I32(18), dst)
	DECQ(n)
	JNZ(LabelRef("q4Loop"))
	Label("q4Done")
	VZEROUPPER()
	RET()
	Label("q4Odd")
	VPXOR(id, id, id)
	TESTL(bits, bits)
	JZ(LabelRef("q4Flat"))
	fixNaN(bits, dst, "q4Number")
	VMOVDQU(id.AsX(), Mem{Base: dst, Disp: 2})
	JMP(LabelRef("q4Next"))
	Label("q4Flat")
	// A block of zeros has +0 for its extreme whatever their signs.
	VMOVD(amax.AsX(), bits)
	TESTL(bits, bits)
	JNZ(LabelRef("q4Codes"))
	MOVW(U16(0x8000), Mem{Base: dst})
	JMP(LabelRef("q4Codes"))
}

func kmcuQ4() {
	TEXT("encodeKMCUQ4SIMD", NOSPLIT, "func(dst *byte, src *float32, blocks int)")
	Doc("encodeKMCUQ4SIMD is encodeKMCUQ4Scalar.")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("blocks"), GP64())
	abs, order := Fetch(Eights("absBits", 0x7fffffff)), Fetch(packOrder())
	lo, hi, eight := Fetch(Eights("kmcuLow", 0xf8f8f8f8)), Fetch(Eights("kmcuHigh", 0x07070707)), Fetch(Eights("kmcuEight", 0x08080808))
	pairs := Fetch(Eights("kmcuPairs", 0x10011001))
	by := XMM()
	VMOVSS(Words("eighth", 0x3e000000), by)
	one := Words("oneFloat", 0x3f800000)
	TESTQ(n, n)
	JZ(LabelRef("kmcuDone"))
	Label("kmcuLoop")
	x, d := magnitudes(src, abs, nil)
	bits := GP32()
	VMULSS(by, d.AsX(), d.AsX())
	VMOVD(d.AsX(), bits)
	TESTL(bits, bits)
	JZ(LabelRef("kmcuTiny"))
	Label("kmcuScale")
	storeHalf(d, dst)
	CMPL(bits, U32(0x7f800000))
	JAE(LabelRef("kmcuOdd"))
	VBROADCASTSS(d.AsX(), d)
	for i := range x {
		VDIVPS(d, x[i], x[i])
		VCVTPS2DQ(x[i], x[i])
	}
	q := packBytes(x, order, true)
	VPMAXSB(lo, q, q)
	VPMINSB(hi, q, q)
	VPADDB(eight, q, q)
	// Neighbours share a byte: even*1 + odd*16.
	VPMADDUBSW(pairs, q, q)
	VPACKUSWB(q, q, q)
	VPERMQ(U8(0x08), q, q)
	VMOVDQU(q.AsX(), Mem{Base: dst, Disp: 2})
	Label("kmcuNext")
	ADDQ(I32(128), src)
	ADDQ(I32(18), dst)
	DECQ(n)
	JNZ(LabelRef("kmcuLoop"))
	Label("kmcuDone")
	VZEROUPPER()
	RET()
	Label("kmcuTiny")
	VMOVSS(one, d.AsX())
	JMP(LabelRef("kmcuScale"))
	Label("kmcuOdd")
	fixNaN(bits, dst, "kmcuNumber")
	t := XMM()
	VPSLLD(U8(4), eight.AsX(), t)
	VPOR(eight.AsX(), t, t)
	VMOVDQU(t, Mem{Base: dst, Disp: 2})
	JMP(LabelRef("kmcuNext"))
}

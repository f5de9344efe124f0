// Command _gen writes the AVX2 kernels of package cq.
//
//	cd tensor/cq/_gen && go run . -out ../kernels_amd64.s -stubs ../stubs_amd64.go -pkg cq
//
// It is a module of its own, so that its dependencies are none of quern's. Each
// kernel does what the scalar function named in its comment does, each value by the
// same operations in the same order: the results are the same to the bit.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

func main() {
	ConstraintExpr("amd64,!noasm")
	transform()
	scale()
	nearest()
	nibbles()
	codes()
	Generate()
}

// butterfly makes a+b and a-b of two registers, in place.
func butterfly(a, b VecVirtual) {
	t := YMM()
	VMOVAPS(a, t)
	VADDPS(b, a, a)
	VSUBPS(b, t, b)
}

// inner does the steps of 1, 2 and 4 inside a register: each value is added to its
// partner, or subtracted where it is the second of the two.
func inner(v VecVirtual) {
	swap := func(mask uint8, partner func(from, to VecVirtual)) {
		p, d := YMM(), YMM()
		partner(v, p)
		VSUBPS(v, p, d) // partner - value
		VADDPS(p, v, v)
		VBLENDPS(U8(mask), d, v, v)
	}
	swap(0xaa, func(from, to VecVirtual) { VPERMILPS(U8(0xb1), from, to) })
	swap(0xcc, func(from, to VecVirtual) { VPERMILPS(U8(0x4e), from, to) })
	swap(0xf0, func(from, to VecVirtual) { VPERM2F128(U8(1), from, from, to) })
}

func transform() {
	TEXT("transformAVX2", NOSPLIT, "func(x *float32, n int)")
	Doc("transformAVX2 is transformScalar for n values, 32, 64, 128 or 256.")
	Pragma("noescape")
	x, n := Load(Param("x"), GP64()), Load(Param("n"), GP64())
	SHLQ(U8(2), n) // in bytes

	// Runs of 32 values: the steps of 1 to 16.
	p, end := GP64(), GP64()
	MOVQ(x, p)
	LEAQ(Mem{Base: x, Index: n, Scale: 1}, end)
	Label("runs")
	var v [4]VecVirtual
	for i := range v {
		v[i] = YMM()
		VMOVUPS(Mem{Base: p, Disp: 32 * i}, v[i])
		inner(v[i])
	}
	butterfly(v[0], v[1])
	butterfly(v[2], v[3])
	butterfly(v[0], v[2])
	butterfly(v[1], v[3])
	for i := range v {
		VMOVUPS(v[i], Mem{Base: p, Disp: 32 * i})
	}
	ADDQ(I32(128), p)
	CMPQ(p, end)
	JLT(LabelRef("runs"))

	// The steps of 32 and more, h in bytes.
	h := GP64()
	MOVQ(U32(128), h)
	Label("steps")
	CMPQ(h, n)
	JGE(LabelRef("done"))
	MOVQ(x, p)
	Label("pairs")
	far, stop := GP64(), GP64()
	LEAQ(Mem{Base: p, Index: h, Scale: 1}, far)
	MOVQ(far, stop)
	Label("values")
	a, b := YMM(), YMM()
	VMOVUPS(Mem{Base: p}, a)
	VMOVUPS(Mem{Base: far}, b)
	butterfly(a, b)
	VMOVUPS(a, Mem{Base: p})
	VMOVUPS(b, Mem{Base: far})
	ADDQ(I32(32), p)
	ADDQ(I32(32), far)
	CMPQ(p, stop)
	JLT(LabelRef("values"))
	MOVQ(far, p)
	CMPQ(p, end)
	JLT(LabelRef("pairs"))
	SHLQ(U8(1), h)
	JMP(LabelRef("steps"))
	Label("done")
	VZEROUPPER()
	RET()
}

func scale() {
	TEXT("scaleAVX2", NOSPLIT, "func(x *float32, n int, root float32) float32")
	Doc("scaleAVX2 multiplies n values, a multiple of 8 up to 128, by root and gives the sum of their squares as sumSquares does.")
	Pragma("noescape")
	x, n := Load(Param("x"), GP64()), Load(Param("n"), GP64())
	root, sum := YMM(), YMM()
	VBROADCASTSS(NewParamAddr("root", 16), root)
	VXORPS(sum, sum, sum)
	Label("scaleLoop")
	v, s := YMM(), YMM()
	VMULPS(Mem{Base: x}, root, v)
	VMOVUPS(v, Mem{Base: x})
	VMULPS(v, v, s)
	VADDPS(s, sum, sum)
	ADDQ(I32(32), x)
	SUBQ(I32(8), n)
	JNZ(LabelRef("scaleLoop"))
	VHADDPS(sum, sum, sum)
	VHADDPS(sum, sum, sum)
	high := XMM()
	VEXTRACTF128(U8(1), sum, high)
	VADDSS(high, sum.AsX(), high)
	Store(high, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func nearest() {
	TEXT("nearestAVX2", NOSPLIT, "func(index *byte, x *float32, n int, norm float32, c *float32) float32")
	Doc("nearestAVX2 is nearestScalar for n values, a multiple of 32, and a norm that is not too small.")
	Pragma("noescape")
	index, x, n, c := Load(Param("index"), GP64()), Load(Param("x"), GP64()), Load(Param("n"), GP64()), Load(Param("c"), GP64())
	norm, first, mask, near, order := YMM(), YMM(), YMM(), YMM(), YMM()
	VBROADCASTSS(NewParamAddr("norm", 24), norm)
	VBROADCASTSS(Mem{Base: c}, first)
	var cuts [3]VecVirtual
	for i := range cuts {
		cuts[i] = YMM()
		VMOVUPS(Mem{Base: c, Disp: 32 * (i + 1)}, cuts[i])
	}
	VPCMPEQD(mask, mask, mask)
	VMOVAPS(mask, near)
	VPSRLD(U8(1), mask, mask) // all but the sign
	// 0x7f800000, infinity.
	VPSLLD(U8(24), near, near)
	VPSRLD(U8(1), near, near)
	VMOVDQU(permutation(), order)
	Label("nearestLoop")
	var idx [4]VecVirtual
	for i := range idx {
		v, m, d := YMM(), YMM(), YMM()
		idx[i] = YMM()
		k := idx[i]
		VMOVUPS(Mem{Base: x, Disp: 32 * i}, v)
		VDIVPS(norm, v, v)
		VSUBPS(first, v, d)
		VANDPS(mask, d, d)
		VMINPS(near, d, near)
		VCMPPS(U8(30), first, v, m) // v > first
		VPXOR(k, k, k)
		VPSUBD(m, k, k)
		for _, cut := range cuts {
			t := YMM()
			VPERMPS(cut, k, t)
			VSUBPS(t, v, d)
			VANDPS(mask, d, d)
			VMINPS(near, d, near)
			VCMPPS(U8(30), t, v, m)
			VPADDD(k, k, k)
			VPSUBD(m, k, k)
		}
	}
	VPACKSSDW(idx[1], idx[0], idx[0])
	VPACKSSDW(idx[3], idx[2], idx[2])
	VPACKUSWB(idx[2], idx[0], idx[0])
	VPERMD(idx[0], order, idx[0])
	VMOVDQU(idx[0], Mem{Base: index})
	ADDQ(I32(128), x)
	ADDQ(I32(32), index)
	SUBQ(I32(32), n)
	JNZ(LabelRef("nearestLoop"))
	high, half := XMM(), XMM()
	VEXTRACTF128(U8(1), near, high)
	VMINPS(near.AsX(), high, high)
	VMOVHLPS(high, high, half)
	VMINPS(half, high, high)
	VPSHUFD(U8(1), high, half)
	VMINSS(half, high, high)
	Store(high, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// permutation puts the groups of four that packing leaves apart into order.
func permutation() Mem {
	return Words("order", 0, 4, 1, 5, 2, 6, 3, 7)
}

// nibbles looks up numbers of 4 bits: in the lower and the upper half of the table,
// of which bit 3 chooses one.
func nibbles() {
	TEXT("nibblesAVX2", NOSPLIT, "func(dst *float32, src *byte, n int, table *float32, norm float32)")
	Doc("nibblesAVX2 writes table[i]*norm for each of n numbers i of 4 bits, a multiple of 16, the low half of a byte first.")
	Pragma("noescape")
	dst, src, n, table := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64()), Load(Param("table"), GP64())
	low, high := YMM(), YMM()
	VMOVUPS(Mem{Base: table}, low)
	VMOVUPS(Mem{Base: table, Disp: 32}, high)
	norm := YMM()
	VBROADCASTSS(NewParamAddr("norm", 32), norm)
	VMULPS(norm, low, low)
	VMULPS(norm, high, high)
	lookup := func(k VecVirtual) VecVirtual {
		a, b, m := YMM(), YMM(), YMM()
		VPERMPS(low, k, a)
		VPERMPS(high, k, b)
		VPSLLD(U8(28), k, m)
		VBLENDVPS(m, b, a, a)
		return a
	}
	Label("nibblesLoop")
	k, up := YMM(), YMM()
	VPMOVZXBD(Mem{Base: src}, k)
	VPSRLD(U8(4), k, up)
	even, odd := lookup(k), lookup(up) // VPERMPS looks at 3 bits, the blend at bit 3
	a, b, c := YMM(), YMM(), YMM()
	VUNPCKLPS(odd, even, a)
	VUNPCKHPS(odd, even, b)
	VPERM2F128(U8(0x20), b, a, c)
	VPERM2F128(U8(0x31), b, a, b)
	VMOVUPS(c, Mem{Base: dst})
	VMOVUPS(b, Mem{Base: dst, Disp: 32})
	ADDQ(I32(8), src)
	ADDQ(I32(64), dst)
	SUBQ(I32(16), n)
	JNZ(LabelRef("nibblesLoop"))
	VZEROUPPER()
	RET()
}

// codes looks up numbers of up to 3 bits.
func codes() {
	TEXT("codesAVX2", NOSPLIT, "func(dst *float32, src *byte, n int, table *float32, bits int, shifts *uint32, mask uint32, norm float32)")
	Doc("codesAVX2 writes table[i]*norm for each of n numbers i of bits bits, a multiple of 8, with shifts 0, bits, 2*bits and on. It reads 4 bytes where the last eight begin.")
	Pragma("noescape")
	dst, src, n, table := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64()), Load(Param("table"), GP64())
	bits, shifts := Load(Param("bits"), GP64()), Load(Param("shifts"), GP64())
	t, by, mask := YMM(), YMM(), YMM()
	VMOVUPS(Mem{Base: table}, t)
	VMOVDQU(Mem{Base: shifts}, by)
	VBROADCASTSS(NewParamAddr("mask", 48), mask)
	norm := YMM()
	VBROADCASTSS(NewParamAddr("norm", 52), norm)
	VMULPS(norm, t, t)
	Label("codesLoop")
	k := YMM()
	VPBROADCASTD(Mem{Base: src}, k)
	VPSRLVD(by, k, k)
	VPAND(mask, k, k)
	VPERMPS(t, k, k)
	VMOVUPS(k, Mem{Base: dst})
	ADDQ(bits, src)
	ADDQ(I32(32), dst)
	SUBQ(I32(8), n)
	JNZ(LabelRef("codesLoop"))
	VZEROUPPER()
	RET()
}

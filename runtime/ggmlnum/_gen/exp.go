package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// exponential holds the constants of vexp.
type exponential struct {
	toBase2, magic, high, low, c1, c2, c3, c4, c5, one, far, farther, down, top, sign Mem
}

func newExponential() exponential {
	return exponential{
		toBase2: floats("perLn2", 0x1.715476p+0), magic: floats("magic", 0x1.8p23), high: floats("ln2High", 0x1.62e4p-1), low: floats("ln2Low", 0x1.7f7d1cp-20),
		c1: floats("c1", 0x1.ffffecp-1), c2: floats("c2", 0x1.fffdb6p-2), c3: floats("c3", 0x1.555e66p-3), c4: floats("c4", 0x1.573e2ep-5), c5: floats("c5", 0x1.0e4020p-7),
		one: floats("one", 1), far: floats("far", 126), farther: floats("farther", 192),
		down: Eights("down", 0x82000000), top: Eights("top", 0x7f000000), sign: Eights("sign", 1<<31),
	}
}

// of replaces v by e^v. label tells the places of use of a function apart.
func (e exponential) of(v VecVirtual, label string) {
	z, n, b, u, j, t := YMM(), YMM(), YMM(), YMM(), YMM(), YMM()
	VMOVUPS(e.magic, z)
	VFMADD231PS(e.toBase2, v, z)
	VSUBPS(e.magic, z, n)
	VMOVAPS(v, b)
	VFNMADD231PS(e.high, n, b)
	VFNMADD231PS(e.low, n, b)
	VPSLLD(U8(23), z, z) // e
	k := YMM()
	VPADDD(e.one, z, k)
	VMULPS(b, b, u)
	VMOVUPS(e.c4, j)
	VFMADD231PS(e.c5, b, j)
	VMOVUPS(e.c2, t)
	VFMADD231PS(e.c3, b, t)
	VFMADD213PS(t, u, j)
	VMULPS(e.c1, b, t)
	VFMADD213PS(t, u, j)
	size, mask := YMM(), YMM()
	VMOVUPS(e.sign, size)
	VANDNPS(n, size, size)
	VCMPPS(U8(0x1e), e.far, size, mask) // size > 126, ordered
	bits := GP32()
	VMOVMSKPS(mask, bits)
	VMOVAPS(k, v)
	VFMADD231PS(j, k, v)
	TESTL(bits, bits)
	JZ(LabelRef(label))
	g, s1, s2 := YMM(), YMM(), YMM()
	VXORPS(g, g, g)
	VCMPPS(U8(0x12), g, n, g) // n <= 0, ordered
	VPAND(e.down, g, g)
	VPADDD(e.top, g, s1)
	VPSUBD(g, z, s2)
	VMOVAPS(s2, t)
	VFMADD231PS(j, s2, t)
	VMULPS(s1, t, t)
	VBLENDVPS(mask, t, v, v)
	VMULPS(s1, s1, s1)
	VCMPPS(U8(0x1e), e.farther, size, mask)
	VBLENDVPS(mask, s1, v, v)
	Label(label)
}

func expSum() {
	TEXT("expSumAVX2", NOSPLIT, "func(x *float32, n int, top float32) float64")
	Doc("expSumAVX2 is expSumScalar for n values, a multiple of 8 and not 0.")
	Pragma("noescape")
	x, n, top := Load(Param("x"), GP64()), Load(Param("n"), GP64()), Everywhere("top")
	e := newExponential()
	sum := XMM()
	VXORPD(sum, sum, sum)
	Label("loop")
	v := YMM()
	VMOVUPS(Mem{Base: x}, v)
	VSUBPS(top, v, v)
	e.of(v, "usual")
	VMOVUPS(v, Mem{Base: x})
	h, l := XMM(), XMM()
	VEXTRACTF128(U8(1), v, h)
	VADDPS(v.AsX(), h, h)
	VMOVHLPS(h, h, l)
	VADDPS(l, h, h)
	VMOVSHDUP(h, l)
	VADDSS(l, h, h)
	VCVTSS2SD(h, h, h)
	VADDSD(h, sum, sum)
	ADDQ(U8(32), x)
	SUBQ(U8(8), n)
	JNZ(LabelRef("loop"))
	Store(sum, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func siluMul() {
	TEXT("siluMulAVX2", NOSPLIT, "func(x, by *float32, n int)")
	Doc("siluMulAVX2 is siluMulScalar for n values, a multiple of 8 and not 0.")
	Pragma("noescape")
	x, g, n := Load(Param("x"), GP64()), Load(Param("by"), GP64()), Load(Param("n"), GP64())
	e := newExponential()
	Label("loop")
	v, w, zero := YMM(), YMM(), YMM()
	VMOVUPS(Mem{Base: x}, w)
	VXORPS(zero, zero, zero)
	VSUBPS(w, zero, v)
	e.of(v, "usual")
	VADDPS(e.one, v, v)
	VDIVPS(v, w, w)
	VMULPS(Mem{Base: g}, w, w)
	VMOVUPS(w, Mem{Base: x})
	ADDQ(U8(32), x)
	ADDQ(U8(32), g)
	SUBQ(U8(8), n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

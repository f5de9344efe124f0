package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// quantize gives blocks of 32 activations their codes.
func quantize() {
	TEXT("quantizeAVX2", NOSPLIT, "func(q *int8, d, s *float32, sums *int32, x *float32, blocks int) bool")
	Doc("quantizeAVX2 is quantizeScalar; blocks is at least 1.")
	Pragma("noescape")
	q, d, s, sums, x, blocks := Pointer("q"), Pointer("d"), Pointer("s"), Pointer("sums"), Pointer("x"), Pointer("blocks")
	abs, order := Fetch(Eights("absBits", 0x7fffffff)), Fetch(Words("packOrder", 0, 4, 1, 5, 2, 6, 3, 7))
	by127, none, odd := XMM(), XMM(), YMM()
	VMOVSS(Words("float127", 0x42fe0000), by127)
	VXORPS(none, none, none)
	zero(odd)
	Loop("loop", blocks, func() {
		v, m := YMMs(4), YMM()
		for i := range v {
			VMOVUPS(Mem{Base: x, Disp: 32 * i}, v[i])
			if i == 0 {
				VANDPS(v[i], abs, m)
				continue
			}
			t := YMM()
			VANDPS(v[i], abs, t)
			VMAXPS(t, m, m) // of two of which one is NaN the second, t
		}
		top, t := XMM(), XMM()
		VEXTRACTF128(U8(1), m, top)
		VMAXPS(m.AsX(), top, top)
		VMOVHLPS(top, top, t)
		VMAXPS(t, top, top)
		VMOVSHDUP(top, t)
		VMAXSS(t, top, top)
		scale, by := XMM(), YMM()
		VDIVSS(by127, top, scale)
		VDIVSS(top, by127, by.AsX())
		VCMPSS(U8(4), none, top, t) // not equal, or not a number
		VANDPS(t, by.AsX(), by.AsX())
		VBROADCASTSS(by.AsX(), by)
		for i := range v {
			VMULPS(by, v[i], v[i])
			VCVTPS2DQ(v[i], v[i])
		}
		u, w := YMM(), YMM()
		VPADDD(v[1], v[0], u)
		VPADDD(v[3], v[2], w)
		VPADDD(w, u, u)
		sum := addInts(u)
		VCVTDQ2PS(sum, sum)
		VMULSS(scale, sum, sum)
		for _, h := range []struct {
			v  Register
			to Mem
		}{{scale, Mem{Base: d}}, {sum, Mem{Base: s}}} {
			VCVTPS2PH(U8(0), h.v, h.v)
			VCVTPH2PS(h.v, h.v)
			VMOVSS(h.v, h.to)
		}
		VPACKSSDW(v[1], v[0], v[0])
		VPACKSSDW(v[3], v[2], v[2])
		VPACKSSWB(v[2], v[0], v[0])
		VPERMD(v[0], order, v[0])
		VMOVDQU(v[0], Mem{Base: q})
		VPCMPEQB(Eights("lowestBytes", 0x80808080), v[0], u)
		VPOR(u, odd, odd)
		VMOVDQU(oneBytes(), w)
		VPMADDUBSW(v[0], w, w)
		VPMADDWD(pairOnes(), w, w)
		VMOVD(addInts(w), Mem{Base: sums})
		ADDQ(I32(32), q)
		ADDQ(I32(4), d)
		ADDQ(I32(4), s)
		ADDQ(I32(4), sums)
		ADDQ(I32(128), x)
	})
	found := GP8()
	VPTEST(odd, odd)
	SETNE(found)
	Store(found, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// addInts adds the lanes of a vector into lane 0.
func addInts(v VecVirtual) Register {
	h, t := XMM(), XMM()
	VEXTRACTI128(U8(1), v, h)
	VPADDD(v.AsX(), h, h)
	VPSHUFD(U8(0x4e), h, t)
	VPADDD(t, h, h)
	VPSHUFD(U8(0xb1), h, t)
	VPADDD(t, h, h)
	return h
}

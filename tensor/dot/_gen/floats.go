package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// dotFloats multiplies 4 rows of floats with one or two others, in groups of 8.
// A last partial group is filled up with zeros: their products change no lane,
// because a sum that starts at +0 is never -0.
func dotFloats(tokens int) {
	name := map[int]string{1: "dotFloatsAVX2", 2: "dotFloatsTwoAVX2"}[tokens]
	TEXT(name, NOSPLIT, "func(dst, rows, x *float32, width int)")
	if tokens == 1 {
		Doc(name + " is dotFloat for 4 rows, width values apart.")
	} else {
		Doc(name + " is dotFloatsAVX2 for two rows of x, width values apart.")
	}
	Pragma("noescape")
	dst, x, width := Pointer("dst"), Pointer("x"), Pointer("width")
	groups, rest := GP64(), GP64()
	MOVQ(width, groups)
	SHRQ(U8(3), groups)
	MOVQ(width, rest)
	ANDQ(U32(7), rest)
	SHLQ(U8(2), width)
	rows := make([]Register, 4)
	rows[0] = Pointer("rows")
	for i := 1; i < 4; i++ {
		rows[i] = GP64()
		LEAQ(Mem{Base: rows[i-1], Index: width, Scale: 1}, rows[i])
	}
	other := GP64()
	LEAQ(Mem{Base: x, Index: width, Scale: 1}, other)
	acc := YMMs(4 * tokens)
	for _, a := range acc {
		VXORPS(a, a, a)
	}
	at := GP64()
	XORQ(at, at)
	step := func(get func(from Mem, to VecVirtual)) {
		v := YMMs(tokens)
		get(Mem{Base: x, Index: at, Scale: 1}, v[0])
		if tokens == 2 {
			get(Mem{Base: other, Index: at, Scale: 1}, v[1])
		}
		for i := range 4 {
			w := YMM()
			get(Mem{Base: rows[i], Index: at, Scale: 1}, w)
			for t := range tokens {
				p := YMM()
				VMULPS(w, v[t], p)
				VADDPS(p, acc[4*t+i], acc[4*t+i])
			}
		}
	}
	TESTQ(groups, groups)
	JZ(LabelRef("rest"))
	Loop("loop", groups, func() {
		step(func(from Mem, to VecVirtual) { VMOVUPS(from, to) })
		ADDQ(I32(32), at)
	})
	Label("rest")
	TESTQ(rest, rest)
	JZ(LabelRef("sums"))
	// rest lanes are taken, 8-rest are left out.
	table, mask := GP64(), YMM()
	LEAQ(Words("laneMask", ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0),
		0, 0, 0, 0, 0, 0, 0, 0), table)
	NEGQ(rest)
	VMOVDQU(Mem{Base: table, Index: rest, Scale: 4, Disp: 32}, mask)
	step(func(from Mem, to VecVirtual) { VMASKMOVPS(from, mask, to) })
	Label("sums")
	for i, a := range acc {
		lo, h := a.AsX(), XMM()
		VEXTRACTF128(U8(1), a, h)
		VADDPS(h, lo, lo)
		VMOVHLPS(lo, lo, h)
		VADDPS(h, lo, lo)
		VMOVSHDUP(lo, h)
		VADDSS(h, lo, lo)
		VMOVSS(lo, Mem{Base: dst, Disp: 4 * i})
	}
	VZEROUPPER()
	RET()
}

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	. "quern/internal/asm"
)

// plain writes the elementwise functions, for n values, a multiple of 8 and not
// 0.
func plain() {
	start := func(name, what, params string) {
		TEXT(name, NOSPLIT, "func("+params+")")
		Doc(name + " is " + what + " for n values, a multiple of 8 and not 0.")
		Pragma("noescape")
	}

	start("scaleAVX2", "scaleScalar", "x *float32, n int, a float32")
	x, n, a := Pointer("x"), Pointer("n"), Everywhere("a")
	eights(n, func() {
		v := YMM()
		VMULPS(Mem{Base: x}, a, v)
		VMOVUPS(v, Mem{Base: x})
	}, x)

	start("addAVX2", "addScalar", "dst, x *float32, n int")
	dst, x, n := Pointer("dst"), Pointer("x"), Pointer("n")
	eights(n, func() {
		v := YMM()
		VMOVUPS(Mem{Base: dst}, v)
		VADDPS(Mem{Base: x}, v, v)
		VMOVUPS(v, Mem{Base: dst})
	}, dst, x)

	start("scaleMulAVX2", "scaleMulScalar", "dst, x, w *float32, n int, a float32")
	dst, x, w, n := Pointer("dst"), Pointer("x"), Pointer("w"), Pointer("n")
	a = Everywhere("a")
	eights(n, func() {
		v := YMM()
		VMULPS(Mem{Base: x}, a, v)
		VMULPS(Mem{Base: w}, v, v)
		VMOVUPS(v, Mem{Base: dst})
	}, dst, x, w)

	TEXT("maxLanesAVX2", NOSPLIT, "func(lanes, x *float32, n int)")
	Doc("maxLanesAVX2 is maxLanesScalar for n values, a multiple of 8 and not 0.")
	Pragma("noescape")
	lanes := Pointer("lanes")
	x, n = Pointer("x"), Pointer("n")
	m := YMM()
	VMOVUPS(Mem{Base: lanes}, m)
	Label("loop")
	v := YMM()
	VMOVUPS(Mem{Base: x}, v)
	VMAXPS(m, v, m) // the greater one, m where they do not compare
	ADDQ(U8(32), x)
	SUBQ(U8(8), n)
	JNZ(LabelRef("loop"))
	VMOVUPS(m, Mem{Base: lanes})
	VZEROUPPER()
	RET()

	TEXT("sumLanesAVX2", NOSPLIT, "func(lanes, x *float32, n int)")
	Doc("sumLanesAVX2 is sumLanesScalar for n values, a multiple of 8 and not 0.")
	Pragma("noescape")
	lanes = Pointer("lanes")
	x, n = Pointer("x"), Pointer("n")
	sum := YMM()
	VMOVUPS(Mem{Base: lanes}, sum)
	Label("loop")
	VADDPS(Mem{Base: x}, sum, sum)
	ADDQ(U8(32), x)
	SUBQ(U8(8), n)
	JNZ(LabelRef("loop"))
	VMOVUPS(sum, Mem{Base: lanes})
	VZEROUPPER()
	RET()
}

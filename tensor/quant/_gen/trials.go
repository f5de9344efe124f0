package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// Searches of one group with a candidate in each lane, for the scales of a
// superblock. Rounding is the integer form with its wrap: such values may have
// any ratio.

// eachScalar runs body for n values and weights, broadcast.
func eachScalar(label string, x, w, n Register, body func(v, w VecVirtual)) {
	Label(label)
	v, wv := YMM(), YMM()
	VBROADCASTSS(Mem{Base: x}, v)
	VBROADCASTSS(Mem{Base: w}, wv)
	body(v, wv)
	ADDQ(I32(4), x)
	ADDQ(I32(4), w)
	DECQ(n)
	JNZ(LabelRef(label))
}

func positiveTrials() {
	name := "positiveTrialsSIMD"
	TEXT(name, NOSPLIT, "func(mse, by *[8]float32, x, w *float32, n int, top int32)")
	Doc(name + " is positiveTrials for n values.")
	Pragma("noescape")
	x, w, n := Load(Param("x"), GP64()), Load(Param("w"), GP64()), Load(Param("n"), GP64())
	mag, bits, expo := magic(), Spread("mantissa", 0x7fffff), Spread("twoTo23", 0x4b000000)
	top, by, scale, sum := YMM(), YMM(), Spread("oneFloat1", 0x3f800000), Zeroed()
	VBROADCASTSS(Argument("top"), top)
	VPADDD(Spread("nearestBias", 0x400000), top, top)
	VMOVUPS(Mem{Base: Load(Param("by"), GP64())}, by)
	VDIVPS(by, scale, scale)
	eachScalar(name+"Loop", x, w, n, func(v, w VecVirtual) {
		q := YMM()
		VMULPS(v, by, q)
		VADDPS(mag, q, q)
		VPAND(bits, q, q)
		VPMINSD(top, q, q)
		VPOR(expo, q, q)
		VSUBPS(mag, q, q)
		VMULPS(q, scale, q)
		VSUBPS(q, v, v)
		VMULPS(v, w, w)
		VMULPS(v, w, w)
		VADDPS(w, sum, sum)
	})
	VMOVUPS(sum, Mem{Base: Load(Param("mse"), GP64())})
	VZEROUPPER()
	RET()
}

func symmetricTrials() {
	name := "symmetricTrialsSIMD"
	TEXT(name, NOSPLIT, "func(sumlx, suml2, by *[8]float32, x, w *float32, n int, lo, hi int32)")
	Doc(name+" gives the sums of fitSymmetric's pass over n values for eight", "candidates.")
	Pragma("noescape")
	x, w, n := Load(Param("x"), GP64()), Load(Param("w"), GP64()), Load(Param("n"), GP64())
	mag, bits, expo := magic(), Spread("mantissa", 0x7fffff), Spread("twoTo23", 0x4b000000)
	lo, hi, by, lx, l2 := YMM(), YMM(), YMM(), Zeroed(), Zeroed()
	bias := Spread("nearestBias", 0x400000)
	VBROADCASTSS(Argument("lo"), lo)
	VBROADCASTSS(Argument("hi"), hi)
	VPADDD(bias, lo, lo)
	VPADDD(bias, hi, hi)
	VMOVUPS(Mem{Base: Load(Param("by"), GP64())}, by)
	eachScalar(name+"Loop", x, w, n, func(v, w VecVirtual) {
		q := YMM()
		VMULPS(v, by, q)
		VADDPS(mag, q, q)
		VPAND(bits, q, q)
		VPMAXSD(lo, q, q)
		VPMINSD(hi, q, q)
		VPOR(expo, q, q)
		VSUBPS(mag, q, q)
		VMULPS(w, v, v)
		VMULPS(q, v, v)
		VADDPS(v, lx, lx)
		VMULPS(q, w, w)
		VMULPS(q, w, w)
		VADDPS(w, l2, l2)
	})
	VMOVUPS(lx, Mem{Base: Load(Param("sumlx"), GP64())})
	VMOVUPS(l2, Mem{Base: Load(Param("suml2"), GP64())})
	VZEROUPPER()
	RET()
}

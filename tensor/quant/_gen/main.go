// Command _gen writes the AVX2 kernels of package quant, and makes NEON kernels of
// them; see package neon. go generate in package quant runs it.
//
// It is a module of its own, so that its dependencies are none of quern's. Each
// kernel does what the scalar function named in its comment does, eight lanes
// at a time, each lane in the scalar order: the bytes are the same.
package main

import (
	"flag"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

func main() {
	iq := flag.Bool("iq", false, "write the searches of IQ1, IQ2 and IQ3")
	flag.Parse()
	ConstraintExpr("amd64,!noasm")
	alsoNEON()
	if *iq {
		latticeKernels()
		splitKernels()
		Generate()
		return
	}
	decodeF16()
	encodeF16()
	decodeBF16()
	encodeBF16()
	scan()
	q8_0()
	q4_0()
	kmcuQ4()
	transpose()
	weightKernels()
	fitAffine("fitAffineSIMD", false)
	fitAffine("fitAffineAbsSIMD", true)
	recode()
	fitSymmetric()
	fitSweep()
	fitIQ4()
	codesIQ4()
	positiveTrials()
	symmetricTrials()
	Generate()
}

// loop runs body while n, counted down by step, is not zero. n must be a
// multiple of step.
func loop(name string, n Register, step int, body func()) {
	TESTQ(n, n)
	JZ(LabelRef(name + "Done"))
	Label(name + "Loop")
	body()
	SUBQ(I32(step), n)
	JNZ(LabelRef(name + "Loop"))
	Label(name + "Done")
	VZEROUPPER()
	RET()
}

func decodeF16() {
	TEXT("decodeF16SIMD", NOSPLIT, "func(dst *float32, src *byte, n int)")
	Doc("decodeF16SIMD is decodeF16Scalar for n values, a multiple of 16.")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	loop("f16d", n, 16, func() {
		a, b := YMM(), YMM()
		VCVTPH2PS(Mem{Base: src}, a)
		VCVTPH2PS(Mem{Base: src, Disp: 16}, b)
		VMOVUPS(a, Mem{Base: dst})
		VMOVUPS(b, Mem{Base: dst, Disp: 32})
		ADDQ(I32(32), src)
		ADDQ(I32(64), dst)
	})
}

func encodeF16() {
	TEXT("encodeF16SIMD", NOSPLIT, "func(dst *byte, src *float32, n int)")
	Doc("encodeF16SIMD is encodeF16Scalar for n values, a multiple of 16.")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	sign, nan := Fetch(Eights("signBit", 0x80000000)), Fetch(Eights("quietNaN", 0x7fc00000))
	loop("f16e", n, 16, func() {
		for i := 0; i < 2; i++ {
			x, bad, q, h := YMM(), YMM(), YMM(), XMM()
			VMOVUPS(Mem{Base: src, Disp: 32 * i}, x)
			// A NaN loses its payload and keeps its sign.
			VCMPPS(U8(3), x, x, bad)
			VANDPS(x, sign, q)
			VORPS(nan, q, q)
			VBLENDVPS(bad, q, x, x)
			VCVTPS2PH(U8(0), x, h)
			VMOVDQU(h, Mem{Base: dst, Disp: 16 * i})
		}
		ADDQ(I32(64), src)
		ADDQ(I32(32), dst)
	})
}

func decodeBF16() {
	TEXT("decodeBF16SIMD", NOSPLIT, "func(dst *float32, src *byte, n int)")
	Doc("decodeBF16SIMD is decodeBF16Scalar for n values, a multiple of 16.")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	loop("bf16d", n, 16, func() {
		for i := 0; i < 2; i++ {
			x := YMM()
			VPMOVZXWD(Mem{Base: src, Disp: 16 * i}, x)
			VPSLLD(U8(16), x, x)
			VMOVDQU(x, Mem{Base: dst, Disp: 32 * i})
		}
		ADDQ(I32(32), src)
		ADDQ(I32(64), dst)
	})
}

func encodeBF16() {
	TEXT("encodeBF16SIMD", NOSPLIT, "func(dst *byte, src *float32, n int)")
	Doc("encodeBF16SIMD is encodeBF16Scalar for n values, a multiple of 16.")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	abs, inf := Fetch(Eights("absBits", 0x7fffffff)), Fetch(Eights("infinity", 0x7f800000))
	round, one, quiet := Fetch(Eights("halfBF16", 0x7fff)), Fetch(Eights("oneInt", 1)), Fetch(Eights("quietBF16", 0x40))
	loop("bf16e", n, 16, func() {
		var half [2]VecVirtual
		for i := range half {
			x, hi, odd, bad := YMM(), YMM(), YMM(), YMM()
			VMOVDQU(Mem{Base: src, Disp: 32 * i}, x)
			VPAND(x, abs, bad)
			VPCMPGTD(inf, bad, bad)
			VPSRLD(U8(16), x, hi)
			VPAND(hi, one, odd)
			VPADDD(x, round, x)
			VPADDD(x, odd, x)
			VPSRLD(U8(16), x, x)
			VPOR(hi, quiet, hi)
			VPBLENDVB(bad, hi, x, x)
			half[i] = x
		}
		VPACKUSDW(half[1], half[0], half[0])
		VPERMQ(U8(0xd8), half[0], half[0])
		VMOVDQU(half[0], Mem{Base: dst})
		ADDQ(I32(64), src)
		ADDQ(I32(32), dst)
	})
}

// scan counts by comparing magnitudes as integers. A comparison that holds is
// -1, so subtracting it counts.
func scan() {
	TEXT("scanCountsSIMD", NOSPLIT, "func(out *uint32, src *float32, n int, over, flush uint32)")
	Doc("scanCountsSIMD is scanCountsScalar for n values, a multiple of 16.")
	Pragma("noescape")
	src, n := Load(Param("src"), GP64()), Load(Param("n"), GP64())
	broadcast := func(r Register) VecVirtual {
		x, y := XMM(), YMM()
		VMOVD(r, x)
		VPBROADCASTD(x, y)
		return y
	}
	over := Load(Param("over"), GP32())
	DECL(over)
	flush := Load(Param("flush"), GP32())
	INCL(flush)
	overM1, flushP1 := broadcast(over), broadcast(flush)
	abs, inf, infM1 := Fetch(Eights("absBits", 0x7fffffff)), Fetch(Eights("infinity", 0x7f800000)), Fetch(Eights("belowInfinity", 0x7f7fffff))
	zero := YMM()
	VPXOR(zero, zero, zero)
	var sum [4]VecVirtual // NaN, Inf and up, overflow and up, flush less zeros
	for i := range sum {
		sum[i] = YMM()
		VPXOR(sum[i], sum[i], sum[i])
	}
	TESTQ(n, n)
	JZ(LabelRef("scanDone"))
	Label("scanLoop")
	for i := 0; i < 2; i++ {
		a, t := YMM(), YMM()
		VMOVDQU(Mem{Base: src, Disp: 32 * i}, a)
		VPAND(a, abs, a)
		for k, than := range []VecVirtual{inf, infM1, overM1} {
			VPCMPGTD(than, a, t)
			VPSUBD(t, sum[k], sum[k])
		}
		VPCMPGTD(a, flushP1, t)
		VPSUBD(t, sum[3], sum[3])
		VPCMPEQD(a, zero, t)
		VPADDD(t, sum[3], sum[3])
	}
	ADDQ(I32(64), src)
	SUBQ(I32(16), n)
	JNZ(LabelRef("scanLoop"))
	Label("scanDone")
	out := Load(Param("out"), GP64())
	var total [4]Register
	for i := range sum {
		hi := XMM()
		lo := sum[i].AsX()
		VEXTRACTI128(U8(1), sum[i], hi)
		VPADDD(hi, lo, lo)
		VPSHUFD(U8(0x4e), lo, hi)
		VPADDD(hi, lo, lo)
		VPSHUFD(U8(0xb1), lo, hi)
		VPADDD(hi, lo, lo)
		total[i] = GP32()
		VMOVD(lo, total[i])
	}
	SUBL(total[1], total[2])
	SUBL(total[0], total[1])
	for i, r := range total {
		MOVL(r, Mem{Base: out, Disp: 4 * i})
	}
	VZEROUPPER()
	RET()
}

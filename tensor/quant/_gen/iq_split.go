package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	. "quern/internal/asm"
)

// Offsets of type splitLanes. TestSplitLayout holds them against the Go type.
const (
	spX     = 0
	spW     = spX + 1024
	spRank  = spW + 1024
	spSumX  = spRank + 1024
	spSumW  = spSumX + 2*spRows
	spLast  = spSumW + 2*spRows
	spScale = spLast + 4*spRows
	spBest  = spScale + 32
	spCut   = spBest + 32
	spTop   = spCut + 32
	spFirst = spTop + 32
	spTotal = spFirst + 64
	spKeys  = spTotal + 128

	spRows = 33 * 32
)

func splitRank() {
	name := "splitRankSIMD"
	TEXT(name, NOSPLIT, "func(s *float32, n int)")
	Doc(name+" finds the place of each of n values among the sorted ones of its block,", "equal values in place order, as the offset of a lane in a row of sums; then", "multiplies values and weights. It keeps the greatest magnitudes.")
	Pragma("noescape")
	s, n := Load(Param("s"), GP64()), Load(Param("n"), GP64())
	i, j, p, end := GP64(), GP64(), GP64(), GP64()
	abs, top := Spread("absBits1", 0x7fffffff), Zeroed()
	lane := Fetch(Words("laneOffsets", 0, 4, 8, 12, 16, 20, 24, 28))
	SHLQ(U8(5), n)
	LEAQ(Mem{Base: s, Index: n, Scale: 1}, end)
	MOVQ(s, i)
	Label(name + "Value")
	v, t, count := YMM(), YMM(), Zeroed()
	VMOVUPS(Mem{Base: i, Disp: spX}, v)
	VANDPS(abs, v, t)
	VMAXPS(top, t, top)
	MOVQ(s, j)
	CMPQ(j, i)
	JE(LabelRef(name + "Self"))
	Label(name + "Before")
	VCMPPS(U8(29), Mem{Base: j, Disp: spX}, v, t) // v >= x
	VPSUBD(t, count, count)
	ADDQ(I32(32), j)
	CMPQ(j, i)
	JNE(LabelRef(name + "Before"))
	Label(name + "Self")
	LEAQ(Mem{Base: i, Disp: 32}, j)
	CMPQ(j, end)
	JE(LabelRef(name + "Done"))
	Label(name + "After")
	VCMPPS(U8(cmpGT), Mem{Base: j, Disp: spX}, v, t)
	VPSUBD(t, count, count)
	ADDQ(I32(32), j)
	CMPQ(j, end)
	JNE(LabelRef(name + "After"))
	Label(name + "Done")
	VPSLLD(U8(5), count, count)
	VPADDD(lane, count, count)
	VMOVDQU(count, Mem{Base: i, Disp: spRank})
	ADDQ(I32(32), i)
	CMPQ(i, end)
	JNE(LabelRef(name + "Value"))
	VMOVUPS(top, Mem{Base: s, Disp: spTop})
	MOVQ(s, p)
	Label(name + "Product")
	VMOVUPS(Mem{Base: p, Disp: spX}, v)
	VMULPS(Mem{Base: p, Disp: spW}, v, v)
	VMOVUPS(v, Mem{Base: p, Disp: spX})
	ADDQ(I32(32), p)
	CMPQ(p, end)
	JNE(LabelRef(name + "Product"))
	VZEROUPPER()
	RET()
}

// splitSums puts products and weights in order and adds them up: row j holds the
// sums over the j lowest values.
func splitSums(halves int) {
	name := "splitSums" + string(rune('0'+halves)) + "SIMD"
	TEXT(name, NOSPLIT, "func(s *float32)")
	Doc(name + " gives the running sums of sorted blocks.")
	Pragma("noescape")
	s, p, n := Load(Param("s"), GP64()), GP64(), GP64()
	values := 32
	if halves == 2 {
		values = 16
		z := Zeroed()
		for h := 0; h < halves; h++ {
			for j := 1; j <= values; j++ {
				VMOVUPS(z, Mem{Base: s, Disp: spSumX + h*spRows + 32*j})
				VMOVUPS(z, Mem{Base: s, Disp: spSumW + h*spRows + 32*j})
			}
		}
	}
	MOVQ(s, p)
	for h := 0; h < halves; h++ {
		label := name + "Scatter" + string(rune('0'+h))
		MOVQ(U32(values/halves), n)
		Label(label)
		for lane := 0; lane < 8; lane++ {
			at, a, b := GP64(), GP32(), GP32()
			MOVL(Mem{Base: p, Disp: spRank + 4*lane}, at.As32())
			MOVL(Mem{Base: p, Disp: spX + 4*lane}, a)
			MOVL(Mem{Base: p, Disp: spW + 4*lane}, b)
			MOVL(a, Mem{Base: s, Index: at, Scale: 1, Disp: spSumX + h*spRows + 32})
			MOVL(b, Mem{Base: s, Index: at, Scale: 1, Disp: spSumW + h*spRows + 32})
		}
		ADDQ(I32(32), p)
		DECQ(n)
		JNZ(LabelRef(label))
	}
	for h := 0; h < halves; h++ {
		x, w := Zeroed(), Zeroed()
		MOVQ(s, p)
		MOVQ(U32(values), n)
		label := name + "Add" + string(rune('0'+h))
		VMOVUPS(x, Mem{Base: p, Disp: spSumX + h*spRows})
		VMOVUPS(w, Mem{Base: p, Disp: spSumW + h*spRows})
		Label(label)
		VADDPS(Mem{Base: p, Disp: spSumX + h*spRows + 32}, x, x)
		VADDPS(Mem{Base: p, Disp: spSumW + h*spRows + 32}, w, w)
		VMOVUPS(x, Mem{Base: p, Disp: spSumX + h*spRows + 32})
		VMOVUPS(w, Mem{Base: p, Disp: spSumW + h*spRows + 32})
		ADDQ(I32(32), p)
		DECQ(n)
		JNZ(LabelRef(label))
	}
	VZEROUPPER()
	RET()
}

// splitKeys turns places and cuts into the keys of runs of 8 codes.
func splitKeys() {
	name := "splitKeysSIMD"
	TEXT(name, NOSPLIT, "func(s *float32, runs int)")
	Doc(name+" gives the keys of the runs of eight blocks with a cut, mirrored where the", "scale is negative.")
	Pragma("noescape")
	s, runs, p, out := Load(Param("s"), GP64()), Load(Param("runs"), GP64()), GP64(), GP64()
	first, second, mirror, one := YMM(), YMM(), YMM(), Fetch(Eights("oneInt", 1))
	VMOVDQU(Mem{Base: s, Disp: spCut}, first)
	VPAND(Eights("splitRowBits", 0xffe0), first, second)
	VPSRLD(U8(16), first, first)
	VPSUBD(one, first, first)
	VPSUBD(one, second, second)
	VMOVDQU(Mem{Base: s, Disp: spScale}, mirror)
	VPSRAD(U8(31), mirror, mirror)
	MOVQ(s, p)
	MOVQ(s, out)
	Label(name + "Run")
	key := Zeroed()
	for i := 0; i < 8; i++ {
		r, c, t := YMM(), YMM(), YMM()
		VMOVDQU(Mem{Base: p, Disp: spRank + 32*i}, r)
		VPCMPGTD(first, r, c)
		VPCMPGTD(second, r, t)
		VPADDD(t, c, c) // 0, -1 or -2
		VPADDD(one, c, c)
		VPXOR(mirror, c, c) // turn the sign of 1, 0, -1
		VPSUBD(mirror, c, c)
		VPSUBD(c, one, c)
		if i > 0 {
			VPSLLD(U8(2*i), c, c)
		}
		VPOR(c, key, key)
	}
	VMOVDQU(key, Mem{Base: out, Disp: spKeys})
	ADDQ(I32(256), p)
	ADDQ(I32(32), out)
	DECQ(runs)
	JNZ(LabelRef(name + "Run"))
	VZEROUPPER()
	RET()
}

// splitKernels are the kernels of IQ1.
func splitKernels() {
	splitRank()
	splitSums(1)
	splitSums(2)
	splitScan32()
	splitScan16()
	splitKeys()
	nearestRun()
}

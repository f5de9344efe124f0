package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// blocks32 are the kernels of types with blocks of 32 and of floats.
func blocks32() {
	spread("Plain")
	spread("Mags")
	spread("Biased")
	for columns := 1; columns <= 2; columns++ {
		lanes("All", false, false, columns)
		lanes("Mins", true, false, columns)
		lanes("InTurn", false, true, columns)
	}
	blocks(false)
	blocks(true)
	blocksOne()
	tiledFloats()
	lanes32s()
	quantize()
}

// pairOnes adds neighbouring 16-bit lanes by VPMADDWD.
func pairOnes() Mem { return Eights("pairOnes", 0x00010001) }

// oneBytes adds neighbouring bytes by VPMADDUBSW.
func oneBytes() Mem { return Eights("oneBytes", 0x01010101) }

// quietNaNs is the one NaN that results have.
func quietNaNs() Mem { return Eights("quietNaN", 0x7fc00000) }

// zero clears registers.
func zero(r ...VecVirtual) {
	for _, v := range r {
		VPXOR(v, v, v)
	}
}

// number gives NaNs their bits.
func number(v, spare Register) {
	VCMPPS(U8(3), v, v, spare)
	VBLENDVPS(spare, quietNaNs(), v, v)
}

// addLanes adds the 8 lanes of each of 4 vectors as ((0+4)+(2+6)) + ((1+5)+(3+7)) and
// gives the four sums.
func addLanes(acc []VecVirtual) Register {
	x := make([]Register, 4)
	for i, a := range acc {
		h := XMM()
		VEXTRACTF128(U8(1), a, h)
		VADDPS(a.AsX(), h, h)
		x[i] = h
	}
	return addFours(x)
}

// addFours adds the 4 lanes of each of 4 vectors as (0+2) + (1+3).
func addFours(x []Register) Register {
	low, high, low2, high2 := XMM(), XMM(), XMM(), XMM()
	VUNPCKLPS(x[1], x[0], low)
	VUNPCKHPS(x[1], x[0], high)
	VUNPCKLPS(x[3], x[2], low2)
	VUNPCKHPS(x[3], x[2], high2)
	even, odd, t := XMM(), XMM(), XMM()
	VMOVLHPS(low2, low, even)
	VMOVLHPS(high2, high, t)
	VADDPS(t, even, even)
	VMOVHLPS(low, low2, odd)
	VMOVHLPS(high, high2, t)
	VADDPS(t, odd, odd)
	VADDPS(odd, even, even)
	return even
}

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// turn transposes 8 vectors of 8, so that the results of an activation row lie
// together, and gives NaNs their bits.
func turn() {
	TEXT("turnAVX2", NOSPLIT, "func(acc *float32)")
	Doc("turnAVX2 is turnScalar.")
	Pragma("noescape")
	acc := Pointer("acc")
	row := func(i int) Mem { return Mem{Base: acc, Disp: 32 * i} }
	// Pairs of rows, then fours, within each half; then the halves.
	r := YMMs(8)
	for i := range r {
		VMOVUPS(row(i), r[i])
	}
	t := make([]VecVirtual, 8)
	for i := 0; i < 8; i += 2 {
		lo, hi := YMM(), YMM()
		VUNPCKLPS(r[i+1], r[i], lo)
		VUNPCKHPS(r[i+1], r[i], hi)
		t[i], t[i+1] = lo, hi
	}
	// q[half][k] holds lanes k and k+4 of rows 4*half to 4*half+3.
	var q [2][4]VecVirtual
	for half := range q {
		lo, hi := t[4*half], t[4*half+2]
		lo1, hi1 := t[4*half+1], t[4*half+3]
		for k, v := range [][2]VecVirtual{{lo, hi}, {lo, hi}, {lo1, hi1}, {lo1, hi1}} {
			q[half][k] = YMM()
			VSHUFPS(U8([]uint8{0x44, 0xee}[k%2]), v[1], v[0], q[half][k])
		}
	}
	for k := range 4 {
		for high := range 2 {
			v, bad := YMM(), YMM()
			VPERM2F128(U8([]uint8{0x20, 0x31}[high]), q[1][k], q[0][k], v)
			VCMPPS(U8(3), v, v, bad)
			VBLENDVPS(bad, quietNaNs(), v, v)
			VMOVUPS(v, row(4*high+k))
		}
	}
	VZEROUPPER()
	RET()
}

// quietNaNs is the one NaN that results have.
func quietNaNs() Mem { return Eights("quietNaN", 0x7fc00000) }

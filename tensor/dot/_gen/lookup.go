package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// lookUp is for q1_0_32_lut. Four activations with signs have 16 sums, which tables
// hold: low bytes, then high bytes. A byte of codes looks two rows' sums up.
func lookUp() {
	TEXT("lookUpQ1_0AVX2", NOSPLIT, "func(dst *float32, w *byte, ahead int, tables *byte, da *float32, blocks int)")
	Doc("lookUpQ1_0AVX2 multiplies 32 rows in layout q1_0_32_lut with an activation row, of which", "tables has the sums of each 4.")
	Pragma("noescape")
	w, ahead, tables, da, blocks := Pointer("w"), Pointer("ahead"), Pointer("tables"), Pointer("da"), Pointer("blocks")
	shifts, low4 := highFour(), fill("low4", 15)
	acc := YMMs(4)
	for _, a := range acc {
		VXORPS(a, a, a)
	}
	idx := GP64()
	Loop("loop", blocks, func() {
		LEAQ(Mem{Base: w, Disp: 64}, idx)
		units := GP64()
		MOVQ(U64(4), units)
		Loop("units", units, func() {
			PREFETCHT0(Mem{Base: idx, Index: ahead, Scale: 1})
			PREFETCHT0(Mem{Base: idx, Index: ahead, Scale: 1, Disp: 64})
			var n [2]VecVirtual // rows 0-7 and 16-23, rows 8-15 and 24-31
			for s := range 8 {
				i := nibblesAt(Mem{Base: idx, Disp: 16 * s}, shifts, low4)
				lo, hi := YMM(), YMM()
				VBROADCASTI128(Mem{Base: tables, Disp: 32 * s}, lo)
				VBROADCASTI128(Mem{Base: tables, Disp: 32*s + 16}, hi)
				VPSHUFB(i, lo, lo)
				VPSHUFB(i, hi, hi)
				VPUNPCKLBW(hi, lo, i)
				VPUNPCKHBW(hi, lo, lo)
				if s == 0 {
					n[0], n[1] = i, lo
					continue
				}
				VPADDW(i, n[0], n[0])
				VPADDW(lo, n[1], n[1])
			}
			scale := YMM()
			VBROADCASTSS(Mem{Base: da}, scale)
			for k := range 4 {
				x, y, d := XMM(), YMM(), YMM()
				VEXTRACTI128(U8(k/2), n[k%2], x)
				VPMOVSXWD(x, y)
				VCVTPH2PS(Mem{Base: w, Disp: 16 * k}, d)
				addTerm(VADDPS, acc[k], y, d, scale)
			}
			ADDQ(I32(128), idx)
			ADDQ(I32(256), tables)
			ADDQ(I32(4), da)
		})
		ADDQ(I32(576), w)
	})
	dst := Pointer("dst")
	for k, a := range acc {
		bad := YMM()
		VCMPPS(U8(3), a, a, bad)
		VBLENDVPS(bad, quietNaNs(), a, a)
		VMOVUPS(a, Mem{Base: dst, Disp: 32 * k})
	}
	VZEROUPPER()
	RET()
}

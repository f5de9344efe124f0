package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// nearestRun searches one list, with all its groups.
func nearestRun() {
	name := "nearestRunSIMD"
	TEXT(name, NOSPLIT, "func(list *uint16, groups int, x, w *float32, levels *[4]float32) int")
	Doc(name+" is nearestEntry for a run of 8 with three levels, which are scaled already.", "It gives the place in list of the key, which lies as nearLanes lays it.")
	Pragma("noescape")
	list, n := Load(Param("list"), GP64()), Load(Param("groups"), GP64())
	x, w, levels := Load(Param("x"), GP64()), Load(Param("w"), GP64()), Load(Param("levels"), GP64())
	var t [3]VecVirtual
	for c := range t {
		d := YMM()
		VBROADCASTSS(Mem{Base: levels, Disp: 4 * c}, d)
		VSUBPS(Mem{Base: x}, d, d)
		t[c] = YMM()
		VMULPS(Mem{Base: w}, d, t[c])
		VMULPS(d, t[c], t[c])
	}
	terms := spreadTerms(t)
	best, group, at, one := YMM(), YMM(), YMM(), Fetch(Eights("oneInt", 1))
	VMOVUPS(Eights("maxFloat", math.Float32bits(math.MaxFloat32)), best)
	VPXOR(group, group, group)
	VPXOR(at, at, at)
	Label(name + "Group")
	k, d := YMM(), YMM()
	VPMOVZXWD(Mem{Base: list}, k)
	sumTerms(terms, k, d)
	VCMPPS(U8(cmpLT), best, d, k)
	VMINPS(best, d, best)
	VBLENDVPS(k, at, group, group)
	VPADDD(one, at, at)
	ADDQ(I32(16), list)
	DECQ(n)
	JNZ(LabelRef(name + "Group"))
	VMOVAPS(best, d)
	fold8(best, minOp)
	VCMPPS(U8(cmpEQ), d, best, d)
	mask, r := GP32(), GP64()
	VMOVMSKPS(d, mask)
	TZCNTL(mask, mask)
	VMOVD(mask, k.AsX())
	VPERMD(group, k, group)
	VMOVD(group.AsX(), r.As32())
	SHLL(U8(3), r.As32())
	ADDL(mask, r.As32())
	Store(r, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// spreadTerms makes a table for each of 8 values out of a vector for each of
// three codes.
func spreadTerms(t [3]VecVirtual) []VecVirtual {
	terms := make([]VecVirtual, 8)
	for half := 0; half < 2; half++ {
		a, b := YMM(), YMM()
		if half == 0 {
			VUNPCKLPS(t[1], t[0], a)
			VUNPCKLPS(t[2], t[2], b)
		} else {
			VUNPCKHPS(t[1], t[0], a)
			VUNPCKHPS(t[2], t[2], b)
		}
		for k := 0; k < 2; k++ {
			i, v := 2*half+k, YMM()
			if k == 0 {
				VUNPCKLPD(b, a, v)
			} else {
				VUNPCKHPD(b, a, v)
			}
			terms[i], terms[i+4] = YMM(), YMM()
			VINSERTF128(U8(1), v.AsX(), v, terms[i])
			VPERM2F128(U8(0x11), v, v, terms[i+4])
		}
	}
	return terms
}

// sumTerms sums the terms that the keys k, which are lost, pick for 8 values.
func sumTerms(terms []VecVirtual, k, d VecVirtual) {
	for i, t := range terms {
		if i == 0 {
			VPERMILPS(k, t, d)
			continue
		}
		v := YMM()
		VPSRLD(U8(2), k, k)
		VPERMILPS(k, t, v)
		VADDPS(v, d, d)
	}
}

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// extremes finds, lane by lane, the first value of greatest magnitude and that
// magnitude, which groups are above groupEps, and refuses what is not finite.
func extremes(label string, field func(int) Mem, s, n Register, refuse string) (extreme, alive VecVirtual) {
	extreme, alive = Zeroed(), YMM()
	amax, finite, abs, mask := Zeroed(), Zeroed(), Spread("absBits1", 0x7fffffff), GP32()
	eachValue(label, s, n, 4, func(p Register, disp int) {
		v, a, m := YMM(), YMM(), YMM()
		VMOVUPS(Mem{Base: p, Disp: disp + laneX}, v)
		VANDPS(abs, v, a)
		VCMPPS(U8(cmpGT), amax, a, m)
		VBLENDVPS(m, a, amax, amax)
		VBLENDVPS(m, v, extreme, extreme)
		VSUBPS(v, v, v)
		VADDPS(v, finite, finite)
	})
	eps, zero := Spread("groupEps", 0x26901d7d), Zeroed()
	VCMPPS(U8(cmpEQ), zero, finite, finite)
	VMOVMSKPS(finite, mask)
	CMPL(mask, U32(0xff))
	JNE(LabelRef(refuse))
	VCMPPS(U8(cmpNLT), eps, amax, alive)
	VMOVUPS(alive, field(laneAlive))
	return extreme, alive
}

// fitSymmetric is the search of sets of eight groups. A product is never beyond
// the greatest candidate, so rounding needs no wrap.
func fitSymmetric() {
	name := "fitSymmetricSIMD"
	at := func(l string) string { return name + l }
	TEXT(name, NOSPLIT, "func(s *float32, sets, n int, candidates *float32, count int) bool")
	Doc(name+" is fitSymmetric for sets laneGroups at s with groups of n values, a", "multiple of 4. candidates holds the least and greatest code, then count", "numerators. It gives false, and no outcome, for values that are not finite.")
	Pragma("noescape")
	s, n, set := Load(Param("s"), GP64()), Load(Param("n"), GP64()), Load(Param("sets"), GP64())
	cand, left := GP64(), GP64()
	field := func(off int) Mem { return Mem{Base: s, Disp: off} }
	low, high, mag := YMM(), YMM(), magic()
	Load(Param("candidates"), cand)
	VBROADCASTSS(Mem{Base: cand}, low)
	VADDPS(mag, low, low)
	VBROADCASTSS(Mem{Base: cand, Disp: 4}, high)
	VADDPS(mag, high, high)
	bound(low, high)

	Label(at("Set"))
	extreme, _ := extremes(at("Extremes"), field, s, n, at("Refuse"))
	sumW := Zeroed()
	eachValue(at("Products"), s, n, 4, func(p Register, disp int) {
		w, v := YMM(), YMM()
		VMOVUPS(Mem{Base: p, Disp: disp + laneW}, w)
		VADDPS(w, sumW, sumW)
		VMULPS(Mem{Base: p, Disp: disp + laneX}, w, v)
		VMOVUPS(v, Mem{Base: p, Disp: disp + laneCodes})
	})
	VMOVUPS(sumW, field(laneSumW))

	Load(Param("candidates"), cand)
	Load(Param("count"), left)
	by, sumlx, suml2 := YMM(), YMM(), YMM()
	pass := func(label string) {
		VBROADCASTSS(Mem{Base: cand, Disp: 8}, by)
		VDIVPS(extreme, by, by)
		VXORPS(sumlx, sumlx, sumlx)
		VXORPS(suml2, suml2, suml2)
		eachValue(label, s, n, 8, func(p Register, disp int) {
			q, t := YMM(), YMM()
			VMULPS(Mem{Base: p, Disp: disp + laneX}, by, q)
			VADDPS(mag, q, q)
			VMAXPS(low, q, q)
			VMINPS(high, q, q)
			VSUBPS(mag, q, q)
			VMULPS(Mem{Base: p, Disp: disp + laneCodes}, q, t)
			VADDPS(t, sumlx, sumlx)
			VMULPS(Mem{Base: p, Disp: disp + laneW}, q, t)
			VMULPS(q, t, t)
			VADDPS(t, suml2, suml2)
		})
	}
	best, bestBy, scale, zero := YMM(), YMM(), YMM(), Zeroed()
	pass(at("First"))
	VMOVAPS(by, bestBy)
	m := YMM()
	VCMPPS(U8(cmpNE), zero, suml2, m)
	VDIVPS(suml2, sumlx, scale)
	VANDPS(m, scale, scale)
	VMULPS(sumlx, scale, best)
	DECQ(left)
	Label(at("Step"))
	ADDQ(I32(4), cand)
	pass(at("Pass"))
	a, b := YMM(), YMM()
	VMULPS(sumlx, sumlx, a)
	VMULPS(suml2, best, b)
	VCMPPS(U8(cmpGT), b, a, m)
	VCMPPS(U8(cmpGT), zero, suml2, a)
	VANDPS(a, m, m)
	VDIVPS(suml2, sumlx, a)
	VMULPS(sumlx, a, b)
	VBLENDVPS(m, by, bestBy, bestBy)
	VBLENDVPS(m, a, scale, scale)
	VBLENDVPS(m, b, best, best)
	DECQ(left)
	JNZ(LabelRef(at("Step")))
	VANDPS(field(laneAlive), scale, scale)
	VANDPS(field(laneAlive), bestBy, bestBy)
	VMOVUPS(scale, field(laneScale))
	VMOVUPS(bestBy, field(laneBy))
	ADDQ(I32(laneSize), s)
	DECQ(set)
	JNZ(LabelRef(at("Set")))
	giveBool(true)
	Label(at("Refuse"))
	giveBool(false)
}

// Groups of 16 leave half of an array free.
const (
	sweepLX = laneX + 512 // (w*x)*code
	sweepL2 = laneW + 512 // (w*code)*code
)

// fitSweep is the search of sets of eight groups. Few values change their code,
// so a branch over the change lets the next value begin before this one is
// decided. A group that a sweep left as it was stays so in the next, so all
// sweep until none changes.
func fitSweep() {
	name := "fitSweepSIMD"
	at := func(l string) string { return name + l }
	TEXT(name, NOSPLIT, "func(s *float32, sets int) bool")
	Doc(name+" is fitSweep with codes -4..3 for sets laneGroups at s with groups of 16", "values. It leaves integers in codes, 2^22 + code. It gives false, and no outcome,", "for values that are not finite.")
	Pragma("noescape")
	s, n, set := Load(Param("s"), GP64()), GP64(), Load(Param("sets"), GP64())
	MOVQ(U32(16), n)
	field := func(off int) Mem { return Mem{Base: s, Disp: off} }
	mask := GP32()
	mag, bits, expo := magic(), Spread("mantissa", 0x7fffff), Spread("twoTo23", 0x4b000000)
	low, high := Spread("sweepLow", 0x400000-4), Spread("sweepHigh", 0x400000+3)
	// round is clamp(nearest(q)), wrap and all, with 2^22 added.
	round := func(q VecVirtual) {
		VADDPS(mag, q, q)
		VPAND(bits, q, q)
		VPMAXSD(low, q, q)
		VPMINSD(high, q, q)
	}
	toFloat := func(q VecVirtual) {
		VPOR(expo, q, q)
		VSUBPS(mag, q, q)
	}
	Label(at("Set"))
	iscale, _ := extremes(at("Extremes"), field, s, n, at("Refuse"))
	t := Spread("minusFour", 0xc0800000)
	VDIVPS(iscale, t, iscale)
	sumlx, suml2 := Zeroed(), Zeroed()
	eachValue(at("Codes"), s, n, 4, func(p Register, disp int) {
		v, q, w := YMM(), YMM(), YMM()
		VMOVUPS(Mem{Base: p, Disp: disp + laneX}, v)
		VMULPS(v, iscale, q)
		round(q)
		VMOVDQU(q, Mem{Base: p, Disp: disp + laneCodes})
		toFloat(q)
		VMULPS(v, v, w)
		VMOVUPS(w, Mem{Base: p, Disp: disp + laneW})
		VMULPS(v, w, v)
		VMULPS(q, v, v)
		VMOVUPS(v, Mem{Base: p, Disp: disp + sweepLX})
		VADDPS(v, sumlx, sumlx)
		VMULPS(q, w, w)
		VMULPS(q, w, w)
		VMOVUPS(w, Mem{Base: p, Disp: disp + sweepL2})
		VADDPS(w, suml2, suml2)
	})
	// A group of zeros takes no part: what is not a number is not above zero.
	z := Zeroed()
	VCMPPS(U8(cmpEQ), field(laneAlive), z, iscale)
	VORPS(iscale, sumlx, sumlx)
	sweeps, changed := GP64(), GP32()
	MOVQ(U32(5), sweeps)
	Label(at("Sweep"))
	XORL(changed, changed)
	unrolled := 0
	eachValue(at("Value"), s, n, 4, func(p Register, d int) {
		same := at("Same" + string(rune('A'+unrolled)))
		unrolled++
		at := func(off int) Mem { return Mem{Base: p, Disp: d + off} }
		q, slx, sl2, m, t := YMM(), YMM(), YMM(), YMM(), YMM()
		VSUBPS(at(sweepLX), sumlx, slx)
		VSUBPS(at(sweepL2), suml2, sl2)
		VMULPS(at(laneX), sl2, q)
		VDIVPS(slx, q, q)
		round(q)
		VCMPPS(U8(cmpGT), z, slx, m)
		VPCMPEQD(at(laneCodes), q, t)
		VPANDN(m, t, m)
		VMOVMSKPS(m, mask)
		TESTL(mask, mask)
		JZ(LabelRef(same))
		f, lx, l2 := YMM(), YMM(), YMM()
		VMOVDQA(q, f)
		toFloat(f)
		VMOVUPS(at(laneW), l2)
		VMULPS(at(laneX), l2, lx)
		VMULPS(f, lx, lx)
		VADDPS(lx, slx, slx)
		VMULPS(f, l2, l2)
		VMULPS(f, l2, l2)
		VADDPS(l2, sl2, sl2)
		VCMPPS(U8(cmpGT), z, sl2, t)
		VANDPS(t, m, m)
		VMULPS(slx, slx, f)
		VMULPS(suml2, f, f)
		VMULPS(sumlx, sumlx, t)
		VMULPS(sl2, t, t)
		VCMPPS(U8(cmpGT), t, f, t)
		VANDPS(t, m, m)
		for off, v := range [...]VecVirtual{q, lx, l2} {
			VMASKMOVPS(v, m, at([]int{laneCodes, sweepLX, sweepL2}[off]))
		}
		VBLENDVPS(m, slx, sumlx, sumlx)
		VBLENDVPS(m, sl2, suml2, suml2)
		VMOVMSKPS(m, mask)
		ORL(mask, changed)
		Label(same)
	})
	TESTL(changed, changed)
	JZ(LabelRef(at("Settled")))
	DECQ(sweeps)
	JNZ(LabelRef(at("Sweep")))
	Label(at("Settled"))
	m := YMM()
	VCMPPS(U8(cmpGT), z, suml2, m)
	VANDPS(field(laneAlive), m, m)
	VDIVPS(suml2, sumlx, sumlx)
	VANDPS(m, sumlx, sumlx)
	VMOVUPS(sumlx, field(laneScale))
	ADDQ(I32(laneSize), s)
	DECQ(set)
	JNZ(LabelRef(at("Set")))
	giveBool(true)
	Label(at("Refuse"))
	giveBool(false)
}

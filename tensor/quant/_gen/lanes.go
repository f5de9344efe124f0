package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// Offsets of type laneGroups. TestLanesLayout holds them against the Go type.
const (
	laneX      = 0
	laneW      = 1024
	laneCodes  = 2048
	laneScale  = 3072
	laneMin    = laneScale + 32
	laneBy     = laneMin + 32
	laneFrom   = laneBy + 32
	laneSumW   = laneFrom + 32
	laneSumX   = laneSumW + 32
	laneHigh   = laneSumX + 32
	laneLowest = laneHigh + 32
	laneBest   = laneLowest + 32
	laneAlive  = laneBest + 32
	laneLow    = laneAlive + 32
	laneSize   = laneLow + 32
)

// Predicates of VCMPPS. All but two are false for NaN.
const (
	cmpEQ  = 0
	cmpNE  = 4 // true for NaN
	cmpLT  = 17
	cmpLE  = 18
	cmpNLT = 21 // true for NaN
	cmpGE  = 29
	cmpGT  = 30
)

func magic() VecVirtual { return Spread("roundMagic", 0x4b400000) }

// eachValue runs body for the n values of a group in order, unrolled: p points
// at value i+k of x when the displacement is 32*k.
func eachValue(name string, s, n Register, unroll int, body func(p Register, disp int)) {
	p, left := GP64(), GP64()
	MOVQ(s, p)
	MOVQ(n, left)
	Label(name)
	for k := 0; k < unroll; k++ {
		body(p, 32*k)
	}
	ADDQ(I32(32*unroll), p)
	SUBQ(I32(unroll), left)
	JNZ(LabelRef(name))
}

// transpose writes value i of 8 groups, which lie stride bytes apart, to
// dst[i].
func transpose() {
	TEXT("transposeSIMD", NOSPLIT, "func(dst *[8]float32, src *float32, stride, n int)")
	Doc("transposeSIMD puts value i of 8 groups of n values, a multiple of 8, that start", "stride bytes apart into the lanes of dst[i].")
	Pragma("noescape")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	stride, n := Load(Param("stride"), GP64()), Load(Param("n"), GP64())
	stride3, far := GP64(), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	LEAQ(Mem{Base: src, Index: stride, Scale: 4}, far)
	Label("transposeLoop")
	var r, t [8]VecVirtual
	for i := range r {
		r[i] = YMM()
		base := src
		if i >= 4 {
			base = far
		}
		m := Mem{Base: base}
		switch i & 3 {
		case 1:
			m.Index, m.Scale = stride, 1
		case 2:
			m.Index, m.Scale = stride, 2
		case 3:
			m.Index, m.Scale = stride3, 1
		}
		VMOVUPS(m, r[i])
	}
	for i := 0; i < 8; i += 2 {
		t[i], t[i+1] = YMM(), YMM()
		VUNPCKLPS(r[i+1], r[i], t[i])
		VUNPCKHPS(r[i+1], r[i], t[i+1])
	}
	for i := 0; i < 8; i += 4 {
		r[i], r[i+1], r[i+2], r[i+3] = YMM(), YMM(), YMM(), YMM()
		VUNPCKLPD(t[i+2], t[i], r[i])
		VUNPCKHPD(t[i+2], t[i], r[i+1])
		VUNPCKLPD(t[i+3], t[i+1], r[i+2])
		VUNPCKHPD(t[i+3], t[i+1], r[i+3])
	}
	for i := 0; i < 4; i++ {
		lo, hi := YMM(), YMM()
		VPERM2F128(U8(0x20), r[i+4], r[i], lo)
		VPERM2F128(U8(0x31), r[i+4], r[i], hi)
		VMOVUPS(lo, Mem{Base: dst, Disp: 32 * i})
		VMOVUPS(hi, Mem{Base: dst, Disp: 32 * (i + 4)})
	}
	ADDQ(I32(32), src)
	ADDQ(I32(32), far)
	ADDQ(I32(256), dst)
	SUBQ(I32(8), n)
	JNZ(LabelRef("transposeLoop"))
	VZEROUPPER()
	RET()
}

func weightKernels() {
	TEXT("weighAbsSIMD", NOSPLIT, "func(s *float32, n int)")
	Doc("weighAbsSIMD sets the weights to the magnitudes.")
	Pragma("noescape")
	s, n := Load(Param("s"), GP64()), Load(Param("n"), GP64())
	abs := Spread("absBits1", 0x7fffffff)
	eachValue("weighAbs", s, n, 4, func(p Register, disp int) {
		v := YMM()
		VANDPS(Mem{Base: p, Disp: disp + laneX}, abs, v)
		VMOVUPS(v, Mem{Base: p, Disp: disp + laneW})
	})
	VZEROUPPER()
	RET()

	TEXT("weighSquareSIMD", NOSPLIT, "func(s *float32, n int)")
	Doc("weighSquareSIMD sets the weights to the squares.")
	Pragma("noescape")
	s, n = Load(Param("s"), GP64()), Load(Param("n"), GP64())
	eachValue("weighSquare", s, n, 4, func(p Register, disp int) {
		v := YMM()
		VMOVUPS(Mem{Base: p, Disp: disp + laneX}, v)
		VMULPS(v, v, v)
		VMOVUPS(v, Mem{Base: p, Disp: disp + laneW})
	})
	VZEROUPPER()
	RET()

	TEXT("weighMeanSIMD", NOSPLIT, "func(s *float32, n int, inverse float32)")
	Doc("weighMeanSIMD sets the weights to sqrt(mean square) + |x|. inverse is 1/n.")
	Pragma("noescape")
	s, n = Load(Param("s"), GP64()), Load(Param("n"), GP64())
	sum, inverse := Zeroed(), YMM()
	VBROADCASTSS(Argument("inverse"), inverse)
	eachValue("weighMeanSum", s, n, 4, func(p Register, disp int) {
		v := YMM()
		VMOVUPS(Mem{Base: p, Disp: disp + laneX}, v)
		VMULPS(v, v, v)
		VADDPS(v, sum, sum)
	})
	VMULPS(inverse, sum, sum)
	VSQRTPS(sum, sum)
	abs = Spread("absBits1", 0x7fffffff)
	eachValue("weighMean", s, n, 4, func(p Register, disp int) {
		v := YMM()
		VANDPS(Mem{Base: p, Disp: disp + laneX}, abs, v)
		VADDPS(v, sum, v)
		VMOVUPS(v, Mem{Base: p, Disp: disp + laneW})
	})
	VZEROUPPER()
	RET()

	TEXT("weighImportanceSIMD", NOSPLIT, "func(s *float32, n int, sigma2 *[8]float32)")
	Doc("weighImportanceSIMD is importance with the weights in place and a sigma2 for each", "group.")
	Pragma("noescape")
	s, n = Load(Param("s"), GP64()), Load(Param("n"), GP64())
	sigma := YMM()
	VMOVUPS(Mem{Base: Load(Param("sigma2"), GP64())}, sigma)
	eachValue("weighImportance", s, n, 4, func(p Register, disp int) {
		v := YMM()
		VMOVUPS(Mem{Base: p, Disp: disp + laneX}, v)
		VMULPS(v, v, v)
		VADDPS(v, sigma, v)
		VSQRTPS(v, v)
		VMULPS(Mem{Base: p, Disp: disp + laneW}, v, v)
		VMOVUPS(v, Mem{Base: p, Disp: disp + laneW})
	})
	VZEROUPPER()
	RET()
}

// fitAffine is the search of one or two times eight groups. Two take turns, so
// that one computes while the other waits for its sums; nothing but the refusal
// branches on values.
//
// Rounding by float minimum and maximum equals the scalar integer form while no
// product leaves 2^21; the products of the ends of a group bound the others,
// because each operation keeps order.
func fitAffine(name string, absolute bool) {
	at := func(l string) string { return name + l }
	TEXT(name, NOSPLIT, "func(s *float32, sets, n int, candidates *float32, steps int) bool")
	Doc(name+" is fitAffine for sets laneGroups at s with groups of n values, a multiple", "of 4. candidates holds the greatest code and a numerator for each step. It gives", "false, and no outcome, for values that only the scalar code handles.")
	Pragma("noescape")
	first, n := Load(Param("s"), GP64()), Load(Param("n"), GP64())
	cand, steps := Load(Param("candidates"), GP64()), Load(Param("steps"), GP64())
	s, set := GP64(), GP64()
	field := func(off int) Mem { return Mem{Base: s, Disp: off} }
	eachSet := func(label string, body func()) {
		MOVQ(first, s)
		Load(Param("sets"), set)
		Label(at(label))
		body()
		ADDQ(I32(laneSize), s)
		DECQ(set)
		JNZ(LabelRef(at(label)))
	}
	mag, top := magic(), YMM()
	VBROADCASTSS(Mem{Base: cand}, top)
	VADDPS(mag, top, top)
	bound(top)
	abs := Spread("absBits1", 0x7fffffff)
	mask := GP32()
	lo, iscale := YMM(), YMM()

	// start divides a numerator by the range and refuses products that are too
	// large.
	start := func() {
		span, a, b, c := YMM(), YMM(), YMM(), YMM()
		VMOVUPS(field(laneHigh), span)
		VSUBPS(lo, span, span)
		VBROADCASTSS(Mem{Base: cand}, iscale)
		VDIVPS(span, iscale, iscale)
		VMOVUPS(field(laneLowest), b)
		VSUBPS(lo, b, b)
		VMULPS(iscale, span, a)
		VMULPS(iscale, b, b)
		VBROADCASTSS(Words("roundLimit", 0x4a000000), c)
		VANDPS(abs, a, a)
		VANDPS(abs, b, b)
		VCMPPS(U8(cmpNLT), c, a, a)
		VCMPPS(U8(cmpNLT), c, b, b)
		VORPS(a, b, a)
		VANDPS(field(laneAlive), a, a)
		VMOVMSKPS(a, mask)
		TESTL(mask, mask)
		JNZ(LabelRef(at("Refuse")))
	}
	code := func(p Register, disp int) (v, q VecVirtual) {
		v, q = YMM(), YMM()
		VMOVUPS(Mem{Base: p, Disp: disp + laneX}, v)
		VSUBPS(lo, v, q)
		VMULPS(iscale, q, q)
		VADDPS(mag, q, q)
		VMAXPS(mag, q, q)
		VMINPS(top, q, q)
		VSUBPS(mag, q, q)
		VMOVUPS(q, Mem{Base: p, Disp: disp + laneCodes})
		return v, q
	}
	// measure sums the error of the codes under a scale and a minimum.
	measure := func(label string, ts, tm VecVirtual) VecVirtual {
		e := Zeroed()
		eachValue(at(label), s, n, 4, func(p Register, disp int) {
			d := YMM()
			VMULPS(Mem{Base: p, Disp: disp + laneCodes}, ts, d)
			VADDPS(tm, d, d)
			VSUBPS(Mem{Base: p, Disp: disp + laneX}, d, d)
			if absolute {
				VANDPS(abs, d, d)
			} else {
				VMULPS(d, d, d)
			}
			VMULPS(Mem{Base: p, Disp: disp + laneW}, d, d)
			VADDPS(d, e, e)
		})
		return e
	}

	eachSet("Prepare", func() {
		// Range and sums. A comparison that fails keeps the older value.
		lowest, high, sumW, sumX := YMM(), YMM(), YMM(), YMM()
		VMOVUPS(field(laneX), lowest)
		VMOVAPS(lowest, high)
		VXORPS(sumW, sumW, sumW)
		VXORPS(sumX, sumX, sumX)
		eachValue(at("Range"), s, n, 4, func(p Register, disp int) {
			v, w := YMM(), YMM()
			VMOVUPS(Mem{Base: p, Disp: disp + laneX}, v)
			VMOVUPS(Mem{Base: p, Disp: disp + laneW}, w)
			VMINPS(lowest, v, lowest)
			VMAXPS(high, v, high)
			VADDPS(w, sumW, sumW)
			VMULPS(w, v, v)
			VADDPS(v, sumX, sumX)
		})
		VMOVUPS(sumW, field(laneSumW))
		VMOVUPS(sumX, field(laneSumX))
		VMOVUPS(lowest, field(laneLowest))
		VMOVUPS(high, field(laneHigh))
		zero, t := Zeroed(), YMM()
		// Weights are at least as unruly as values: a finite sum means finite
		// values.
		VSUBPS(sumW, sumW, t)
		VCMPPS(U8(cmpEQ), zero, t, t)
		VMOVMSKPS(t, mask)
		CMPL(mask, U32(0xff))
		JNE(LabelRef(at("Refuse")))
		VCMPPS(U8(cmpGT), zero, lowest, t)
		VBLENDVPS(t, zero, lowest, lo)
		VMOVUPS(lo, field(laneLow))
		VCMPPS(U8(cmpNE), high, lo, t)
		VMOVUPS(t, field(laneAlive))

		start()
		VMOVUPS(iscale, field(laneBy))
		VMOVUPS(lo, field(laneFrom))
		scale := Spread("oneFloat1", 0x3f800000)
		VDIVPS(iscale, scale, scale)
		VMOVUPS(scale, field(laneScale))
		eachValue(at("First"), s, n, 4, func(p Register, disp int) { code(p, disp) })
		VMOVUPS(measure("FirstError", scale, lo), field(laneBest))
	})

	Label(at("Step"))
	ADDQ(I32(4), cand)
	eachSet("Set", func() {
		VMOVUPS(field(laneLow), lo)
		start()
		sumL, sumL2, sumXL := Zeroed(), Zeroed(), Zeroed()
		eachValue(at("Codes"), s, n, 4, func(p Register, disp int) {
			v, q := code(p, disp)
			wl := YMM()
			VMULPS(Mem{Base: p, Disp: disp + laneW}, q, wl)
			VADDPS(wl, sumL, sumL)
			VMULPS(wl, q, q)
			VADDPS(q, sumL2, sumL2)
			VMULPS(wl, v, v)
			VADDPS(v, sumXL, sumXL)
		})
		det, ts, tm, u, able, z := YMM(), YMM(), YMM(), YMM(), YMM(), Zeroed()
		VMOVUPS(field(laneSumW), ts)
		VMULPS(sumL2, ts, det)
		VMULPS(sumL, sumL, u)
		VSUBPS(u, det, det)
		VCMPPS(U8(cmpGT), z, det, able)
		VANDPS(field(laneAlive), able, able)
		VMULPS(sumXL, ts, ts)
		VMOVUPS(field(laneSumX), tm)
		VMULPS(sumL, tm, u)
		VSUBPS(u, ts, ts)
		VDIVPS(det, ts, ts)
		VMULPS(sumL2, tm, tm)
		VMULPS(sumXL, sumL, u)
		VSUBPS(u, tm, tm)
		VDIVPS(det, tm, tm)
		VCMPPS(U8(cmpGT), z, tm, u)
		VDIVPS(sumL2, sumXL, sumXL)
		VBLENDVPS(u, z, tm, tm)
		VBLENDVPS(u, sumXL, ts, ts)
		e := measure("Error", ts, tm)
		old := YMM()
		VMOVUPS(field(laneBest), old)
		VCMPPS(U8(cmpLT), old, e, u)
		VANDPS(able, u, u)
		replace := func(off int, by VecVirtual) {
			o := YMM()
			VMOVUPS(field(off), o)
			VBLENDVPS(u, by, o, o)
			VMOVUPS(o, field(off))
		}
		replace(laneBest, e)
		replace(laneScale, ts)
		replace(laneBy, iscale)
		replace(laneFrom, lo)
		replace(laneLow, tm)
	})
	DECQ(steps)
	JNZ(LabelRef(at("Step")))

	eachSet("Finish", func() {
		// A group without a range has scale 0 and codes 0.
		a, b := YMM(), YMM()
		VMOVUPS(field(laneAlive), a)
		for _, off := range []int{laneScale, laneBy, laneFrom} {
			VANDPS(field(off), a, b)
			VMOVUPS(b, field(off))
		}
		VBROADCASTSS(Words("signBit1", 0x80000000), b)
		VXORPS(field(laneLow), b, b)
		VMOVUPS(b, field(laneMin))
	})
	giveBool(true)
	Label(at("Refuse"))
	giveBool(false)
}

func giveBool(v bool) {
	r, b := GP8(), U8(0)
	if v {
		b = 1
	}
	VZEROUPPER()
	MOVB(b, r)
	Store(r, ReturnIndex(0))
	RET()
}

// recode is the scalar integer form: products may be anything here.
func recode() {
	TEXT("recodeSIMD", NOSPLIT, "func(l *byte, x, d, m *float32, lo, hi int32)")
	Doc("recodeSIMD gives 256 values the codes clamp(nearest((x+m)/d), lo, hi) - lo. d and", "m hold a number for each 16 values.")
	Pragma("noescape")
	l, x := Load(Param("l"), GP64()), Load(Param("x"), GP64())
	d, m := Load(Param("d"), GP64()), Load(Param("m"), GP64())
	order := Fetch(packOrder())
	mag, bits := magic(), Spread("mantissa", 0x7fffff)
	lo, hi := YMM(), YMM()
	VBROADCASTSS(Argument("lo"), lo)
	VBROADCASTSS(Argument("hi"), hi)
	bias := Spread("nearestBias", 0x400000)
	VPADDD(bias, lo, lo)
	VPADDD(bias, hi, hi)
	n := GP64()
	MOVQ(U32(8), n)
	Label("recodeLoop")
	var q [4]VecVirtual
	for i := range q {
		q[i] = YMM()
		dv := YMM()
		VBROADCASTSS(Mem{Base: m, Disp: i / 2 * 4}, q[i])
		VBROADCASTSS(Mem{Base: d, Disp: i / 2 * 4}, dv)
		VADDPS(Mem{Base: x, Disp: 32 * i}, q[i], q[i])
		VDIVPS(dv, q[i], q[i])
		VADDPS(mag, q[i], q[i])
		VPAND(bits, q[i], q[i])
		VPMAXSD(lo, q[i], q[i])
		VPMINSD(hi, q[i], q[i])
		VPSUBD(lo, q[i], q[i])
	}
	VMOVDQU(packBytes(q, order, false), Mem{Base: l})
	ADDQ(I32(32), l)
	ADDQ(I32(128), x)
	ADDQ(I32(8), d)
	ADDQ(I32(8), m)
	DECQ(n)
	JNZ(LabelRef("recodeLoop"))
	VZEROUPPER()
	RET()
}

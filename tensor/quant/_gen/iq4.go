package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// iq4Levels are the levels of IQ4_NL.
var iq4Levels = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// levelSearch is nearestIQ4 for eight values. The scalar comparison of two
// differences is a comparison with the mean of two levels: near it both
// differences are exact. Each of four bits comes from one comparison, whose mask
// is -1 where it holds; a table that is indexed by a negative number is stored
// backward.
type levelSearch struct {
	middle, second, third, fourth VecVirtual // means, by the bits so far
	even, step                    VecVirtual // levels of even index, and what is missing to the next
}

// backward stores 1<<bits words for negative indices.
func backward(name string, bits int, f func(k int) float32) VecVirtual {
	var w [8]uint32
	for k := range 1 << bits {
		w[(8-k)%8] = math.Float32bits(f(k))
	}
	return Fetch(Words(name, w[:]...))
}

func newLevelSearch(values bool) levelSearch {
	mean := func(k int) float32 { return (iq4Levels[k-1] + iq4Levels[k]) / 2 }
	l := levelSearch{
		middle: Spread("iq4Middle", math.Float32bits(mean(8))),
		second: backward("iq4Second", 1, func(k int) float32 { return mean(8*k + 4) }),
		third:  backward("iq4Third", 2, func(k int) float32 { return mean(4*k + 2) }),
		fourth: backward("iq4Fourth", 3, func(k int) float32 { return mean(2*k + 1) }),
	}
	if values {
		l.even = backward("iq4Even", 3, func(k int) float32 { return iq4Levels[2*k] })
		l.step = backward("iq4Step", 3, func(k int) float32 { return iq4Levels[2*k+1] - iq4Levels[2*k] })
	}
	return l
}

// find gives the negative of the index's upper three bits, and the mask of its
// lowest. What is not a number is above all levels, as in the scalar search.
func (l levelSearch) find(v VecVirtual) (upper, lowest VecVirtual) {
	at, t := YMM(), YMM()
	VCMPPS(U8(cmpNLT), l.middle, v, at)
	for _, table := range []VecVirtual{l.second, l.third} {
		VPERMPS(table, at, t)
		VCMPPS(U8(cmpNLT), t, v, t)
		VPADDD(at, at, at)
		VPADDD(t, at, at)
	}
	VPERMPS(l.fourth, at, t)
	VCMPPS(U8(cmpNLT), t, v, t)
	return at, t
}

func fitIQ4() {
	name := "fitIQ4SIMD"
	at := func(l string) string { return name + l }
	TEXT(name, NOSPLIT, "func(s *float32, n int) bool")
	Doc(name+" is fitIQ4 for the laneGroups at s with groups of n values, a multiple of 4.", "It gives false, and no outcome, for values that are not finite.")
	Pragma("noescape")
	s, n := Load(Param("s"), GP64()), Load(Param("n"), GP64())
	field := func(off int) Mem { return Mem{Base: s, Disp: off} }
	extreme, _ := extremes(at("Extremes"), field, s, n, at("Refuse"))
	VMOVUPS(extreme, field(laneHigh))
	levels := newLevelSearch(true)
	by, sumqx, sumq2 := YMM(), YMM(), YMM()
	pass := func(label string) {
		VXORPS(sumqx, sumqx, sumqx)
		VXORPS(sumq2, sumq2, sumq2)
		eachValue(label, s, n, 4, func(p Register, disp int) {
			v := YMM()
			VMULPS(Mem{Base: p, Disp: disp + laneX}, by, v)
			upper, lowest := levels.find(v)
			q, t := YMM(), YMM()
			VPERMPS(levels.even, upper, q)
			VPERMPS(levels.step, upper, t)
			VANDPS(lowest, t, t)
			VADDPS(t, q, q)
			VMULPS(Mem{Base: p, Disp: disp + laneW}, q, t)
			VMULPS(t, q, q)
			VMULPS(Mem{Base: p, Disp: disp + laneX}, t, t)
			VADDPS(t, sumqx, sumqx)
			VADDPS(q, sumq2, sumq2)
		})
	}
	// The first guess is 1 / (-extreme / lowest level).
	minus := Spread("signBit1", 0x80000000)
	VXORPS(field(laneHigh), minus, minus)
	VBROADCASTSS(Words("iq4Lowest", math.Float32bits(iq4Levels[0])), by)
	VDIVPS(by, minus, minus)
	VBROADCASTSS(Words("oneFloat1", 0x3f800000), by)
	VDIVPS(minus, by, by)
	pass(at("First"))
	z, d, m := Zeroed(), YMM(), YMM()
	VCMPPS(U8(cmpGT), z, sumq2, m)
	VDIVPS(sumq2, sumqx, d)
	VANDPS(m, d, d)
	VMOVUPS(d, field(laneScale))
	VMULPS(sumqx, d, d)
	VMOVUPS(d, field(laneBest))
	// Then the numerators -7 .. 7 beside the lowest level.
	var numerators []uint32
	for t := -7; t <= 7; t++ {
		numerators = append(numerators, math.Float32bits(float32(t)+iq4Levels[0]))
	}
	cand, left := GP64(), GP64()
	LEAQ(Words("iq4Numerators", numerators...), cand)
	MOVQ(U32(len(numerators)), left)
	Label(at("Step"))
	VBROADCASTSS(Mem{Base: cand}, by)
	VDIVPS(field(laneHigh), by, by)
	pass(at("Pass"))
	a, b := YMM(), YMM()
	VMULPS(sumqx, sumqx, a)
	VMULPS(field(laneBest), sumq2, b)
	VCMPPS(U8(cmpGT), b, a, m)
	VXORPS(a, a, a)
	VCMPPS(U8(cmpGT), a, sumq2, a)
	VANDPS(a, m, m)
	VDIVPS(sumq2, sumqx, a)
	VMULPS(sumqx, a, b)
	replace := func(off int, by VecVirtual) {
		o := YMM()
		VMOVUPS(field(off), o)
		VBLENDVPS(m, by, o, o)
		VMOVUPS(o, field(off))
	}
	replace(laneScale, a)
	replace(laneBest, b)
	ADDQ(I32(4), cand)
	DECQ(left)
	JNZ(LabelRef(at("Step")))
	VMOVUPS(field(laneAlive), a)
	VANDPS(field(laneScale), a, a)
	VMOVUPS(a, field(laneScale))
	giveBool(true)
	Label(at("Refuse"))
	giveBool(false)
}

// codesIQ4 writes the codes of blocks of 32 under one factor each.
func codesIQ4() {
	name := "codesIQ4SIMD"
	TEXT(name, NOSPLIT, "func(dst *byte, x, by *float32, blocks, step int)")
	Doc(name+" writes the nibbles of nearestIQ4(by*x) for blocks of 32 values, 16 bytes", "every step bytes; by holds a number for each block.")
	Pragma("noescape")
	dst, x, by := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("by"), GP64())
	blocks, step := Load(Param("blocks"), GP64()), Load(Param("step"), GP64())
	levels, order := newLevelSearch(false), Fetch(packOrder())
	Label(name + "Loop")
	factor := YMM()
	VBROADCASTSS(Mem{Base: by}, factor)
	var q [4]VecVirtual
	for i := range q {
		v := YMM()
		VMULPS(Mem{Base: x, Disp: 32 * i}, factor, v)
		upper, lowest := levels.find(v)
		VPADDD(upper, upper, upper)
		VPADDD(lowest, upper, upper)
		q[i] = YMM()
		VPXOR(q[i], q[i], q[i])
		VPSUBD(upper, q[i], q[i])
	}
	b := packBytes(q, order, false)
	hi := XMM()
	VEXTRACTI128(U8(1), b, hi)
	VPSLLW(U8(4), hi, hi)
	VPOR(b.AsX(), hi, hi)
	VMOVDQU(hi, Mem{Base: dst})
	ADDQ(step, dst)
	ADDQ(I32(128), x)
	ADDQ(I32(4), by)
	DECQ(blocks)
	JNZ(LabelRef(name + "Loop"))
	VZEROUPPER()
	RET()
}

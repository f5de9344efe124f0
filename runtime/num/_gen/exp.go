package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// exponential holds the constants of num.Exp.
type exponential struct {
	top, bottom, toBase2, magic, high, low, one, bias VecVirtual
	series                                            []Mem
}

func newExponential() exponential {
	const ln2High = 0x1.62ep-1
	e := exponential{top: float("expTop", 89), bottom: float("expBottom", -104), toBase2: float("perLn2", 1/math.Ln2), magic: float("roundMagic", 0x1.8p23),
		high: float("ln2High", ln2High), low: float("ln2Low", math.Ln2-ln2High), one: float("one", 1), bias: Spread("expBias", 127)}
	for i, d := range []float64{5040, 720, 120, 24, 6, 2} {
		b := math.Float32bits(float32(1 / d))
		e.series = append(e.series, Words(fmt.Sprintf("expSeries%d", i), b, b, b, b, b, b, b, b))
	}
	return e
}

// of replaces v by e^v.
func (e exponential) of(v VecVirtual) {
	t, k, r, p := YMM(), YMM(), YMM(), YMM()
	// With a NaN both give their second operand: v, which is written first here.
	VMINPS(v, e.top, v)
	VMAXPS(v, e.bottom, v)
	VMULPS(e.toBase2, v, t)
	VADDPS(e.magic, t, t)
	VPSUBD(e.magic, t, k)
	VSUBPS(e.magic, t, t)
	VMULPS(e.high, t, r)
	VSUBPS(r, v, r)
	VMULPS(e.low, t, t)
	VSUBPS(t, r, r)
	VMOVUPS(e.series[0], p)
	for _, c := range e.series[1:] {
		VMULPS(r, p, p)
		VADDPS(c, p, p)
	}
	VMULPS(r, r, t)
	VMULPS(p, t, t)
	VADDPS(r, t, t)
	VADDPS(e.one, t, t)
	half := YMM()
	VPSRAD(U8(1), k, half)
	VPSUBD(half, k, k)
	VPADDD(e.bias, half, half)
	VPSLLD(U8(23), half, half)
	VMULPS(half, t, t)
	VPADDD(e.bias, k, k)
	VPSLLD(U8(23), k, k)
	VMULPS(k, t, v)
}

// eights runs body for n values, a multiple of 8 and not 0, at the pointers.
func eights(n Register, body func(), pointers ...Register) {
	Label("loop")
	body()
	for _, p := range pointers {
		ADDQ(U8(32), p)
	}
	SUBQ(U8(8), n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

func expMinus() {
	TEXT("expMinusAVX2", NOSPLIT, "func(x *float32, n int, m float32)")
	Doc("expMinusAVX2 is expMinusScalar for n values, a multiple of 8 and not 0.")
	Pragma("noescape")
	x, n, m := Load(Param("x"), GP64()), Load(Param("n"), GP64()), Everywhere("m")
	e := newExponential()
	eights(n, func() {
		v := YMM()
		VMOVUPS(Mem{Base: x}, v)
		VSUBPS(m, v, v)
		e.of(v)
		VMOVUPS(v, Mem{Base: x})
	}, x)
}

// gates writes the products of gated feed-forward blocks.
func gates() {
	write := func(name, scalar string, argument func(x, v VecVirtual)) {
		TEXT(name, NOSPLIT, "func(gate, up *float32, n int)")
		Doc(name + " is " + scalar + " for n values, a multiple of 8 and not 0.")
		Pragma("noescape")
		g, u, n := Load(Param("gate"), GP64()), Load(Param("up"), GP64()), Load(Param("n"), GP64())
		e := newExponential()
		eights(n, func() {
			x, v := YMM(), YMM()
			VMOVUPS(Mem{Base: g}, x)
			argument(x, v)
			e.of(v)
			VADDPS(v, e.one, v)
			VDIVPS(v, x, x)
			VMULPS(Mem{Base: u}, x, x)
			VMOVUPS(x, Mem{Base: g})
		}, g, u)
	}
	write("siluMulAVX2", "siluMulScalar", func(x, v VecVirtual) {
		sign := uint32(1 << 31)
		VXORPS(Words("sign", sign, sign, sign, sign, sign, sign, sign, sign), x, v)
	})
	eight := func(name string, f float64) Mem {
		b := math.Float32bits(float32(f))
		return Words(name, b, b, b, b, b, b, b, b)
	}
	write("geluMulAVX2", "geluMulScalar", func(x, v VecVirtual) {
		VMULPS(x, x, v)
		VMULPS(x, v, v)
		VMULPS(eight("geluCube", 0.044715), v, v)
		VADDPS(v, x, v)
		VMULPS(eight("geluRoot", -1.5957691216057307117597842397375), v, v)
	})
}

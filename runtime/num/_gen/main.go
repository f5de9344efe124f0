// Command _gen writes the AVX2 kernels of package num.
//
//	cd runtime/num/_gen && go run . -out ../kernels_amd64.s -stubs ../stubs_amd64.go -pkg num
//
// It is a module of its own, so that its dependencies are none of quern's. Each
// kernel does what the scalar function named in its comment does, eight lanes
// at a time: the bits are the same. Multiplication and addition stay apart.
package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64,!noasm")
	for _, tile := range [][2]int{{4, 2}, {4, 1}, {1, 2}, {1, 1}} {
		dots(tile[0], tile[1])
	}
	weightedSum(4)
	weightedSum(1)
	expMinus()
	Generate()
}

var globals = map[string]Mem{}

// words makes read-only data, once for each name.
func words(name string, v ...uint32) Mem {
	if m, ok := globals[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i, w := range v {
		DATA(4*i, U32(w))
	}
	globals[name] = m
	return m
}

// constant fills a register with a word that is kept in memory once.
func constant(name string, bits uint32) VecVirtual {
	r := YMM()
	VBROADCASTSS(words(name, bits), r)
	return r
}

func float(name string, v float64) VecVirtual {
	return constant(name, math.Float32bits(float32(v)))
}

func zeroed() VecVirtual {
	r := YMM()
	VXORPS(r, r, r)
	return r
}

// tailMasks has a set word for each of the last n%8 lanes: the mask of n%8 = k
// starts at byte 32-4k.
func tailMasks() Mem {
	const set = 0xffffffff
	return words("tailMasks", set, set, set, set, set, set, set, set, 0, 0, 0, 0, 0, 0, 0, 0)
}

// dots is a tile of inner products, rows of w times rows of x.
func dots(rows, cols int) {
	name := fmt.Sprintf("dots%dx%dAVX2", rows, cols)
	TEXT(name, NOSPLIT, "func(dst *float32, ld int, w *float32, ws int, x *float32, xs int, n int)")
	Doc(fmt.Sprintf("%s is dotsScalar for %d rows of w and %d of x; ld, ws and xs are", name, rows, cols), "strides in values, n is at least 1.")
	Pragma("noescape")
	stride := func(param string) Register {
		r := Load(Param(param), GP64())
		SHLQ(U8(2), r)
		return r
	}
	// rowAt gives the operand of row i, i < 4, from a base that moves.
	type base struct{ p, stride, triple Register }
	load := func(param, sparam string, n int) base {
		b := base{p: Load(Param(param), GP64())}
		if n > 1 {
			b.stride = stride(sparam)
		}
		if n > 3 {
			b.triple = GP64()
			LEAQ(Mem{Base: b.stride, Index: b.stride, Scale: 2}, b.triple)
		}
		return b
	}
	rowAt := func(b base, i int) Mem {
		switch i {
		case 0:
			return Mem{Base: b.p}
		case 3:
			return Mem{Base: b.p, Index: b.triple, Scale: 1}
		}
		return Mem{Base: b.p, Index: b.stride, Scale: uint8(i)}
	}
	w, x := load("w", "ws", rows), load("x", "xs", cols)
	n, tail := Load(Param("n"), GP64()), GP64()
	MOVQ(n, tail)
	ANDQ(U8(7), tail)
	SHRQ(U8(3), n)

	acc := make([]VecVirtual, rows*cols)
	for i := range acc {
		acc[i] = zeroed()
	}
	step := func(load func(m Mem, r VecVirtual)) {
		xv := make([]VecVirtual, cols)
		for c := range xv {
			xv[c] = YMM()
			load(rowAt(x, c), xv[c])
		}
		for r := 0; r < rows; r++ {
			wv := YMM()
			load(rowAt(w, r), wv)
			for c := 0; c < cols; c++ {
				t := YMM()
				VMULPS(wv, xv[c], t)
				VADDPS(t, acc[r*cols+c], acc[r*cols+c])
			}
		}
	}
	TESTQ(n, n)
	JZ(LabelRef("tail"))
	Label("loop")
	step(func(m Mem, r VecVirtual) { VMOVUPS(m, r) })
	ADDQ(U8(32), w.p)
	ADDQ(U8(32), x.p)
	DECQ(n)
	JNZ(LabelRef("loop"))
	Label("tail")
	TESTQ(tail, tail)
	JZ(LabelRef("sum"))
	masks, mask := GP64(), YMM()
	LEAQ(tailMasks(), masks)
	SHLQ(U8(2), tail)
	SUBQ(tail, masks)
	VMOVUPS(Mem{Base: masks, Disp: 32}, mask)
	// Lanes without an element add +0, which changes no sum that began with +0.
	step(func(m Mem, r VecVirtual) { VMASKMOVPS(m, mask, r) })
	Label("sum")
	dst := Load(Param("dst"), GP64())
	ld := stride("ld")
	for c := 0; c < cols; c++ {
		for r := 0; r < rows; r++ {
			a := acc[r*cols+c]
			t := XMM()
			VEXTRACTF128(U8(1), a, t)
			VADDPS(t, a.AsX(), a.AsX())
			VMOVHLPS(a.AsX(), a.AsX(), t)
			VADDPS(t, a.AsX(), a.AsX())
			VMOVSHDUP(a.AsX(), t)
			VADDSS(t, a.AsX(), a.AsX())
			VMOVSS(a.AsX(), Mem{Base: dst, Disp: 4 * r})
		}
		if c+1 < cols {
			ADDQ(ld, dst)
		}
	}
	VZEROUPPER()
	RET()
}

// weightedSum keeps vectors sums in registers while it walks down the rows.
func weightedSum(vectors int) {
	name := fmt.Sprintf("weightedSum%dAVX2", 8*vectors)
	TEXT(name, NOSPLIT, "func(dst, p, v *float32, vs, n int)")
	Doc(fmt.Sprintf("%s is weightedSumScalar for %d values of n rows, n at least 1; vs is", name, 8*vectors), "the stride of the rows in values.")
	Pragma("noescape")
	p, v, n := Load(Param("p"), GP64()), Load(Param("v"), GP64()), Load(Param("n"), GP64())
	vs := Load(Param("vs"), GP64())
	SHLQ(U8(2), vs)
	acc := make([]VecVirtual, vectors)
	for i := range acc {
		acc[i] = zeroed()
	}
	Label("loop")
	a := YMM()
	VBROADCASTSS(Mem{Base: p}, a)
	for i := range acc {
		t := YMM()
		VMULPS(Mem{Base: v, Disp: 32 * i}, a, t)
		VADDPS(t, acc[i], acc[i])
	}
	ADDQ(U8(4), p)
	ADDQ(vs, v)
	DECQ(n)
	JNZ(LabelRef("loop"))
	dst := Load(Param("dst"), GP64())
	for i := range acc {
		VMOVUPS(acc[i], Mem{Base: dst, Disp: 32 * i})
	}
	VZEROUPPER()
	RET()
}

func expMinus() {
	TEXT("expMinusAVX2", NOSPLIT, "func(x *float32, n int, m float32)")
	Doc("expMinusAVX2 is expMinusScalar for n values, a multiple of 8 and not 0.")
	Pragma("noescape")
	x, n, m := Load(Param("x"), GP64()), Load(Param("n"), GP64()), YMM()
	arg, err := Param("m").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(arg.Addr, m)
	const ln2High = 0x1.62ep-1
	top, bottom := float("expTop", 89), float("expBottom", -104)
	toBase2, magic := float("perLn2", 1/math.Ln2), float("roundMagic", 0x1.8p23)
	high, low := float("ln2High", ln2High), float("ln2Low", math.Ln2-ln2High)
	one, bias := float("one", 1), constant("expBias", 127)
	series := []Mem{}
	for i, d := range []float64{5040, 720, 120, 24, 6, 2} {
		b := math.Float32bits(float32(1 / d))
		series = append(series, words(fmt.Sprintf("expSeries%d", i), b, b, b, b, b, b, b, b))
	}
	Label("loop")
	v, t, k, r, p := YMM(), YMM(), YMM(), YMM(), YMM()
	VMOVUPS(Mem{Base: x}, v)
	VSUBPS(m, v, v)
	// With a NaN both give their second operand: v, which is written first here.
	VMINPS(v, top, v)
	VMAXPS(v, bottom, v)
	VMULPS(toBase2, v, t)
	VADDPS(magic, t, t)
	VPSUBD(magic, t, k)
	VSUBPS(magic, t, t)
	VMULPS(high, t, r)
	VSUBPS(r, v, r)
	VMULPS(low, t, t)
	VSUBPS(t, r, r)
	VMOVUPS(series[0], p)
	for _, c := range series[1:] {
		VMULPS(r, p, p)
		VADDPS(c, p, p)
	}
	VMULPS(r, r, t)
	VMULPS(p, t, t)
	VADDPS(r, t, t)
	VADDPS(one, t, t)
	half := YMM()
	VPSRAD(U8(1), k, half)
	VPSUBD(half, k, k)
	VPADDD(bias, half, half)
	VPSLLD(U8(23), half, half)
	VMULPS(half, t, t)
	VPADDD(bias, k, k)
	VPSLLD(U8(23), k, k)
	VMULPS(k, t, t)
	VMOVUPS(t, Mem{Base: x})
	ADDQ(U8(32), x)
	SUBQ(U8(8), n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

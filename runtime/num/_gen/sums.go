package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// element is the size of a value, and the way 8 of them are loaded.
type element struct {
	name, typ string
	size      int
	load      func(m, r Op)
}

func elements(half bool) element {
	if half {
		return element{"Half", "byte", 2, func(m, r Op) { VCVTPH2PS(m, r) }}
	}
	return element{"", "float32", 4, func(m, r Op) { VMOVUPS(m, r) }}
}

// stride loads a distance in values and makes bytes of it.
func stride(param string, size int) Register {
	r := Load(Param(param), GP64())
	SHLQ(U8(size/2), r)
	return r
}

// dots is a tile of inner products, rows of w times rows of x. Halves come in
// eights.
func dots(rows, cols int, half bool) {
	e := elements(half)
	name := fmt.Sprintf("dots%s%dx%dAVX2", e.name, rows, cols)
	TEXT(name, NOSPLIT, "func(dst *float32, ld int, w *"+e.typ+", ws int, x *float32, xs int, n int)")
	Doc(fmt.Sprintf("%s is dots%sScalar for %d rows of w and %d of x; ld, ws and xs are", name, e.name, rows, cols),
		"strides in values, n is at least 1"+map[bool]string{true: " and a multiple of 8."}[half]+map[bool]string{false: "."}[half])
	Pragma("noescape")
	// rowAt gives the operand of row i, i < 4, from a base that moves.
	type base struct{ p, stride, triple Register }
	load := func(param, sparam string, n, size int) base {
		b := base{p: Load(Param(param), GP64())}
		if n > 1 {
			b.stride = stride(sparam, size)
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
	w, x := load("w", "ws", rows, e.size), load("x", "xs", cols, 4)
	n, tail := Load(Param("n"), GP64()), GP64()
	if !half {
		MOVQ(n, tail)
		ANDQ(U8(7), tail)
	}
	SHRQ(U8(3), n)

	acc := make([]VecVirtual, rows*cols)
	for i := range acc {
		acc[i] = Zeroed()
	}
	step := func(loadW, loadX func(m, r Op)) {
		xv := make([]VecVirtual, cols)
		for c := range xv {
			xv[c] = YMM()
			loadX(rowAt(x, c), xv[c])
		}
		for r := 0; r < rows; r++ {
			wv := YMM()
			loadW(rowAt(w, r), wv)
			for c := 0; c < cols; c++ {
				t := YMM()
				VMULPS(wv, xv[c], t)
				VADDPS(t, acc[r*cols+c], acc[r*cols+c])
			}
		}
	}
	if !half {
		TESTQ(n, n)
		JZ(LabelRef("tail"))
	}
	Label("loop")
	step(e.load, elements(false).load)
	ADDQ(U8(8*e.size), w.p)
	ADDQ(U8(32), x.p)
	DECQ(n)
	JNZ(LabelRef("loop"))
	if !half {
		Label("tail")
		TESTQ(tail, tail)
		JZ(LabelRef("sum"))
		masks, mask := GP64(), YMM()
		LEAQ(tailMasks(), masks)
		SHLQ(U8(2), tail)
		SUBQ(tail, masks)
		VMOVUPS(Mem{Base: masks, Disp: 32}, mask)
		// Lanes without an element add +0, which changes no sum that began with +0.
		masked := func(m, r Op) { VMASKMOVPS(m, mask, r) }
		step(masked, masked)
		Label("sum")
	}
	dst := Load(Param("dst"), GP64())
	ld := stride("ld", 4)
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

// addWeighted keeps vectors sums in registers while it walks down the rows.
func addWeighted(vectors int, half bool) {
	e := elements(half)
	name := fmt.Sprintf("addWeighted%s%dAVX2", e.name, 8*vectors)
	TEXT(name, NOSPLIT, "func(dst, p *float32, v *"+e.typ+", vs, n int)")
	Doc(fmt.Sprintf("%s is addWeighted%sScalar for %d values of n rows, n at least 1; vs is", name, e.name, 8*vectors), "the stride of the rows in values.")
	Pragma("noescape")
	dst, p, v, n := Load(Param("dst"), GP64()), Load(Param("p"), GP64()), Load(Param("v"), GP64()), Load(Param("n"), GP64())
	vs := stride("vs", e.size)
	acc := make([]VecVirtual, vectors)
	for i := range acc {
		acc[i] = YMM()
		VMOVUPS(Mem{Base: dst, Disp: 32 * i}, acc[i])
	}
	Label("loop")
	a := YMM()
	VBROADCASTSS(Mem{Base: p}, a)
	for i := range acc {
		t := YMM()
		if half {
			e.load(Mem{Base: v, Disp: 16 * i}, t)
			VMULPS(t, a, t)
		} else {
			VMULPS(Mem{Base: v, Disp: 32 * i}, a, t)
		}
		VADDPS(t, acc[i], acc[i])
	}
	ADDQ(U8(4), p)
	ADDQ(vs, v)
	DECQ(n)
	JNZ(LabelRef("loop"))
	for i := range acc {
		VMOVUPS(acc[i], Mem{Base: dst, Disp: 32 * i})
	}
	VZEROUPPER()
	RET()
}

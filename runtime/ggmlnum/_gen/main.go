// Command _gen writes the AVX2 and FMA kernels of package ggmlnum.
//
//	cd runtime/ggmlnum/_gen && go run . -out ../kernels_amd64.s -stubs ../stubs_amd64.go -pkg ggmlnum
//
// It is a module of its own, so that its dependencies are none of quern's. Each kernel does what the scalar function named in its comment
// does, eight lanes at a time: the bits are the same.
package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

func main() {
	ConstraintExpr("amd64,!noasm")
	for _, rows := range []int{6, 1} {
		for _, vectors := range []int{2, 1} {
			gemm(rows, vectors)
		}
	}
	expSum()
	siluMul()
	turn()
	Generate()
}

func floats(name string, v float32) Mem { return Eights(name, math.Float32bits(v)) }

// gemm adds to rows rows of c, vectors*8 values each, the products of rows of a with k rows of b.
func gemm(rows, vectors int) {
	name := fmt.Sprintf("gemm%dx%dAVX2", rows, 8*vectors)
	TEXT(name, NOSPLIT, "func(c, a, b *float32, k, n int)")
	Doc(fmt.Sprintf("%s is gemmScalar for %d rows of c and a and %d values of each row of c and b, whose rows are n values apart. k is not 0.", name, rows, 8*vectors))
	Pragma("noescape")
	c, a, b := Load(Param("c"), GP64()), Load(Param("a"), GP64()), Load(Param("b"), GP64())
	k, n := Load(Param("k"), GP64()), Load(Param("n"), GP64())
	aStride := GP64()
	MOVQ(k, aStride)
	SHLQ(U8(2), aStride)
	SHLQ(U8(2), n)
	acc := make([][]VecVirtual, rows)
	at := GP64()
	MOVQ(c, at)
	for r := range acc {
		for v := range vectors {
			y := YMM()
			VMOVUPS(Mem{Base: at, Disp: 32 * v}, y)
			acc[r] = append(acc[r], y)
		}
		if r+1 < rows {
			ADDQ(n, at)
		}
	}
	// Row r of a is at r strides; the fourth is reached from a second pointer.
	second, stride3 := GP64(), GP64()
	if rows > 3 {
		LEAQ(Mem{Base: aStride, Index: aStride, Scale: 2}, stride3)
		LEAQ(Mem{Base: a, Index: stride3, Scale: 1}, second)
	}
	of := func(r int) Mem {
		base := a
		if r >= 3 {
			base, r = second, r-3
		}
		switch r {
		case 0:
			return Mem{Base: base}
		case 1:
			return Mem{Base: base, Index: aStride, Scale: 1}
		}
		return Mem{Base: base, Index: aStride, Scale: 2}
	}
	Label("loop")
	var bv []VecVirtual
	for v := range vectors {
		y := YMM()
		VMOVUPS(Mem{Base: b, Disp: 32 * v}, y)
		bv = append(bv, y)
	}
	for r := range rows {
		x := YMM()
		VBROADCASTSS(of(r), x)
		for v := range vectors {
			VFMADD231PS(x, bv[v], acc[r][v])
		}
	}
	ADDQ(U8(4), a)
	if rows > 3 {
		ADDQ(U8(4), second)
	}
	ADDQ(n, b)
	DECQ(k)
	JNZ(LabelRef("loop"))
	for r := range acc {
		for v, y := range acc[r] {
			VMOVUPS(y, Mem{Base: c, Disp: 32 * v})
		}
		if r+1 < rows {
			ADDQ(n, c)
		}
	}
	VZEROUPPER()
	RET()
}

// turn rotates a head whose pairs are half a head apart.
func turn() {
	TEXT("turnAVX2", NOSPLIT, "func(a, b, cos, sin *float32, n int)")
	Doc("turnAVX2 turns n pairs of values of a and b, n a multiple of 8 and not 0: a = fma(a, cos, -(b*sin)), b = fma(a, sin, b*cos).")
	Pragma("noescape")
	a, b := Load(Param("a"), GP64()), Load(Param("b"), GP64())
	cos, sin, n := Load(Param("cos"), GP64()), Load(Param("sin"), GP64()), Load(Param("n"), GP64())
	Label("loop")
	x, y, c, s, p, q := YMM(), YMM(), YMM(), YMM(), YMM(), YMM()
	VMOVUPS(Mem{Base: a}, x)
	VMOVUPS(Mem{Base: b}, y)
	VMOVUPS(Mem{Base: cos}, c)
	VMOVUPS(Mem{Base: sin}, s)
	VMULPS(s, y, p)
	VFMSUB231PS(c, x, p)
	VMULPS(c, y, q)
	VFMADD231PS(s, x, q)
	VMOVUPS(p, Mem{Base: a})
	VMOVUPS(q, Mem{Base: b})
	for _, r := range []Register{a, b, cos, sin} {
		ADDQ(U8(32), r)
	}
	SUBQ(U8(8), n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

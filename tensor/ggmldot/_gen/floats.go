package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// tiledFloats multiplies fours of rows with threes of columns.
func tiledFloats() {
	TEXT("tiledFloatsAVX2", NOSPLIT, "func(dst *float32, stride int, w, x *float32, width, fours, threes int)")
	Doc("tiledFloatsAVX2 multiplies 4*fours rows with 3*threes columns, both width values after one another, a multiple of 8. stride counts numbers.")
	Pragma("noescape")
	dst, x, threes := Pointer("dst"), Pointer("x"), Pointer("threes")
	stride, bytes := Pointer("stride"), Pointer("width")
	SHLQ(U8(2), stride)
	SHLQ(U8(2), bytes)
	three := GP64()
	LEAQ(Mem{Base: bytes, Index: bytes, Scale: 2}, three)
	Loop("threes", threes, func() {
		w, fours, out := Pointer("w"), Pointer("fours"), GP64()
		MOVQ(dst, out)
		Loop("fours", fours, func() {
			a, n := GP64(), GP64()
			MOVQ(x, a)
			MOVQ(bytes, n)
			SHRQ(U8(5), n)
			acc := YMMs(12)
			zero(acc...)
			at := func(base Register, i int) Mem {
				switch i {
				case 0:
					return Mem{Base: base}
				case 3:
					return Mem{Base: base, Index: three, Scale: 1}
				}
				return Mem{Base: base, Index: bytes, Scale: uint8(i)}
			}
			Loop("values", n, func() {
				c := YMMs(3)
				for t := range c {
					VMOVUPS(at(a, t), c[t])
				}
				for i := range 4 {
					v := YMM()
					VMOVUPS(at(w, i), v)
					for t := range c {
						VFMADD231PS(v, c[t], acc[4*t+i])
					}
				}
				ADDQ(I32(32), a)
				ADDQ(I32(32), w)
			})
			for t := range 3 {
				sum := addLanes(acc[4*t : 4*t+4])
				number(sum, XMM())
				to := Mem{Base: out}
				if t > 0 {
					to.Index, to.Scale = stride, uint8(t)
				}
				VMOVUPS(sum, to)
			}
			ADDQ(three, w) // the first row is behind it
			ADDQ(I32(16), out)
		})
		ADDQ(three, x)
		LEAQ(Mem{Base: dst, Index: stride, Scale: 2}, dst)
		ADDQ(stride, dst)
	})
	VZEROUPPER()
	RET()
}

// lanes32s gives the lanes of a row with one column.
func lanes32s() {
	TEXT("lanes32sAVX2", NOSPLIT, "func(l *[8]float32, w, x *float32, n int)")
	Doc("lanes32sAVX2 is lanes32sScalar for n times 32 values, n at least 1.")
	Pragma("noescape")
	l, w, x, n := Pointer("l"), Pointer("w"), Pointer("x"), Pointer("n")
	acc := YMMs(4)
	zero(acc...)
	Loop("loop", n, func() {
		for i := range acc {
			v := YMM()
			VMOVUPS(Mem{Base: w, Disp: 32 * i}, v)
			VFMADD231PS(Mem{Base: x, Disp: 32 * i}, v, acc[i])
		}
		ADDQ(I32(128), w)
		ADDQ(I32(128), x)
	})
	VADDPS(acc[2], acc[0], acc[0])
	VADDPS(acc[3], acc[1], acc[1])
	VADDPS(acc[1], acc[0], acc[0])
	VMOVUPS(acc[0], Mem{Base: l})
	VZEROUPPER()
	RET()
}

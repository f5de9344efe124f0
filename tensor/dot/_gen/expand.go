package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// Expanders turn a row of a tile into float32 values: with the decoders' own
// operations, so that nothing but their speed differs.

// expand8 writes 8 values: (code-bias)*scale, less or plus a minimum. Codes that
// are not signed are under 128 and may be read as if they were.
func expand8(dst, codes Register, at int, bias, scale VecVirtual, min func(v VecVirtual)) {
	v := YMM()
	VPMOVSXBD(Mem{Base: codes, Disp: at}, v)
	if bias != nil {
		VPSUBD(bias, v, v)
	}
	VCVTDQ2PS(v, v)
	VMULPS(scale, v, v)
	if min != nil {
		min(v)
	}
	VMOVUPS(v, Mem{Base: dst, Disp: 4 * at})
}

func broadcastBias() VecVirtual {
	x, y := XMM(), YMM()
	VMOVD(Load(Param("bias"), GP32()), x)
	VPBROADCASTD(x, y)
	return y
}

// expand32 is for units of 32 values. halves are two scales, or the same twice.
func expand32(affine bool) {
	name, last := "expand32AVX2", "halves"
	if affine {
		name, last = "expandAffine32AVX2", "m"
	}
	TEXT(name, NOSPLIT, "func(dst *float32, codes *byte, d, "+last+" *float32, bias int32, units int)")
	if affine {
		Doc(name + " decodes units of 32 values with a minimum; bias is 0.")
	} else {
		Doc(name + " decodes units of 32 values; halves are the scales of the last 16 of each.")
	}
	Pragma("noescape")
	dst, codes, d, m, units := Pointer("dst"), Pointer("codes"), Pointer("d"), Pointer(last), Pointer("units")
	var bias VecVirtual
	if !affine {
		bias = broadcastBias()
	}
	Loop("loop", units, func() {
		scale, second := YMM(), YMM()
		VBROADCASTSS(Mem{Base: d}, scale)
		VBROADCASTSS(Mem{Base: m}, second)
		for at := 0; at < 32; at += 8 {
			switch {
			case affine:
				expand8(dst, codes, at, nil, scale, func(v VecVirtual) { VADDPS(second, v, v) })
			case at < 16:
				expand8(dst, codes, at, bias, scale, nil)
			default:
				expand8(dst, codes, at, bias, second, nil)
			}
		}
		ADDQ(I32(128), dst)
		ADDQ(I32(32), codes)
		ADDQ(I32(32), d)
		ADDQ(I32(32), m)
	})
	VZEROUPPER()
	RET()
}

// floatOf gives the float of the signed 16-bit integer at an address, in all
// lanes.
func floatOf(m Mem) VecVirtual {
	v := YMM()
	VPBROADCASTW(m, v)
	VPSRAD(U8(16), v, v)
	VCVTDQ2PS(v, v)
	return v
}

func expand256(affine bool) {
	name := "expand256AVX2"
	if affine {
		name = "expandAffine256AVX2"
	}
	TEXT(name, NOSPLIT, "func(dst *float32, codes *byte, d, m *float32, scales *uint32, corr *int16, bias int32, units int)")
	if affine {
		Doc(name + " decodes units of 256 values with minima; bias is 0.")
	} else {
		Doc(name + " decodes units of 256 values.")
	}
	Pragma("noescape")
	dst, codes, d, scales, units := Pointer("dst"), Pointer("codes"), Pointer("d"), Pointer("scales"), Pointer("units")
	m, corr := Pointer("m"), Pointer("corr")
	var bias VecVirtual
	if !affine {
		bias = broadcastBias()
	}
	Loop("loop", units, func() {
		scale, low := YMM(), YMM()
		VBROADCASTSS(Mem{Base: d}, scale)
		VBROADCASTSS(Mem{Base: m}, low)
		j := GP64()
		MOVQ(U32(16), j)
		Loop("blocks", j, func() {
			s := floatOf(Mem{Base: scales})
			VMULPS(scale, s, s)
			var min func(v VecVirtual)
			if affine {
				c := floatOf(Mem{Base: corr})
				VMULPS(low, c, c)
				min = func(v VecVirtual) { VSUBPS(c, v, v) }
			}
			for at := 0; at < 16; at += 8 {
				expand8(dst, codes, at, bias, s, min)
			}
			ADDQ(I32(64), dst)
			ADDQ(I32(16), codes)
			ADDQ(I32(4), scales)
			ADDQ(I32(2), corr)
		})
		ADDQ(I32(32), d)
		ADDQ(I32(32), m)
	})
	VZEROUPPER()
	RET()
}

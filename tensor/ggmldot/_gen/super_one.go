package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// oneKind is a kernel that multiplies a row of a tile with a single column, whose values
// lie in a row. The 8 lanes are those of a vector.
type oneKind struct {
	name  string
	bias  bool // takes a bias off; codes are signed without it
	sums  bool // corrections come off before rounding
	mins  int  // sums that minima have of their own: 8 lanes', 4 lanes, 1; 0 without minima
	whole bool // no lanes: all of a unit is added up
}

var oneKinds = []oneKind{
	{name: "Plain", bias: true},
	{name: "Sums", sums: true},
	{name: "Mins8", mins: 8},
	{name: "Mins4", mins: 4},
	{name: "Mins1", mins: 1},
	{name: "Whole", mins: 1, whole: true},
}

func superOne(k oneKind) {
	signature := "func(acc *float32, codes *byte, d *float32, scales *uint32, "
	switch {
	case k.bias:
		signature += "bias uint32, "
	case k.sums:
		signature += "corr, sums *int16, "
	default:
		signature += "m *float32, corr, sums *int16, "
	}
	TEXT("one"+k.name+"AVX2", NOSPLIT, signature+"a *int8, da *float32, units int)")
	Doc("one" + k.name + "AVX2 adds units of a weight row to its sums with a single column, which lie together.")
	Pragma("noescape")
	to, codes, d, scales := Pointer("acc"), Pointer("codes"), Pointer("d"), Pointer("scales")
	a, da, units := Pointer("a"), Pointer("da"), Pointer("units")
	var m, corr, sums Register
	var bias VecVirtual
	if k.bias {
		bias = YMM()
		VMOVD(Load(Param("bias"), GP32()), bias.AsX())
		VPBROADCASTD(bias.AsX(), bias)
	} else {
		corr, sums = Pointer("corr"), Pointer("sums")
	}
	if k.mins > 0 {
		m = Pointer("m")
	}
	spread := YMM()
	VMOVDQU(Words("halves", 0, 0, 0, 0, 1, 1, 1, 1), spread)
	// Sums of the values, and of minima that have their own.
	var acc, least Register = YMM(), XMM()
	at, leastAt := Mem{Base: to}, Mem{Base: to, Disp: 32}
	if k.whole {
		acc, leastAt = XMM(), Mem{Base: to, Disp: 4}
		VMOVSS(at, acc)
	} else {
		VMOVUPS(at, acc)
	}
	switch k.mins {
	case 4:
		VMOVUPS(leastAt, least)
	case 1:
		VMOVSS(leastAt, least)
	}
	Loop("unit", units, func() {
		n := YMM()
		for g := range 8 {
			w, s := YMM(), YMM()
			VMOVDQU(Mem{Base: codes, Disp: 32 * g}, w)
			x := Mem{Base: a, Disp: 32 * g}
			if k.bias {
				y := YMM()
				VPSUBB(bias, w, w)
				VMOVDQU(x, y)
				VPSIGNB(w, y, y)
				VPABSB(w, w)
				VPMADDUBSW(y, w, w)
			} else {
				VPMADDUBSW(x, w, w)
			}
			VPBROADCASTQ(Mem{Base: scales, Disp: 8 * g}, s)
			VPERMD(s, spread, s)
			if g == 0 {
				VPMADDWD(s, w, n)
				continue
			}
			VPMADDWD(s, w, w)
			VPADDD(w, n, n)
		}
		p, q, c := XMM(), XMM(), YMM()
		VMOVSS(Mem{Base: d}, p)
		VMULSS(Mem{Base: da}, p, p)
		if !k.bias {
			VMOVDQU(Mem{Base: corr}, c)
			VPMADDWD(Mem{Base: sums}, c, c)
		}
		if k.sums {
			VPSUBD(c, n, n)
		}
		if k.mins > 0 {
			VMOVSS(Mem{Base: m}, q)
			VMULSS(Mem{Base: da}, q, q)
		}
		switch {
		case k.mins == 8:
			wide := YMM()
			VBROADCASTSS(q, wide)
			VCVTDQ2PS(c, c)
			VFNMADD231PS(c, wide, acc)
		case k.mins == 4:
			VPHADDD(c, c, c)
			VPERMQ(U8(0x08), c, c)
			VCVTDQ2PS(c.AsX(), c.AsX())
			VBROADCASTSS(q, q)
			VFNMADD231PS(c.AsX(), q, least)
		case k.mins == 1:
			one := addAll(c)
			if k.whole {
				VFMADD231SS(one, q, least)
			} else {
				VFNMADD231SS(one, q, least)
			}
		}
		if k.whole {
			VFMADD231SS(addAll(n), p, acc)
		} else {
			wide := YMM()
			VBROADCASTSS(p, wide)
			VCVTDQ2PS(n, n)
			VFMADD231PS(n, wide, acc)
		}
		ADDQ(I32(256), codes)
		ADDQ(I32(256), a)
		ADDQ(I32(64), scales)
		ADDQ(I32(32), d)
		ADDQ(I32(4), da)
		if !k.bias {
			ADDQ(I32(32), corr)
			ADDQ(I32(32), sums)
		}
		if k.mins > 0 {
			ADDQ(I32(32), m)
		}
	})
	switch k.mins {
	case 4:
		VMOVUPS(least, leastAt)
	case 1:
		VMOVSS(least, leastAt)
	}
	if k.whole {
		VMOVSS(acc, at)
	} else {
		VMOVUPS(acc, at)
	}
	VZEROUPPER()
	RET()
}

// addAll adds up 8 integers and gives them as float32.
func addAll(n VecVirtual) Register {
	h, t := XMM(), XMM()
	VEXTRACTI128(U8(1), n, h)
	VPADDD(n.AsX(), h, h)
	VPSHUFD(U8(0x4e), h, t)
	VPADDD(t, h, h)
	VPSHUFD(U8(0xb1), h, t)
	VPADDD(t, h, h)
	VCVTDQ2PS(h, h)
	return h
}

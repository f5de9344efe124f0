package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// A single kernel multiplies 8 weight rows with one activation row. Products of
// a unit are added over integer lanes, which is exact, so that lane i is row i
// when the scales come in.

// sumHalves adds the lanes of each half of 8 vectors of integers: lane i of low
// is the sum of lanes 0-3 of v[i], of high that of lanes 4-7. small says that
// these sums fit 16 bits; packing is cheaper than horizontal addition.
func sumHalves(v []VecVirtual, small bool) (low, high VecVirtual) {
	add := func(a, b VecVirtual) VecVirtual {
		if small {
			VPACKSSDW(b, a, a)
			VPMADDWD(pairOnes(), a, a)
		} else {
			VPHADDD(b, a, a)
		}
		return a
	}
	q0 := add(add(v[0], v[1]), add(v[2], v[3]))
	q1 := add(add(v[4], v[5]), add(v[6], v[7]))
	high = YMM()
	VPERM2I128(U8(0x31), q1, q0, high)
	VPERM2I128(U8(0x20), q1, q0, q0)
	return q0, high
}

// sumRows adds all lanes.
func sumRows(v []VecVirtual, small bool) VecVirtual {
	n, high := sumHalves(v, small)
	VPADDD(high, n, n)
	return n
}

// term gives float32(n) * (d*da) for a vector of rows.
func term(n VecVirtual, d Mem, da VecVirtual) VecVirtual {
	p := YMM()
	VMULPS(d, da, p)
	VCVTDQ2PS(n, n)
	VMULPS(p, n, n)
	return n
}

func single32(k kind32) {
	TEXT("single"+k.name+"AVX2", NOSPLIT, "func(acc *float32, codes *byte, d, m *float32, a *int8, da *float32, sums *int32, units int)")
	Doc("single" + k.name + "AVX2 is sumSingleScalar.")
	Pragma("noescape")
	codes, d, m, a, da, sums, units := Pointer("codes"), Pointer("d"), Pointer("m"), Pointer("a"), Pointer("da"), Pointer("sums"), Pointer("units")
	accAt := Pointer("acc")
	acc := YMM()
	VMOVUPS(Mem{Base: accAt}, acc)
	Loop("loop", units, func() {
		x := YMM()
		VMOVDQU(Mem{Base: a}, x)
		v := YMMs(8)
		for i := range v {
			VMOVDQU(Mem{Base: codes, Disp: tileWidth * i}, v[i])
			if k.signed {
				s := YMM()
				VPSIGNB(v[i], x, s)
				VPABSB(v[i], v[i])
				VPMADDUBSW(s, v[i], v[i])
			} else {
				VPMADDUBSW(x, v[i], v[i])
			}
			VPMADDWD(pairOnes(), v[i], v[i])
		}
		scale, sum := YMM(), YMM()
		VBROADCASTSS(Mem{Base: da}, scale)
		var n VecVirtual
		if k.halves {
			var low VecVirtual
			low, n = sumHalves(v, false)
			VADDPS(term(low, Mem{Base: d}, scale), acc, acc)
		} else {
			n = sumRows(v, !k.signed)
		}
		if !k.signed {
			VPBROADCASTD(Mem{Base: sums}, sum)
		}
		if !k.signed && !k.affine {
			VPSLLD(U8(4), sum, sum)
			VPSUBD(sum, n, n)
		}
		second := d
		if k.halves {
			second = m
		}
		VADDPS(term(n, Mem{Base: second}, scale), acc, acc)
		if k.affine {
			VADDPS(term(sum, Mem{Base: m}, scale), acc, acc)
		}
		ADDQ(I32(32), m)
		ADDQ(I32(32), codes)
		ADDQ(I32(32), a)
		ADDQ(I32(32), d)
		ADDQ(I32(4), da)
		ADDQ(I32(4), sums)
	})
	VMOVUPS(acc, Mem{Base: accAt})
	VZEROUPPER()
	RET()
}

func single256(k kind256) {
	TEXT("single"+k.name+"AVX2", NOSPLIT, "func(acc *float32, codes *byte, d, m *float32, scales *uint32, corr *int16, a *int8, da *float32, pairs *int16, units int)")
	Doc("single" + k.name + "AVX2 is sumSingleScalar.")
	Pragma("noescape")
	codes, d, m, a, da := Pointer("codes"), Pointer("d"), Pointer("m"), Pointer("a"), Pointer("da")
	scales, corr, pairs, units := Pointer("scales"), Pointer("corr"), Pointer("pairs"), Pointer("units")
	accAt := Pointer("acc")
	// A pair of scales goes one to each half.
	halves := Fetch(Words("scaleHalves", 0, 0, 0, 0, 1, 1, 1, 1))
	Loop("loop", units, func() {
		n := YMMs(8)
		for i := range n {
			VPXOR(n[i], n[i], n[i])
			if !k.signed && !k.affine {
				c := YMM()
				VMOVDQU(Mem{Base: corr, Disp: tileWidth / 8 * i}, c)
				VPMADDWD(Mem{Base: pairs}, c, c)
				VPSUBD(c, n[i], n[i])
			}
		}
		j := GP64()
		MOVQ(U32(8), j)
		Loop("blocks", j, func() {
			x := YMM()
			VMOVDQU(Mem{Base: a}, x)
			for i := range n {
				w, s := YMM(), YMM()
				VMOVDQU(Mem{Base: codes, Disp: tileWidth * i}, w)
				if k.signed {
					VPSIGNB(w, x, s)
					VPABSB(w, w)
					VPMADDUBSW(s, w, w)
				} else {
					VPMADDUBSW(x, w, w)
				}
				VPBROADCASTQ(Mem{Base: scales, Disp: tileWidth / 4 * i}, s)
				VPERMILPS(halves, s, s)
				VPMADDWD(s, w, w)
				VPADDD(w, n[i], n[i])
			}
			ADDQ(I32(32), codes)
			ADDQ(I32(32), a)
			ADDQ(I32(8), scales)
		})
		scale, acc := YMM(), YMM()
		VBROADCASTSS(Mem{Base: da}, scale)
		VMOVUPS(Mem{Base: accAt}, acc)
		VADDPS(term(sumRows(n, false), Mem{Base: d}, scale), acc, acc)
		if k.affine {
			c := YMMs(8)
			for i := range c {
				VMOVDQU(Mem{Base: corr, Disp: tileWidth / 8 * i}, c[i])
				VPMADDWD(Mem{Base: pairs}, c[i], c[i])
			}
			VSUBPS(term(sumRows(c, false), Mem{Base: m}, scale), acc, acc)
			ADDQ(I32(32), m)
		}
		VMOVUPS(acc, Mem{Base: accAt})
		if !k.signed {
			ADDQ(I32(32), corr)
			ADDQ(I32(32), pairs)
		}
		ADDQ(I32(32), d)
		ADDQ(I32(4), da)
	})
	VZEROUPPER()
	RET()
}

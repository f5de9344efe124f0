package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// panelKind is how a panel kernel reads codes, as laneKind says; biased codes are at
// most 31, so that those of a block of 16 fit 16 bits.
type panelKind struct {
	name           string
	biased, signed bool
	acc            int // vectors of sums of a row
}

var panelKinds = []panelKind{{name: "Biased", biased: true, acc: 1}, {name: "Signed", signed: true, acc: 1}, {name: "SignedOf9", signed: true, acc: 9}}

// superPanel adds up all of a superblock.
func superPanel(k panelKind) {
	signature := "func(acc *float32, codes *byte, d *float32, scales *uint32, "
	switch {
	case k.biased:
		signature += "corr, sums *int16, "
	case k.signed:
		signature += "totals *int32, "
	}
	TEXT("panel"+k.name+"AVX2", NOSPLIT, signature+"a *int8, da *float32, units int)")
	Doc("panel" + k.name + "AVX2 adds units to the sums of 4 weight rows with 8 columns.")
	Pragma("noescape")
	to, codes, d, scales := Pointer("acc"), Pointer("codes"), Pointer("d"), Pointer("scales")
	var corr, sums, totals Register
	switch {
	case k.biased:
		corr, sums = Pointer("corr"), Pointer("sums")
	case k.signed:
		totals = Pointer("totals")
	}
	a, da, units := Pointer("a"), Pointer("da"), Pointer("units")
	Loop("unit", units, func() {
		n := YMMs(minRows)
		for i := range n {
			if k.signed {
				VPBROADCASTD(Mem{Base: totals, Disp: 4 * i}, n[i])
				continue
			}
			VPXOR(n[i], n[i], n[i])
		}
		if k.biased {
			superCorrect(n, corr, sums)
		}
		j := GP64()
		MOVQ(U32(16), j)
		Loop("block", j, func() {
			s := YMMs(minRows)
			for i := range s {
				VPBROADCASTD(Mem{Base: scales, Disp: scaleRow * i}, s[i])
			}
			sum16 := YMMs(minRows)
			for g := range 4 {
				x := YMM()
				VMOVDQU(Mem{Base: a, Disp: 32 * g}, x)
				if k.signed {
					VPXOR(Eights("signBits", 0x80808080), x, x)
				}
				for i := range n {
					w := YMM()
					VPBROADCASTD(Mem{Base: codes, Disp: tileWidth*i + 4*g}, w)
					switch {
					case k.biased && g == 0:
						VPMADDUBSW(x, w, sum16[i])
						continue
					case k.biased:
						VPMADDUBSW(x, w, w)
						VPADDW(w, sum16[i], sum16[i])
						continue
					}
					VPMADDUBSW(w, x, w)
					VPMADDWD(s[i], w, w)
					VPADDD(w, n[i], n[i])
				}
			}
			if k.biased {
				for i := range n {
					VPMADDWD(s[i], sum16[i], sum16[i])
					VPADDD(sum16[i], n[i], n[i])
				}
			}
			ADDQ(I32(16), codes)
			ADDQ(I32(128), a)
			ADDQ(I32(4), scales)
		})
		superTake(n, to, d, da, 32*k.acc)
		ADDQ(I32(32), d)
		ADDQ(I32(32), da)
		switch {
		case k.biased:
			ADDQ(I32(32), corr)
			ADDQ(I32(256), sums)
		case k.signed:
			ADDQ(I32(32), totals)
		}
	})
	VZEROUPPER()
	RET()
}

// superCorrect takes corrections off n.
func superCorrect(n []VecVirtual, corr, sums Register) {
	for j := range 8 {
		x := YMM()
		VMOVDQU(Mem{Base: sums, Disp: 32 * j}, x)
		for i := range n {
			c := YMM()
			VPBROADCASTD(Mem{Base: corr, Disp: corrRow*i + 4*j}, c)
			VPMADDWD(x, c, c)
			VPSUBD(c, n[i], n[i])
		}
	}
}

// superTake adds n to the sums of rows, which lie apart bytes apart.
func superTake(n []VecVirtual, to, d, da Register, apart int) {
	for i := range n {
		p, sum := YMM(), YMM()
		VBROADCASTSS(Mem{Base: d, Disp: 4 * i}, p)
		VMULPS(Mem{Base: da}, p, p)
		VMOVUPS(Mem{Base: to, Disp: apart * i}, sum)
		VCVTDQ2PS(n[i], n[i])
		VFMADD231PS(n[i], p, sum)
		VMOVUPS(sum, Mem{Base: to, Disp: apart * i})
	}
}

// superNibbles is a panel kernel for codes up to 255 with a bias, as their upper and lower 4
// bits: of either, the products of a block of 32 fit 16 bits.
func superNibbles() {
	TEXT("panelNibblesAVX2", NOSPLIT, "func(acc *float32, high, low *byte, d *float32, scales *uint32, corr, sums *int16, a *int8, da *float32, units int)")
	Doc("panelNibblesAVX2 adds units to the sums of 4 weight rows with 8 columns; blocks of 32 have one scale.")
	Pragma("noescape")
	to, high, low, d, scales := Pointer("acc"), Pointer("high"), Pointer("low"), Pointer("d"), Pointer("scales")
	corr, sums, a, da, units := Pointer("corr"), Pointer("sums"), Pointer("a"), Pointer("da"), Pointer("units")
	Loop("unit", units, func() {
		n := YMMs(minRows)
		zero(n...)
		superCorrect(n, corr, sums)
		j := GP64()
		MOVQ(U32(8), j)
		Loop("block", j, func() {
			halves := [2][]VecVirtual{YMMs(minRows), YMMs(minRows)}
			for g := range 8 {
				x := YMM()
				VMOVDQU(Mem{Base: a, Disp: 32 * g}, x)
				for h, codes := range []Register{high, low} {
					for i, sum16 := range halves[h] {
						at := Mem{Base: codes, Disp: tileWidth*i + 4*g}
						if g == 0 {
							VPBROADCASTD(at, sum16)
							VPMADDUBSW(x, sum16, sum16)
							continue
						}
						w := YMM()
						VPBROADCASTD(at, w)
						VPMADDUBSW(x, w, w)
						VPADDW(w, sum16, sum16)
					}
				}
			}
			for i := range n {
				s := YMM()
				VPBROADCASTD(Mem{Base: scales, Disp: scaleRow * i}, s)
				VPMADDWD(s, halves[0][i], halves[0][i])
				VPSLLD(U8(4), halves[0][i], halves[0][i])
				VPADDD(halves[0][i], n[i], n[i])
				VPMADDWD(s, halves[1][i], halves[1][i])
				VPADDD(halves[1][i], n[i], n[i])
			}
			ADDQ(I32(32), high)
			ADDQ(I32(32), low)
			ADDQ(I32(256), a)
			ADDQ(I32(8), scales)
		})
		superTake(n, to, d, da, 32)
		ADDQ(I32(32), d)
		ADDQ(I32(32), da)
		ADDQ(I32(32), corr)
		ADDQ(I32(256), sums)
	})
	VZEROUPPER()
	RET()
}

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// blocks multiplies 8 weight rows with groups of 8 columns, whose codes lie side by
// side, 4 of each column to a vector. 4 codes of a weight row are copied to all lanes,
// so that lane t of every vector belongs to column t and nothing is added across lanes.
//
// Codes up to 31 with a bias of 16 let 4 vectors of products fit 16 bits. Signed ones are
// multiplied as magnitudes, the activations with their signs.
func blocks(signed bool) {
	name, extra := "blocksBiased", "sums *int32, "
	if signed {
		name, extra = "blocksSigned", ""
	}
	TEXT(name+"AVX2", NOSPLIT, "func(dst *float32, stride int, codes *int8, d *float32, q *int8, da *float32, "+extra+"blocks, groups int)")
	Doc(name + "AVX2 is mulBlocks for 8 rows and groups of 8 columns. stride counts numbers.")
	Pragma("noescape")
	dst, stride := Pointer("dst"), Pointer("stride")
	SHLQ(U8(2), stride)
	q, da, groups := Pointer("q"), Pointer("da"), Pointer("groups")
	var sums Register
	if !signed {
		sums = Pointer("sums")
	}
	Loop("groups", groups, func() {
		var aq, ada, as Register
		for half, label := range []string{"low", "high"} {
			codes, d, count := Pointer("codes"), Pointer("d"), Pointer("blocks")
			aq, ada = GP64(), GP64()
			MOVQ(q, aq)
			MOVQ(da, ada)
			if !signed {
				as = GP64()
				MOVQ(sums, as)
			}
			at, atD := 4*rowBytes*half, 16*half
			acc := YMMs(4)
			zero(acc...)
			Loop(label, count, func() {
				n := YMMs(4)
				if signed {
					signedSums(n, codes, aq, at)
				} else {
					biasedSums(n, codes, aq, halfBytes+at)
					s := YMM()
					VMOVDQU(Mem{Base: as}, s)
					VPSLLD(U8(4), s, s)
					for i := range n {
						VPSUBD(s, n[i], n[i])
					}
					ADDQ(I32(32), as)
				}
				scale := YMM()
				VMOVUPS(Mem{Base: ada}, scale)
				for i := range n {
					p := YMM()
					VBROADCASTSS(Mem{Base: d, Disp: atD + 4*i}, p)
					VMULPS(scale, p, p)
					VCVTDQ2PS(n[i], n[i])
					VFMADD231PS(p, n[i], acc[i])
				}
				ADDQ(I32(stepBytes), codes)
				ADDQ(I32(stepD), d)
				ADDQ(I32(256), aq)
				ADDQ(I32(32), ada)
			})
			storeTurned(acc, dst, stride, 16*half)
		}
		MOVQ(aq, q)
		MOVQ(ada, da)
		if !signed {
			MOVQ(as, sums)
		}
		LEAQ(Mem{Base: dst, Index: stride, Scale: 8}, dst)
	})
	VZEROUPPER()
	RET()
}

// biasedSums gives the sums of products of a block for 4 rows.
func biasedSums(n []VecVirtual, codes, a Register, at int) {
	for half := range 2 {
		sum16 := n
		if half == 1 {
			sum16 = YMMs(4)
		}
		for g := range 4 {
			x := YMM()
			VMOVDQU(Mem{Base: a, Disp: 128*half + 32*g}, x)
			for i := range sum16 {
				w := YMM()
				VPBROADCASTD(Mem{Base: codes, Disp: at + rowBytes*i + 16*half + 4*g}, w)
				if g == 0 {
					VPMADDUBSW(x, w, sum16[i])
					continue
				}
				VPMADDUBSW(x, w, w)
				VPADDW(w, sum16[i], sum16[i])
			}
		}
		for i := range n {
			VPMADDWD(pairOnes(), sum16[i], sum16[i])
			if half == 1 {
				VPADDD(sum16[i], n[i], n[i])
			}
		}
	}
}

// signedSums is biasedSums for codes with signs.
func signedSums(n []VecVirtual, codes, a Register, at int) {
	for g := range 8 {
		x := YMM()
		VMOVDQU(Mem{Base: a, Disp: 32 * g}, x)
		for i := range n {
			w, m := YMM(), YMM()
			VPBROADCASTD(Mem{Base: codes, Disp: at + rowBytes*i + 4*g}, w)
			VPBROADCASTD(Mem{Base: codes, Disp: halfBytes + at + rowBytes*i + 4*g}, m)
			VPSIGNB(w, x, w)
			VPMADDUBSW(w, m, w)
			if g == 0 {
				VPMADDWD(pairOnes(), w, n[i])
				continue
			}
			VPMADDWD(pairOnes(), w, w)
			VPADDD(w, n[i], n[i])
		}
	}
}

// storeTurned writes 4 rows of 8 columns, the rows of a column together.
func storeTurned(acc []VecVirtual, dst, stride Register, at int) {
	low, high, low2, high2 := YMM(), YMM(), YMM(), YMM()
	VUNPCKLPS(acc[1], acc[0], low)
	VUNPCKHPS(acc[1], acc[0], high)
	VUNPCKLPS(acc[3], acc[2], low2)
	VUNPCKHPS(acc[3], acc[2], high2)
	to, four := GP64(), GP64()
	MOVQ(dst, to)
	LEAQ(Mem{Base: dst, Index: stride, Scale: 4}, four)
	for c, v := range [][2]VecVirtual{{low, low2}, {low, low2}, {high, high2}, {high, high2}} {
		out := YMM()
		VSHUFPS(U8([]uint8{0x44, 0xee}[c%2]), v[1], v[0], out)
		number(out, YMM())
		VMOVUPS(out.AsX(), Mem{Base: to, Disp: at})
		VEXTRACTF128(U8(1), out, Mem{Base: four, Disp: at})
		ADDQ(stride, to)
		ADDQ(stride, four)
	}
}

// blocksOne multiplies 8 weight rows, one a lane, with one column.
func blocksOne() {
	TEXT("blocksOneAVX2", NOSPLIT, "func(dst *float32, codes *int8, d *float32, q *int8, da *float32, blocks int)")
	Doc("blocksOneAVX2 is mulBlocksScalar for 8 rows and a single column.")
	Pragma("noescape")
	dst, codes, d, q, da, count := Pointer("dst"), Pointer("codes"), Pointer("d"), Pointer("q"), Pointer("da"), Pointer("blocks")
	acc, ones := YMM(), Fetch(pairOnes())
	zero(acc)
	Loop("loop", count, func() {
		a := YMM()
		VMOVDQU(Mem{Base: q}, a)
		n := YMMs(8)
		for i := range n {
			w := YMM()
			VMOVDQU(Mem{Base: codes, Disp: rowBytes * i}, w)
			VPSIGNB(w, a, n[i])
			VPABSB(w, w)
			VPMADDUBSW(n[i], w, n[i])
			VPMADDWD(ones, n[i], n[i])
			// Neighbours as soon as there are two.
			for step := 1; i&step != 0 && step < 4; step *= 2 {
				VPHADDD(n[i], n[i-step], n[i-step])
				n[i] = n[i-step]
			}
		}
		low, high := YMM(), YMM()
		VPERM2I128(U8(0x20), n[7], n[3], low)
		VPERM2I128(U8(0x31), n[7], n[3], high)
		VPADDD(high, low, low)
		VCVTDQ2PS(low, low)
		scale := YMM()
		VBROADCASTSS(Mem{Base: da}, scale)
		VMULPS(Mem{Base: d}, scale, scale)
		VFMADD231PS(scale, low, acc)
		ADDQ(I32(rowBytes), q)
		ADDQ(I32(4), da)
		ADDQ(I32(stepBytes), codes)
		ADDQ(I32(stepD), d)
	})
	number(acc, YMM())
	VMOVUPS(acc, Mem{Base: dst})
	VZEROUPPER()
	RET()
}

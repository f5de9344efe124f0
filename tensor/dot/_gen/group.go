package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// A group kernel multiplies 4 weight rows with 8 activation rows, whose codes
// lie side by side, 4 of each row to a vector. 4 codes of a weight row are
// copied to all lanes, so that lane t of every vector belongs to activation row
// t and nothing is added across lanes.

const groupRows = 4

type kind32 struct {
	name   string
	signed bool
	affine bool
	halves bool // a scale for each 16 values
}

var kinds32 = []kind32{
	{name: "Biased32"}, {name: "Affine32", affine: true}, {name: "Signed32", signed: true}, {name: "Halves32", signed: true, halves: true},
}

type kind256 struct {
	name   string
	signed bool
	affine bool
	wide   bool // codes to 63
}

var kinds256 = []kind256{{name: "Biased256"}, {name: "Wide256", wide: true}, {name: "Affine256", affine: true}, {name: "Signed256", signed: true}}

// products adds to sum16 the products of 4 codes of each row with vector a. A
// code is at most 31, so that 4 vectors of products fit 16 bits, or 63 for 2.
func products(sum16 []VecVirtual, codes Register, at int, a VecVirtual, first bool) {
	for i := range sum16 {
		w := YMM()
		VPBROADCASTD(Mem{Base: codes, Disp: tileWidth*i + at}, w)
		if first {
			VPMADDUBSW(a, w, sum16[i])
			continue
		}
		VPMADDUBSW(a, w, w)
		VPADDW(w, sum16[i], sum16[i])
	}
}

// signedProducts gives the products of 4 codes of row i with vector a, two
// added: |code| * (a with the code's sign).
func signedProducts(codes Register, i, at int, a VecVirtual) VecVirtual {
	w, s := YMM(), YMM()
	VPBROADCASTD(Mem{Base: codes, Disp: tileWidth*i + at}, w)
	VPSIGNB(w, a, s)
	VPABSB(w, w)
	VPMADDUBSW(s, w, w)
	return w
}

// signedSums gives the sums of products of codes from vector first to last.
func signedSums(n []VecVirtual, codes, a Register, first, last int) {
	for g := first; g < last; g++ {
		x := YMM()
		VMOVDQU(Mem{Base: a, Disp: 32 * g}, x)
		for i := range n {
			w := signedProducts(codes, i, 4*g, x)
			if g == first {
				VPMADDWD(pairOnes(), w, n[i])
				continue
			}
			VPMADDWD(pairOnes(), w, w)
			VPADDD(w, n[i], n[i])
		}
	}
}

// addScaled adds float32(n) * (d*da) to acc.
func addScaled(acc, n, da VecVirtual, d Mem) {
	p := YMM()
	VBROADCASTSS(d, p)
	VMULPS(da, p, p)
	VCVTDQ2PS(n, n)
	VMULPS(p, n, n)
	VADDPS(n, acc, acc)
}

func group32(k kind32) {
	TEXT("group"+k.name+"AVX2", NOSPLIT, "func(acc *float32, codes *byte, d, m *float32, a *int8, da *float32, sums *int32, units int)")
	Doc("group" + k.name + "AVX2 is sumGroupScalar for 4 weight rows.")
	Pragma("noescape")
	codes, d, m, a, da, sums, units := Pointer("codes"), Pointer("d"), Pointer("m"), Pointer("a"), Pointer("da"), Pointer("sums"), Pointer("units")
	first, accAt := d, Pointer("acc")
	acc := YMMs(groupRows)
	for i := range acc {
		VMOVUPS(Mem{Base: accAt, Disp: 32 * i}, acc[i])
	}
	Loop("loop", units, func() {
		n := YMMs(groupRows)
		switch {
		case k.halves:
			signedSums(n, codes, a, 0, 4)
			scale := YMM()
			VMOVUPS(Mem{Base: da}, scale)
			for i := range n {
				addScaled(acc[i], n[i], scale, Mem{Base: d, Disp: 4 * i})
			}
			n = YMMs(groupRows)
			signedSums(n, codes, a, 4, 8)
			d = m
		case k.signed:
			signedSums(n, codes, a, 0, 8)
		default:
			for half := range 2 {
				sum16 := n
				if half == 1 {
					sum16 = YMMs(groupRows)
				}
				for g := range 4 {
					x := YMM()
					VMOVDQU(Mem{Base: a, Disp: 128*half + 32*g}, x)
					products(sum16, codes, 16*half+4*g, x, g == 0)
				}
				for i := range n {
					VPMADDWD(pairOnes(), sum16[i], sum16[i])
					if half == 1 {
						VPADDD(sum16[i], n[i], n[i])
					}
				}
			}
		}
		scale, sum := YMM(), YMM()
		VMOVUPS(Mem{Base: da}, scale)
		if !k.signed && !k.affine {
			VMOVDQU(Mem{Base: sums}, sum)
			VPSLLD(U8(4), sum, sum)
			for i := range n {
				VPSUBD(sum, n[i], n[i])
			}
		}
		for i := range n {
			addScaled(acc[i], n[i], scale, Mem{Base: d, Disp: 4 * i})
		}
		if k.affine {
			VCVTDQ2PS(Mem{Base: sums}, sum)
			for i := range n {
				p := YMM()
				VBROADCASTSS(Mem{Base: m, Disp: 4 * i}, p)
				VMULPS(scale, p, p)
				VMULPS(p, sum, p)
				VADDPS(p, acc[i], acc[i])
			}
		}
		ADDQ(I32(32), codes)
		ADDQ(I32(256), a)
		ADDQ(I32(32), first)
		ADDQ(I32(32), m)
		ADDQ(I32(32), da)
		ADDQ(I32(32), sums)
	})
	for i := range acc {
		VMOVUPS(acc[i], Mem{Base: accAt, Disp: 32 * i})
	}
	VZEROUPPER()
	RET()
}

func group256(k kind256) {
	TEXT("group"+k.name+"AVX2", NOSPLIT, "func(acc *float32, codes *byte, d, m *float32, scales *uint32, corr *int16, a *int8, da *float32, pairs *int16, units int)")
	Doc("group" + k.name + "AVX2 is sumGroupScalar for 4 weight rows.")
	Pragma("noescape")
	codes, d, m, a, da := Pointer("codes"), Pointer("d"), Pointer("m"), Pointer("a"), Pointer("da")
	scales, corr, pairs, units := Pointer("scales"), Pointer("corr"), Pointer("pairs"), Pointer("units")
	accAt := Pointer("acc")
	acc := YMMs(groupRows)
	for i := range acc {
		VMOVUPS(Mem{Base: accAt, Disp: 32 * i}, acc[i])
	}
	Loop("loop", units, func() {
		n := YMMs(groupRows)
		for i := range n {
			VPXOR(n[i], n[i], n[i])
		}
		if !k.signed && !k.affine {
			corrections(n, corr, pairs, VPSUBD)
		}
		j := GP64()
		MOVQ(U32(16), j)
		Loop("blocks", j, func() {
			switch {
			case k.signed:
				s := YMMs(groupRows)
				for i := range s {
					VPBROADCASTD(Mem{Base: scales, Disp: tileWidth / 4 * i}, s[i])
				}
				for g := range 4 {
					x := YMM()
					VMOVDQU(Mem{Base: a, Disp: 32 * g}, x)
					for i := range n {
						w := signedProducts(codes, i, 4*g, x)
						VPMADDWD(s[i], w, w)
						VPADDD(w, n[i], n[i])
					}
				}
			default:
				step := 4
				if k.wide {
					step = 2
				}
				for first := 0; first < 4; first += step {
					sum16 := YMMs(groupRows)
					for g := first; g < first+step; g++ {
						x := YMM()
						VMOVDQU(Mem{Base: a, Disp: 32 * g}, x)
						products(sum16, codes, 4*g, x, g == first)
					}
					for i := range n {
						s := YMM()
						VPBROADCASTD(Mem{Base: scales, Disp: tileWidth / 4 * i}, s)
						VPMADDWD(s, sum16[i], sum16[i])
						VPADDD(sum16[i], n[i], n[i])
					}
				}
			}
			ADDQ(I32(16), codes)
			ADDQ(I32(128), a)
			ADDQ(I32(4), scales)
		})
		scale := YMM()
		VMOVUPS(Mem{Base: da}, scale)
		for i := range n {
			addScaled(acc[i], n[i], scale, Mem{Base: d, Disp: 4 * i})
		}
		if k.affine {
			sum := YMMs(groupRows)
			for i := range sum {
				VPXOR(sum[i], sum[i], sum[i])
			}
			corrections(sum, corr, pairs, VPADDD)
			for i := range sum {
				p := YMM()
				VBROADCASTSS(Mem{Base: m, Disp: 4 * i}, p)
				VMULPS(scale, p, p)
				VCVTDQ2PS(sum[i], sum[i])
				VMULPS(p, sum[i], sum[i])
				VSUBPS(sum[i], acc[i], acc[i])
			}
			ADDQ(I32(32), m)
		}
		if !k.signed {
			ADDQ(I32(32), corr)
			ADDQ(I32(256), pairs)
		}
		ADDQ(I32(32), d)
		ADDQ(I32(32), da)
	})
	for i := range acc {
		VMOVUPS(acc[i], Mem{Base: accAt, Disp: 32 * i})
	}
	VZEROUPPER()
	RET()
}

// corrections adds to n, or subtracts, the sum of corr * sums of activations.
func corrections(n []VecVirtual, corr, pairs Register, op func(...Op)) {
	for j := range 8 {
		x := YMM()
		VMOVDQU(Mem{Base: pairs, Disp: 32 * j}, x)
		for i := range n {
			c := YMM()
			VPBROADCASTD(Mem{Base: corr, Disp: tileWidth/8*i + 4*j}, c)
			VPMADDWD(x, c, c)
			op(c, n[i], n[i])
		}
	}
}

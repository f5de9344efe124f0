package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// low are the kernels of types that scale parts of their products apart. Rows and
// columns lie as for the kernels of blocks of 32.
func low() {
	for _, columns := range []int{2, 1} {
		lowLanes("NVFP4", columns, 1, (*lowKernel).halves)
		lowLanes("Q1_0", columns, 4, (*lowKernel).fours)
	}
	lowBlocks()
}

type lowKernel struct {
	columns       int
	q, da, scales Register // of the first column; bytes of a column's scales, an eighth of those of its codes
	codes, d      Register
	ones          VecVirtual
	acc           []VecVirtual // 4 rows of the first column, of the second
}

// lowLanes multiplies 8 weight rows, 4 at a time, with pairs of columns or with one
// column, with lanes as in lanes(); step blocks at once.
func lowLanes(name string, columns, step int, blocks func(k *lowKernel)) {
	doc := "pairs of columns"
	if columns == 1 {
		name, doc = name+"One", "single columns"
	}
	TEXT("lanes"+name+"AVX2", NOSPLIT, "func(dst *float32, stride int, codes *int8, d *float32, q *int8, da *float32, blocks, times int)")
	Doc("lanes" + name + "AVX2 multiplies 8 rows with " + doc + ". stride counts numbers.")
	Pragma("noescape")
	k := &lowKernel{columns: columns}
	if step > 1 {
		k.ones = Fetch(oneBytes())
	}
	dst, stride, q, da, times := Pointer("dst"), Pointer("stride"), Pointer("q"), Pointer("da"), Pointer("times")
	SHLQ(U8(2), stride)
	k.scales = Pointer("blocks")
	SHLQ(U8(2), k.scales)
	Loop("times", times, func() {
		for half, label := range []string{"low", "high"} {
			k.codes, k.d, k.q, k.da = Pointer("codes"), Pointer("d"), GP64(), GP64()
			count := Pointer("blocks")
			if step > 1 {
				SHRQ(U8(2), count)
			}
			MOVQ(q, k.q)
			MOVQ(da, k.da)
			if half == 1 {
				ADDQ(I32(4*rowBytes), k.codes)
				ADDQ(I32(16), k.d)
			}
			k.acc = YMMs(4 * columns)
			zero(k.acc...)
			Loop(label, count, func() {
				blocks(k)
				ADDQ(I32(int32(stepBytes*step)), k.codes)
				ADDQ(I32(int32(stepD*step)), k.d)
				ADDQ(I32(int32(rowBytes*step)), k.q)
				ADDQ(I32(int32(4*step)), k.da)
			})
			for c := range columns {
				sum := addLanes(k.acc[4*c : 4*c+4])
				number(sum, XMM())
				to := Mem{Base: dst, Disp: 16 * half}
				if c == 1 {
					to.Index, to.Scale = stride, 1
				}
				VMOVUPS(sum, to)
			}
		}
		for range columns {
			LEAQ(Mem{Base: q, Index: k.scales, Scale: 8}, q)
			ADDQ(k.scales, da)
			ADDQ(stride, dst)
		}
	})
	VZEROUPPER()
	RET()
}

// column is what lies at an offset from the place of the first or second column.
func (k *lowKernel) column(base Register, c int, scale uint8, disp int) Mem {
	m := Mem{Base: base, Disp: disp}
	if c == 1 {
		m.Index, m.Scale = k.scales, scale
	}
	return m
}

// halves adds a block, whose lanes 4 to 7 have another scale.
func (k *lowKernel) halves() {
	d, a, p := YMM(), YMMs(k.columns), YMMs(k.columns)
	VBROADCASTF128(Mem{Base: k.d}, d)
	VINSERTF128(U8(1), Mem{Base: k.d, Disp: atM}, d, d)
	for c := range a {
		VBROADCASTSS(k.column(k.da, c, 1, 0), p[c])
		VMULPS(d, p[c], p[c])
		VMOVDQU(k.column(k.q, c, 8, 0), a[c])
	}
	for i := range 4 {
		m := YMM()
		VPABSB(Mem{Base: k.codes, Disp: rowBytes * i}, m)
		for c := range a {
			n, scale := YMM(), YMM()
			VPSIGNB(Mem{Base: k.codes, Disp: rowBytes * i}, a[c], n)
			VPMADDUBSW(n, m, n)
			VPMADDWD(pairOnes(), n, n)
			VCVTDQ2PS(n, n)
			VPERMILPS(U8([]uint8{0x00, 0x55, 0xaa, 0xff}[i]), p[c], scale)
			VFMADD231PS(scale, n, k.acc[4*c+i])
		}
	}
}

// fours adds 4 blocks with one scale, whose codes are 1 and -1.
func (k *lowKernel) fours() {
	for i := range 4 {
		d := YMM()
		VBROADCASTSS(Mem{Base: k.d, Disp: 4 * i}, d)
		for c := range k.columns {
			part := YMM()
			for b := range 4 {
				n, da := YMM(), YMM()
				VMOVDQU(k.column(k.q, c, 8, rowBytes*b), n)
				VPSIGNB(Mem{Base: k.codes, Disp: stepBytes*b + rowBytes*i}, n, n)
				VPMADDUBSW(n, k.ones, n)
				VPMADDWD(pairOnes(), n, n)
				VCVTDQ2PS(n, n)
				VBROADCASTSS(k.column(k.da, c, 1, 4*b), da)
				if b == 0 {
					VMULPS(n, da, part)
					continue
				}
				VFMADD231PS(n, da, part)
			}
			VFMADD231PS(d, part, k.acc[4*c+i])
		}
	}
}

// lowBlocks multiplies 8 weight rows of Q2_0 with groups of 8 columns, like blocks().
func lowBlocks() {
	TEXT("blocksQ2_0AVX2", NOSPLIT, "func(dst *float32, stride int, codes *int8, d *float32, q *int8, da *float32, sums *int32, pairs, groups int)")
	Doc("blocksQ2_0AVX2 multiplies 8 rows of pairs of blocks with groups of 8 columns. stride counts numbers.")
	Pragma("noescape")
	dst, stride := Pointer("dst"), Pointer("stride")
	SHLQ(U8(2), stride)
	q, da, sums, groups := Pointer("q"), Pointer("da"), Pointer("sums"), Pointer("groups")
	// Products of a block need all registers but a few.
	kept := AllocLocal(4 * 32)
	Loop("groups", groups, func() {
		var aq, ada, as Register
		for half, label := range []string{"low", "high"} {
			codes, d, count := Pointer("codes"), Pointer("d"), Pointer("pairs")
			aq, ada, as = GP64(), GP64(), GP64()
			MOVQ(q, aq)
			MOVQ(da, ada)
			MOVQ(sums, as)
			acc := YMMs(4)
			zero(acc[0])
			for i := range acc {
				VMOVUPS(acc[0], kept.Offset(32*i))
			}
			Loop(label, count, func() {
				part := YMMs(4)
				zero(part...)
				for range 2 {
					n := YMMs(4)
					biasedSums(n, codes, aq, halfBytes+4*rowBytes*half)
					s := YMM()
					VMOVDQU(Mem{Base: as}, s)
					VPSLLD(U8(4), s, s)
					for i := range n {
						VPSUBD(s, n[i], n[i])
						VCVTDQ2PS(n[i], n[i])
						VFMADD231PS(Mem{Base: ada}, n[i], part[i])
					}
					ADDQ(I32(stepBytes), codes)
					ADDQ(I32(256), aq)
					ADDQ(I32(32), ada)
					ADDQ(I32(32), as)
				}
				for i := range part {
					p := YMM()
					VBROADCASTSS(Mem{Base: d, Disp: 16*half + 4*i}, p)
					VFMADD213PS(kept.Offset(32*i), part[i], p)
					VMOVUPS(p, kept.Offset(32*i))
				}
				ADDQ(I32(2*stepD), d)
			})
			for i := range acc {
				VMOVUPS(kept.Offset(32*i), acc[i])
			}
			storeTurned(acc, dst, stride, 16*half)
		}
		MOVQ(aq, q)
		MOVQ(ada, da)
		MOVQ(as, sums)
		LEAQ(Mem{Base: dst, Index: stride, Scale: 8}, dst)
	})
	VZEROUPPER()
	RET()
}

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Unpacked rows lie block by block: 32 codes of row 0, of row 1, ... row 7, then their
// magnitudes, or the codes with their bias; scales d of the rows, then m.
const (
	rowStep   = 8
	rowBytes  = 32
	halfBytes = rowStep * rowBytes
	stepBytes = 2 * halfBytes
	stepD     = 2 * rowStep * 4
	atM       = rowStep * 4
)

// spread brings rows of unpacked codes, tileWidth apart, into the order that kernels take.
func spread(mags bool) {
	const tileWidth = 2048
	name := "spreadBiased"
	if mags {
		name = "spreadSigned"
	}
	TEXT(name+"AVX2", NOSPLIT, "func(codes *int8, src *byte, bias uint32, blocks int)")
	Doc(name + "AVX2 is spreadScalar for blocks of 8 rows.")
	Pragma("noescape")
	codes, src, blocks := pointer("codes"), pointer("src"), pointer("blocks")
	b := GP32()
	Load(Param("bias"), b)
	bias := YMM()
	VMOVD(b, bias.AsX())
	VPBROADCASTB(bias.AsX(), bias)
	loop("loop", blocks, func() {
		for i := range rowStep {
			v, second := YMM(), YMM()
			VMOVDQU(Mem{Base: src, Disp: tileWidth * i}, second)
			VPSUBB(bias, second, v)
			if mags {
				VPABSB(v, second)
			}
			VMOVDQU(v, Mem{Base: codes, Disp: rowBytes * i})
			VMOVDQU(second, Mem{Base: codes, Disp: halfBytes + rowBytes*i})
		}
		ADDQ(I32(rowBytes), src)
		ADDQ(I32(stepBytes), codes)
	})
	VZEROUPPER()
	RET()
}

// lanes multiplies 8 weight rows with pairs of columns, 4 rows by 2 at a time: lane l of
// an accumulator has values 4l to 4l+3 of blocks.
func lanes(name string, mins, inTurn bool) {
	extra := ""
	if mins {
		extra = "s *float32, "
	}
	TEXT("lanes"+name+"AVX2", NOSPLIT, "func(dst *float32, stride int, codes *int8, d *float32, q *int8, da *float32, "+extra+"blocks, pairs int)")
	Doc("lanes" + name + "AVX2 is mulLanesScalar for 8 rows and pairs of columns. stride counts numbers.")
	Pragma("noescape")
	k := &laneKernel{mins: mins, inTurn: inTurn, products: AllocLocal(32)}
	if inTurn {
		k.kept = AllocLocal(8 * 32)
	}
	k.dst, k.stride = pointer("dst"), pointer("stride")
	SHLQ(U8(2), k.stride)
	k.q, k.da, k.scales = pointer("q"), pointer("da"), pointer("blocks")
	SHLQ(U8(2), k.scales) // bytes of a column's scales, an eighth of those of its codes
	if mins {
		k.s = pointer("s")
	}
	pairs := pointer("pairs")
	loop("pairs", pairs, func() {
		for half := range 2 {
			k.half(half)
		}
		for range 2 {
			LEAQ(Mem{Base: k.q, Index: k.scales, Scale: 8}, k.q)
		}
		LEAQ(Mem{Base: k.da, Index: k.scales, Scale: 2}, k.da)
		if mins {
			LEAQ(Mem{Base: k.s, Index: k.scales, Scale: 2}, k.s)
		}
		LEAQ(Mem{Base: k.dst, Index: k.stride, Scale: 2}, k.dst)
	})
	VZEROUPPER()
	RET()
}

type laneKernel struct {
	mins, inTurn                 bool
	products, kept               Mem
	dst, stride, q, da, s        Register
	scales                       Register // bytes of a column's scales
	codes, d, aq, ada, as, count Register
	acc                          []VecVirtual // rows of the first column, of the second
	sums                         []Register   // of minima, of a column
}

// half is rows 4*half to 4*half+3.
func (k *laneKernel) half(half int) {
	name := []string{"low", "high"}[half]
	k.start(half)
	k.acc = ymms(8)
	if k.mins {
		k.sums = []Register{XMM(), XMM()}
		for _, v := range k.sums {
			VXORPS(v, v, v)
		}
	}
	if !k.inTurn {
		zero(k.acc...)
		loop(name, k.count, func() { k.block(1) })
	} else {
		// Blocks 0, 2, 4 ..., whose lanes are kept, and then 1, 3, 5 ...
		for turn, which := range []string{"Even", "Odd"} {
			if turn == 1 {
				for i, a := range k.acc {
					VMOVUPS(a, k.kept.Offset(32*i))
				}
				k.start(half)
				k.advance(1)
			}
			zero(k.acc...)
			SHRQ(U8(1), k.count)
			JZ(LabelRef(name + which + "Done"))
			loop(name+which, k.count, func() { k.block(2) })
			Label(name + which + "Done")
		}
		for i, a := range k.acc {
			VADDPS(k.kept.Offset(32*i), a, a)
		}
	}
	for c := range 2 {
		sum := addLanes(k.acc[4*c : 4*c+4])
		if k.mins {
			VADDPS(k.sums[c], sum, sum)
		}
		number(sum, XMM())
		to := Mem{Base: k.dst, Disp: 16 * half}
		if c == 1 {
			to.Index, to.Scale = k.stride, 1
		}
		VMOVUPS(sum, to)
	}
}

// start goes to the first block.
func (k *laneKernel) start(half int) {
	k.codes, k.d, k.count = pointer("codes"), pointer("d"), pointer("blocks")
	k.aq, k.ada = GP64(), GP64()
	MOVQ(k.q, k.aq)
	MOVQ(k.da, k.ada)
	if k.mins {
		k.as = GP64()
		MOVQ(k.s, k.as)
	}
	if half == 1 {
		ADDQ(I32(4*rowBytes), k.codes)
		ADDQ(I32(16), k.d)
	}
}

func (k *laneKernel) advance(by int) {
	ADDQ(I32(stepBytes*by), k.codes)
	ADDQ(I32(stepD*by), k.d)
	ADDQ(I32(rowBytes*by), k.aq)
	ADDQ(I32(4*by), k.ada)
	if k.mins {
		ADDQ(I32(4*by), k.as)
	}
}

// block adds a block to the accumulators and goes by blocks on.
func (k *laneKernel) block(by int) {
	both := func(base Register, scale uint8) []Mem {
		return []Mem{{Base: base}, {Base: base, Index: k.scales, Scale: scale}}
	}
	q, da := both(k.aq, 8), both(k.ada, 1)
	a := ymms(2)
	for c := range a {
		p := XMM()
		VBROADCASTSS(da[c], p)
		VMULPS(Mem{Base: k.d}, p, p)
		VMOVUPS(p, k.products.Offset(16*c))
		VMOVDQU(q[c], a[c])
	}
	for i := range 4 {
		m := YMM()
		VMOVDQU(Mem{Base: k.codes, Disp: halfBytes + rowBytes*i}, m)
		for c := range a {
			n, d := YMM(), YMM()
			VPSIGNB(Mem{Base: k.codes, Disp: rowBytes * i}, a[c], n)
			VPMADDUBSW(n, m, n)
			VPMADDWD(pairOnes(), n, n)
			VCVTDQ2PS(n, n)
			VBROADCASTSS(k.products.Offset(16*c+4*i), d)
			VFMADD231PS(d, n, k.acc[4*c+i])
		}
	}
	if k.mins {
		for c, s := range both(k.as, 1) {
			v := XMM()
			VBROADCASTSS(s, v)
			VFMADD231PS(Mem{Base: k.d, Disp: atM}, v, k.sums[c])
		}
	}
	k.advance(by)
}

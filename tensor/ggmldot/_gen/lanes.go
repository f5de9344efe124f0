package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
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

// spread brings rows of unpacked codes, tileWidth apart, and scales into the order that
// kernels take, with a second form of the codes or without.
func spread(second string) {
	const tileWidth = 2048
	TEXT("spread"+second+"AVX2", NOSPLIT, "func(codes *int8, scales *float32, src *byte, d, m *float32, bias uint32, blocks int)")
	Doc("spread" + second + "AVX2 is spreadScalar.")
	Pragma("noescape")
	codes, scales, src, d, m, blocks := Pointer("codes"), Pointer("scales"), Pointer("src"), Pointer("d"), Pointer("m"), Pointer("blocks")
	b := GP32()
	Load(Param("bias"), b)
	bias := YMM()
	VMOVD(b, bias.AsX())
	VPBROADCASTB(bias.AsX(), bias)
	Loop("loop", blocks, func() {
		for i := range rowStep {
			raw, v := YMM(), YMM()
			VMOVDQU(Mem{Base: src, Disp: tileWidth * i}, raw)
			VPSUBB(bias, raw, v)
			VMOVDQU(v, Mem{Base: codes, Disp: rowBytes * i})
			to := Mem{Base: codes, Disp: halfBytes + rowBytes*i}
			switch second {
			case "Mags":
				VPABSB(v, v)
				VMOVDQU(v, to)
			case "Biased":
				VMOVDQU(raw, to)
			}
		}
		for i, from := range []Register{d, m} {
			v := YMM()
			VMOVUPS(Mem{Base: from}, v)
			VMOVUPS(v, Mem{Base: scales, Disp: atM * i})
			ADDQ(I32(rowStep*4), from)
		}
		ADDQ(I32(rowBytes), src)
		ADDQ(I32(stepBytes), codes)
		ADDQ(I32(stepD), scales)
	})
	VZEROUPPER()
	RET()
}

// lanes multiplies 8 weight rows with pairs of columns, 4 rows by 2 at a time, or with one
// column: lane l of an accumulator has values 4l to 4l+3 of blocks.
func lanes(name string, mins, inTurn bool, columns int) {
	extra := ""
	if mins {
		extra = "s *float32, "
	}
	if columns == 1 {
		name += "One"
	}
	TEXT("lanes"+name+"AVX2", NOSPLIT, "func(dst *float32, stride int, codes *int8, d *float32, q *int8, da *float32, "+extra+"blocks, times int)")
	if columns == 2 {
		Doc("lanes" + name + "AVX2 is mulLanesScalar for 8 rows and pairs of columns. stride counts numbers.")
	} else {
		Doc("lanes" + name + "AVX2 is mulLanesScalar for 8 rows and single columns.")
	}
	Pragma("noescape")
	k := &laneKernel{mins: mins, inTurn: inTurn, columns: columns, products: AllocLocal(32)}
	if inTurn {
		k.kept = AllocLocal(8 * 32)
	}
	k.dst, k.stride = Pointer("dst"), Pointer("stride")
	SHLQ(U8(2), k.stride)
	k.q, k.da, k.scales = Pointer("q"), Pointer("da"), Pointer("blocks")
	SHLQ(U8(2), k.scales) // bytes of a column's scales, an eighth of those of its codes
	if mins {
		k.s = Pointer("s")
	}
	k.ones = Fetch(pairOnes())
	Loop("times", Pointer("times"), func() {
		for first := 0; first < rowStep; first += k.rows() {
			k.pass(first)
		}
		for range columns {
			LEAQ(Mem{Base: k.q, Index: k.scales, Scale: 8}, k.q)
			ADDQ(k.scales, k.da)
			if mins {
				ADDQ(k.scales, k.s)
			}
			ADDQ(k.stride, k.dst)
		}
	})
	VZEROUPPER()
	RET()
}

type laneKernel struct {
	mins, inTurn                 bool
	columns                      int
	ones                         VecVirtual
	products, kept               Mem
	dst, stride, q, da, s        Register
	scales                       Register // bytes of a column's scales
	codes, d, aq, ada, as, count Register
	acc                          []VecVirtual // rows of the first column, of the second
	sums                         []VecVirtual // of minima, of a column
}

// rows is the number of rows that are multiplied at once.
func (k *laneKernel) rows() int { return 8 / k.columns }

// part is as much of a vector as has a number for each row.
func (k *laneKernel) part(v VecVirtual) Register {
	if k.columns == 2 {
		return v.AsX()
	}
	return v
}

// pass multiplies rows from first on.
func (k *laneKernel) pass(first int) {
	name := []string{"low", "high"}[first/4]
	k.start(first)
	k.acc = YMMs(8)
	if k.mins {
		k.sums = YMMs(k.columns)
		zero(k.sums...)
	}
	if !k.inTurn {
		// Two blocks at a time, for there are few instructions to a product.
		zero(k.acc...)
		SHRQ(U8(1), k.count)
		JZ(LabelRef(name + "Last"))
		Loop(name, k.count, func() {
			k.block(0)
			k.block(1)
			k.advance(2)
		})
		Label(name + "Last")
		odd := GP64()
		Load(Param("blocks"), odd)
		TESTQ(U32(1), odd)
		JZ(LabelRef(name + "Done"))
		k.block(0)
		Label(name + "Done")
	} else {
		// Blocks 0, 2, 4 ..., whose lanes are kept, and then 1, 3, 5 ...
		for turn, which := range []string{"Even", "Odd"} {
			if turn == 1 {
				for i, a := range k.acc {
					VMOVUPS(a, k.kept.Offset(32*i))
				}
				k.start(first)
				k.advance(1)
			}
			zero(k.acc...)
			SHRQ(U8(1), k.count)
			JZ(LabelRef(name + which + "Done"))
			Loop(name+which, k.count, func() {
				k.block(0)
				k.advance(2)
			})
			Label(name + which + "Done")
		}
		for i, a := range k.acc {
			VADDPS(k.kept.Offset(32*i), a, a)
		}
	}
	// Fours of accumulators are rows of the two columns, or of the one.
	for i := range 2 {
		sum := addLanes(k.acc[4*i : 4*i+4])
		to := Mem{Base: k.dst, Disp: 4 * first}
		switch {
		case k.columns == 1:
			to.Disp += 16 * i
			if k.mins && i == 0 {
				VADDPS(k.sums[0].AsX(), sum, sum)
			} else if k.mins {
				high := XMM()
				VEXTRACTF128(U8(1), k.sums[0], high)
				VADDPS(high, sum, sum)
			}
		default:
			if i == 1 {
				to.Index, to.Scale = k.stride, 1
			}
			if k.mins {
				VADDPS(k.sums[i].AsX(), sum, sum)
			}
		}
		number(sum, XMM())
		VMOVUPS(sum, to)
	}
}

// start goes to the first block.
func (k *laneKernel) start(first int) {
	k.codes, k.d, k.count = Pointer("codes"), Pointer("d"), Pointer("blocks")
	k.aq, k.ada = GP64(), GP64()
	MOVQ(k.q, k.aq)
	MOVQ(k.da, k.ada)
	if k.mins {
		k.as = GP64()
		MOVQ(k.s, k.as)
	}
	if first > 0 {
		ADDQ(I32(first*rowBytes), k.codes)
		ADDQ(I32(4*first), k.d)
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

// block adds the block that lies ahead by so many to the accumulators.
func (k *laneKernel) block(ahead int) {
	each := func(base Register, scale uint8, step int) []Mem {
		return []Mem{{Base: base, Disp: step * ahead}, {Base: base, Index: k.scales, Scale: scale, Disp: step * ahead}}[:k.columns]
	}
	q, da := each(k.aq, 8, rowBytes), each(k.ada, 1, 4)
	a := YMMs(k.columns)
	for c := range a {
		p := k.part(YMM())
		VBROADCASTSS(da[c], p)
		VMULPS(Mem{Base: k.d, Disp: stepD * ahead}, p, p)
		VMOVUPS(p, k.products.Offset(16*c))
		VMOVDQU(q[c], a[c])
	}
	for i := range k.rows() {
		w, m := YMM(), YMM()
		VMOVDQU(Mem{Base: k.codes, Disp: stepBytes*ahead + rowBytes*i}, w)
		if !k.mins {
			VPABSB(w, m)
		}
		for c := range a {
			n, d := YMM(), YMM()
			if k.mins { // codes are not negative
				VPMADDUBSW(a[c], w, n)
			} else {
				VPSIGNB(w, a[c], n)
				VPMADDUBSW(n, m, n)
			}
			VPMADDWD(k.ones, n, n)
			VCVTDQ2PS(n, n)
			VBROADCASTSS(k.products.Offset(4*(k.rows()*c+i)), d)
			VFMADD231PS(d, n, k.acc[k.rows()*c+i])
		}
	}
	if k.mins {
		for c, s := range each(k.as, 1, 4) {
			v := k.part(YMM())
			VBROADCASTSS(s, v)
			VFMADD231PS(Mem{Base: k.d, Disp: stepD*ahead + atM}, v, k.part(k.sums[c]))
		}
	}
}

package neon

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type vectorFunc func(t *translator, in *ir.Instruction)

var vectors map[string]vectorFunc

func init() {
	vectors = map[string]vectorFunc{
		"VADDPS": each2(fadd), "VSUBPS": each2(fsub), "VMULPS": each2(fmul), "VDIVPS": each2(fdiv), "VSQRTPS": each1(fsqrt),
		"VANDPS": each2(and), "VORPS": each2(orr), "VXORPS": exclusive, "VANDNPS": andNot,
		"VPAND": each2(and), "VPOR": each2(orr), "VPXOR": exclusive, "VPANDN": andNot,
		"VPADDD": each2(add4s), "VPADDB": each2(add16b), "VPSUBD": each2(sub4s),
		"VPMAXSD": each2(smax4s), "VPMINSD": each2(smin4s), "VPMAXSB": each2(smax16b), "VPMINSB": each2(smin16b), "VPMINUB": each2(umin16b),
		"VPCMPEQD": each2(cmeq4s), "VPCMPGTD": each2(cmgt4s),
		"VPSLLD": shift(shl4s), "VPSLLW": shift(shl8h), "VPSRLD": shift(ushr4s), "VPSRAD": shift(sshr4s),
		"VCVTTPS2DQ": each1(fcvtzs), "VCVTPS2DQ": each1(fcvtns),
		"VMAXPS": extreme(false), "VMINPS": extreme(true), "VCMPPS": comparePS,
		"VBLENDVPS": blend(signs4s), "VPBLENDVB": blend(signs16b),
		"VDIVSS": first(fdivS), "VMULSS": first(fmulS),
		"VUNPCKLPS": each2(zip1s), "VUNPCKHPS": each2(zip2s), "VUNPCKLPD": each2(zip1d), "VUNPCKHPD": each2(zip2d),
		"VPACKSSDW": pack(sqxtn4h, sqxtn8h), "VPACKUSDW": pack(sqxtun4h, sqxtun8h),
		"VPACKSSWB": pack(sqxtn8b, sqxtn16b), "VPACKUSWB": pack(sqxtun8b, sqxtun16b),
		"VPERM2F128": permuteHalves, "VPERM2I128": permuteHalves, "VEXTRACTI128": extract,
		"VPSHUFD": shuffle, "VPERMQ": permuteQuads, "VPERMPS": permute, "VPERMD": permute,
		"VPERMILPS": permuteLanes, "VINSERTF128": insert, "VPMADDWD": multiplyWords, "VROUNDPS": round, "VPEXTRD": extractWord,
		"VPMADDUBSW": multiplyBytes, "VPMOVZXWD": widen(uxtl4s, uxtl4sHi), "VCVTPH2PS": widen(fcvtl, fcvtl2), "VCVTPS2PH": toHalf,
		"VMOVUPS": moveVector, "VMOVAPS": moveVector, "VMOVDQU": moveVector, "VMOVDQA": moveVector,
		"VMOVSS": moveFirst, "VBROADCASTSS": broadcastWord, "VPBROADCASTD": broadcastWord, "VMASKMOVPS": storeMasked,
		"VMOVMSKPS": laneMask, "VPMOVMSKB": byteMask, "VMOVD": moveWord, "VPEXTRW": extractHalf,
	}
}

// pair gives the two halves of a vector register, or of memory, which it loads.
// The upper half of an XMM operand is not to be read.
func (t *translator) pair(o operand.Op, size uint) [2]temp {
	if r := asVector(o); r != nil {
		return t.register(r)
	}
	if w, ok := t.equalWords(o); ok {
		c := t.sharedConstant(w)
		return [2]temp{c, c}
	}
	lo, hi := t.newTemp(vector), t.newTemp(vector)
	t.loadTo(o, size, lo, hi)
	return [2]temp{lo, hi}
}

func (t *translator) register(r reg.Register) [2]temp {
	h, ok := t.halves[r.ID()]
	if !ok {
		h[0] = t.newTemp(vector)
		h[1] = h[0]
		if !t.uniform[r.ID()] {
			h[1] = t.newTemp(vector)
		}
		t.halves[r.ID()] = h
	}
	return h
}

func (t *translator) loadTo(o operand.Op, size uint, lo, hi temp) {
	base, at := t.address(o)
	switch {
	case size == 16:
		t.emit(inst{op: loadQ, dst: []temp{lo}, src: []temp{base}, i: at})
	case at%16 == 0 && at >= -1024 && at <= 1008:
		t.emit(inst{op: loadPair, dst: []temp{lo, hi}, src: []temp{base}, i: at})
	default:
		t.emit(inst{op: loadQ, dst: []temp{lo}, src: []temp{base}, i: at})
		t.emit(inst{op: loadQ, dst: []temp{hi}, src: []temp{base}, i: at + 16})
	}
}

func (t *translator) store(o operand.Op, size uint, h [2]temp) {
	base, at := t.address(o)
	switch {
	case size == 16:
		t.emit(inst{op: storeQ, src: []temp{base, h[0]}, i: at})
	case at%16 == 0 && at >= -1024 && at <= 1008:
		t.emit(inst{op: storePair, src: []temp{base, h[0], h[1]}, i: at})
	default:
		t.emit(inst{op: storeQ, src: []temp{base, h[0]}, i: at})
		t.emit(inst{op: storeQ, src: []temp{base, h[1]}, i: at + 16})
	}
}

// write computes the halves that an instruction writes, and then writes them: a
// half may be computed of both. Writing an XMM register clears what is above.
func (t *translator) write(in *ir.Instruction, half func(k int) temp) {
	r := written(in)
	d := t.register(r)
	if d[0] == d[1] {
		t.copyTo(d[0], half(0))
		return
	}
	lo, hi := half(0), temp(-1)
	if r.Size() == 32 {
		hi = half(1)
	}
	t.copyTo(d[0], lo)
	if hi >= 0 {
		t.copyTo(d[1], hi)
	} else if t.wide[r.ID()] {
		t.copyTo(d[1], t.constant(0))
	}
}

func (t *translator) copyTo(d, s temp) {
	t.emit(inst{op: moveVec, dst: []temp{d}, src: []temp{s}})
}

// operands gives the halves of the operands but the last.
func (t *translator) operands(in *ir.Instruction) (p [][2]temp) {
	size := written(in).Size()
	for _, o := range in.Operands[:len(in.Operands)-1] {
		if _, ok := number(o); ok {
			continue
		}
		p = append(p, t.pair(o, size))
	}
	return p
}

func each1(o *op) vectorFunc {
	return func(t *translator, in *ir.Instruction) {
		p := t.operands(in)
		t.write(in, func(k int) temp { return t.vec(o, p[0][k]) })
	}
}

// each2 is for d = a op b; AVX2 has b first.
func each2(o *op) vectorFunc {
	return func(t *translator, in *ir.Instruction) {
		p := t.operands(in)
		t.write(in, func(k int) temp { return t.vec(o, p[1][k], p[0][k]) })
	}
}

func shift(o *op) vectorFunc {
	return func(t *translator, in *ir.Instruction) {
		by, ok := number(in.Operands[0])
		if !ok {
			fail("the shift is no number")
		}
		p := t.operands(in)
		t.write(in, func(k int) temp { return t.imm(o, by, p[0][k]) })
	}
}

// round is to the nearest integer, ties to even.
func round(t *translator, in *ir.Instruction) {
	if how, _ := number(in.Operands[0]); how&^8 != 0 {
		fail("rounding %d", how)
	}
	each1(frintn)(t, in)
}

func exclusive(t *translator, in *ir.Instruction) {
	if same(in) {
		t.write(in, func(int) temp { return t.constant(0) })
		return
	}
	each2(eor)(t, in)
}

// andNot is d = ^a & b.
func andNot(t *translator, in *ir.Instruction) {
	p := t.operands(in)
	t.write(in, func(k int) temp { return t.vec(bic, p[0][k], p[1][k]) })
}

// extreme is VMINPS and VMAXPS: a where it is below (above) b, else b. FMINNM and
// FMAXNM agree as long as b is a number but no zero, or a zero that is the greater,
// and a does not signal; else a comparison chooses.
func extreme(min bool) vectorFunc {
	return func(t *translator, in *ir.Instruction) {
		own := fmaxnm
		if min {
			own = fminnm
		}
		direct := t.sure(in.Operands[0]) && t.isQuiet(in.Operands[1])
		if w, ok := t.wordOf(in.Operands[0]); ok && w == 0 && !min {
			direct = t.isQuiet(in.Operands[1])
		}
		p := t.operands(in)
		d := t.register(written(in))
		t.write(in, func(k int) temp {
			a, b := p[1][k], p[0][k]
			if direct {
				return t.vec(own, a, b)
			}
			from, to := a, b
			if min {
				from, to = b, a
			}
			m := t.vec(fcmgt, from, to)
			switch d[k] {
			case a:
				return t.change(bif, a, b, m)
			case b:
				return t.change(bit, b, a, m)
			}
			return t.change(bsl, m, a, b)
		})
	}
}

// comparePS compares a with b. All comparisons of A64 are false for what is not a
// number.
func comparePS(t *translator, in *ir.Instruction) {
	predicate, _ := number(in.Operands[0])
	p := t.operands(in)
	t.write(in, func(k int) temp {
		a, b := p[1][k], p[0][k]
		switch predicate & 15 { // 16 is about exceptions
		case 0: // equal
			return t.vec(fcmeq, a, b)
		case 1: // less
			return t.vec(fcmgt, b, a)
		case 2: // less or equal
			return t.vec(fcmge, b, a)
		case 3: // unordered
			r := t.vec(fcmeq, a, a)
			if a != b {
				r = t.vec(and, r, t.vec(fcmeq, b, b))
			}
			return t.vec(mvn, r)
		case 4: // not equal
			return t.vec(mvn, t.vec(fcmeq, a, b))
		case 5: // not less
			return t.vec(mvn, t.vec(fcmgt, b, a))
		case 13: // greater or equal
			return t.vec(fcmge, a, b)
		case 14: // greater
			return t.vec(fcmgt, a, b)
		}
		fail("predicate %d", predicate)
		return 0
	})
}

// maskOf gives a mask that is all ones where an element is negative.
func (t *translator) maskOf(o operand.Op, m temp, signs *op) temp {
	if t.mask[asVector(o).ID()] {
		return m
	}
	return t.vec(signs, m)
}

// blend is d = m < 0 ? b : a.
func blend(signs *op) vectorFunc {
	return func(t *translator, in *ir.Instruction) {
		p := t.operands(in)
		t.write(in, func(k int) temp {
			return t.change(bit, p[2][k], p[1][k], t.maskOf(in.Operands[0], p[0][k], signs))
		})
	}
}

// first is arithmetic of the first element, with the others those of a.
func first(o *op) vectorFunc {
	return func(t *translator, in *ir.Instruction) {
		b := t.firstOf(in.Operands[0])
		a := t.register(asVector(in.Operands[1]))[0]
		t.write(in, func(int) temp { return t.change(insS, a, t.vec(o, a, b)) })
	}
}

// firstOf gives a vector with a word in its first element.
func (t *translator) firstOf(o operand.Op) temp {
	if r := asVector(o); r != nil {
		return t.register(r)[0]
	}
	d := t.newTemp(vector)
	if name, at, ok := argument(o); ok {
		t.emit(inst{op: loadFArg, dst: []temp{d}, text: name, i: at})
		return d
	}
	if w, ok := t.words(o); ok {
		return t.do(fromW, vector, t.value(int64(w[0])))
	}
	base, at := t.address(o)
	t.emit(inst{op: loadF, dst: []temp{d}, src: []temp{base}, i: at})
	return d
}

package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// latticeWeigh works on all values of a superblock.
func latticeWeigh() {
	for _, weighted := range []bool{false, true} {
		name, args := "latticeWeighSIMD", "func(s, src *float32, base float32) bool"
		if weighted {
			name, args = "latticeImportanceSIMD", "func(s, src, weights *float32, sigma2 float32) bool"
		}
		TEXT(name, NOSPLIT, args)
		Doc(name+" sets the weights of a superblock and their roots. It gives false for", "values or weights that only the scalar search handles.")
		Pragma("noescape")
		s, src, n := Load(Param("s"), GP64()), Load(Param("src"), GP64()), GP64()
		base, odd := YMM(), Zeroed()
		var weights Register
		if weighted {
			weights = Load(Param("weights"), GP64())
			VBROADCASTSS(Argument("sigma2"), base)
		} else {
			VBROADCASTSS(Argument("base"), base)
		}
		abs, most, mostW := Spread("absBits1", 0x7fffffff), Spread("latticeMost", math.Float32bits(1<<40)), Spread("latticeMostW", math.Float32bits(1<<60))
		MOVQ(U32(32), n)
		Label(name + "Loop")
		v, w, t := YMM(), YMM(), YMM()
		VMOVUPS(Mem{Base: src}, v)
		VPAND(abs, v, t)
		VPCMPGTD(most, t, t)
		VPOR(t, odd, odd)
		VMULPS(v, v, w)
		VADDPS(w, base, w)
		if weighted {
			VSQRTPS(w, w)
			VMULPS(Mem{Base: weights}, w, w)
			ADDQ(I32(32), weights)
		}
		VMOVUPS(w, Mem{Base: s, Disp: latW})
		VPCMPGTD(mostW, w, t)
		VPOR(t, odd, odd)
		VPOR(w, odd, odd) // the sign
		VSQRTPS(w, w)
		VMOVUPS(w, Mem{Base: s, Disp: latRoot})
		ADDQ(I32(32), src)
		ADDQ(I32(32), s)
		DECQ(n)
		JNZ(LabelRef(name + "Loop"))
		mask := GP32()
		VMOVMSKPS(odd, mask)
		TESTL(mask, mask)
		JNZ(LabelRef(name + "Refuse"))
		giveBool(true)
		Label(name + "Refuse")
		giveBool(false)
	}
}

// latticeFold works on all values of a superblock.
func latticeFold() {
	name := "latticeFoldSIMD"
	TEXT(name, NOSPLIT, "func(s, src *float32, parity int)")
	Doc(name+" is fold for a superblock, whose weights are set. parity is 1 for an even", "number of signs.")
	Pragma("noescape")
	s, src, parity := Load(Param("s"), GP64()), Load(Param("src"), GP64()), Load(Param("parity"), GP64())
	out, tops, n := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: s, Disp: latSigns}, out)
	LEAQ(Mem{Base: s, Disp: latTops}, tops)
	MOVQ(U32(32), n)
	sign, zero := Spread("signBit1", 0x80000000), Zeroed()
	lane := Fetch(Words("laneBits", 1, 2, 4, 8, 16, 32, 64, 128))
	keep := GP32()
	MOVL(parity.(GPVirtual).As32(), keep)
	SHLL(U8(7), keep)
	XORL(U32(0xff), keep) // 127 with parity, else 255
	Label(name + "Loop")
	v, m, a := YMM(), YMM(), YMM()
	signs, least, flip := GP32(), GP32(), GP32()
	VMOVUPS(Mem{Base: src}, v)
	VCMPPS(U8(cmpLT), zero, v, m)
	VMOVMSKPS(m, signs)
	VMULPS(Mem{Base: s, Disp: latW}, v, a)
	VMULPS(v, a, a)
	VANDPS(sign, m, m)
	VXORPS(m, v, v)
	// The first of the values that matter least turns when the number of signs
	// is odd.
	VMOVAPS(a, m)
	fold8(m, minOp)
	VCMPPS(U8(0), m, a, m)
	VMOVMSKPS(m, least)
	TZCNTL(least, least)
	POPCNTL(signs, flip)
	ANDL(parity.(GPVirtual).As32(), flip)
	MOVL(least, ECX)
	SHLL(CL, flip)
	XORL(flip, signs)
	ANDL(keep, signs)
	MOVB(signs.As8(), Mem{Base: out})
	VMOVD(flip, m.AsX())
	VPBROADCASTD(m.AsX(), m)
	VPAND(lane, m, m)
	VPCMPEQD(lane, m, m)
	VPAND(sign, m, m)
	VPXOR(m, v, v)
	VMOVUPS(v, Mem{Base: s, Disp: latX})
	VMOVAPS(v, a)
	fold8(a, maxOp)
	VMOVSS(a.AsX(), Mem{Base: tops})
	fold8(v, minOp)
	VMOVSS(v.AsX(), Mem{Base: tops, Disp: latLows - latTops})
	ADDQ(I32(32), src)
	ADDQ(I32(32), s)
	ADDQ(I32(4), tops)
	INCQ(out)
	DECQ(n)
	JNZ(LabelRef(name + "Loop"))
	VZEROUPPER()
	RET()
}

func latticeCandidates() {
	name := "latticeCandidatesSIMD"
	TEXT(name, NOSPLIT, "func(s, numerators *float32, vectors int, ref float32)")
	Doc(name + " sets candidates, 8 a vector, to numerators/ref and scales to their inverses.")
	Pragma("noescape")
	s, num, n := Load(Param("s"), GP64()), Load(Param("numerators"), GP64()), Load(Param("vectors"), GP64())
	ref, one := YMM(), Spread("oneFloat1", 0x3f800000)
	VBROADCASTSS(Argument("ref"), ref)
	Label(name + "Loop")
	v := YMM()
	VMOVUPS(Mem{Base: num}, v)
	VDIVPS(ref, v, v)
	VMOVUPS(v, Mem{Base: s, Disp: latIDs})
	VDIVPS(v, one, v)
	VMOVUPS(v, Mem{Base: s, Disp: latScales})
	ADDQ(I32(32), num)
	ADDQ(I32(32), s)
	DECQ(n)
	JNZ(LabelRef(name + "Loop"))
	VZEROUPPER()
	RET()
}

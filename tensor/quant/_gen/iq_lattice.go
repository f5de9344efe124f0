package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Offsets of type latticeLanes. TestLatticeLayout holds them against the Go
// type.
const (
	latX      = 0
	latW      = latX + 1024
	latRoot   = latW + 1024
	latStarts = latRoot + 1024
	latKeys   = latStarts + 1024
	latIDs    = latKeys + 1024
	latScales = latIDs + 128
	latSumQX  = latScales + 128
	latSumQ2  = latSumQX + 128
	latTops   = latSumQ2 + 128
	latLows   = latTops + 128
	latSigns  = latLows + 128
	latPick   = latSigns + 32
)

// lattice holds what differs between the grids of 8 and of 4 values.
type lattice struct {
	dim   int // values of a run
	bits  int // bits of a code
	top   float32
	first int // groups of neighbours that every list has
	keys  int // the short lists in dir; the long ones follow
}

var (
	lattice8 = lattice{dim: 8, bits: 2, top: 2, first: 2, keys: 6561}
	lattice4 = lattice{dim: 4, bits: 3, top: 7, first: 1, keys: 4096}
)

func floats(name string, v ...float32) Mem {
	var w []uint32
	for _, f := range v {
		w = append(w, math.Float32bits(f))
	}
	return words(name, w...)
}

// fold8 leaves op over all lanes of v in every lane.
func fold8(v VecVirtual, op func(a, b, dst Op)) {
	t := YMM()
	VPERM2F128(U8(1), v, v, t)
	op(t, v, v)
	VPERMILPS(U8(0x4e), v, t)
	op(t, v, v)
	VPERMILPS(U8(0xb1), v, t)
	op(t, v, v)
}

func minOp(a, b, dst Op) { VMINPS(a, b, dst) }
func maxOp(a, b, dst Op) { VMAXPS(a, b, dst) }

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
		base, odd := YMM(), zeroed()
		var weights Register
		if weighted {
			weights = Load(Param("weights"), GP64())
			VBROADCASTSS(argument("sigma2"), base)
		} else {
			VBROADCASTSS(argument("base"), base)
		}
		abs, most, mostW := constant("absBits1", 0x7fffffff), constant("latticeMost", math.Float32bits(1<<40)), constant("latticeMostW", math.Float32bits(1<<60))
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
	sign, zero := constant("signBit1", 0x80000000), zeroed()
	lane := load(words("laneBits", 1, 2, 4, 8, 16, 32, 64, 128))
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
	ref, one := YMM(), constant("oneFloat1", 0x3f800000)
	VBROADCASTSS(argument("ref"), ref)
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

// latticeSettle rounds a group under every candidate, then moves its runs to
// entries.
//
// The codes are found as in the scalar code, but for a clamp before the
// rounding, which is the same while no product leaves 2^21. A run with a value
// that is nearer than 1e-5 to the middle between two codes takes the long list:
// only without such a value the short one is sure to have the best neighbour.
func latticeSettle(l lattice, group int) {
	vectors, runs := group/8, group/l.dim
	name := "latticeSettle" + string(rune('0'+l.dim)) + "x" + string(rune('0'+runs)) + "SIMD"
	TEXT(name, NOSPLIT, "func(s *float32, at, trials int, dir *uint32, lists *uint16)")
	Doc(name+" finds the keys of the entries for the runs of the group at byte at", "under the first candidates.")
	Pragma("noescape")
	s, x, trials := Load(Param("s"), GP64()), Load(Param("at"), GP64()), Load(Param("trials"), GP64())
	dir, lists := Load(Param("dir"), GP64()), Load(Param("lists"), GP64())
	ADDQ(s, x)
	latticeRound(name, l, vectors, runs, s, x, trials, dir)
	latticeSearch(name, l, runs, s, x, trials, lists)
	VZEROUPPER()
	RET()
}

func latticeRound(name string, l lattice, vectors, runs int, s, x, trials, dir Register) {
	one, half, zero := eights("oneFloat", 0x3f800000), eights("halfFloat", 0x3f000000), zeroed()
	top, abs := constant("latticeTop"+string(rune('0'+l.dim)), math.Float32bits(l.top)), constant("absBits1", 0x7fffffff)
	trial, starts := GP64(), GP64()
	XORQ(trial, trial)
	MOVQ(s, starts)
	Label(name + "Round")
	id, tie := YMM(), zeroed()
	VBROADCASTSS(Mem{Base: s, Index: trial, Scale: 4, Disp: latIDs}, id)
	codes, off := make([]VecVirtual, vectors), make([]VecVirtual, vectors)
	for i := range codes {
		c, q := YMM(), YMM()
		off[i], codes[i] = c, q
		VMULPS(Mem{Base: x, Disp: latX + 32*i}, id, c)
		VSUBPS(one, c, c)
		VMULPS(half, c, c)
		VMAXPS(zero, c, c)
		VMINPS(top, c, c)
		VROUNDPS(U8(0), c, q)
		VSUBPS(q, c, c)
		VANDPS(abs, c, c)
		VMAXPS(c, tie, tie)
		VCVTPS2DQ(q, q)
	}
	// Codes become bytes, four values beside each other, then numbers.
	b := codes[0]
	VPACKSSDW(codes[1], codes[0], b)
	if vectors == 4 {
		VPACKSSDW(codes[3], codes[2], codes[2])
		VPACKUSWB(codes[2], b, b)
	} else {
		VPACKUSWB(b, b, b)
	}
	hi := XMM()
	put := func(long int, v VecVirtual, lane, run int) {
		r := GP32()
		if lane == 0 {
			VMOVD(v, r)
		} else {
			VPEXTRD(U8(lane), v, r)
		}
		MOVL(Mem{Base: dir, Index: r.As64(), Scale: 4, Disp: 4 * long}, r)
		MOVL(r, Mem{Base: starts, Disp: latStarts + 4*run})
	}
	var key [8]func(long int)
	if l.dim == 8 {
		VPMADDUBSW(eights("latticePairs8", 0x03010301), b, b)
		VPMADDWD(words("latticeFours8", 0x00090001, 0x00090001, 0x00090001, 0x00090001, 0x02d90051, 0x02d90051, 0x02d90051, 0x02d90051), b, b)
		VEXTRACTI128(U8(1), b, hi)
		VPADDD(hi, b.AsX(), hi)
		for r := 0; r < runs; r++ {
			key[r] = func(long int) { put(long, hi, r, r) }
		}
	} else {
		VPMADDUBSW(eights("latticePairs4", 0x08010801), b, b)
		VPMADDWD(eights("latticeFours4", 0x00400001), b, b)
		VEXTRACTI128(U8(1), b, hi)
		for r := 0; r < runs; r++ {
			key[r] = func(long int) { put(long, []VecVirtual{b.AsX().(VecVirtual), hi}[r%2], r/2, r) }
		}
	}
	for r := 0; r < runs; r++ {
		key[r](0)
	}
	limit, mask := constant("latticeTie", math.Float32bits(0.49999)), GP32()
	VCMPPS(U8(cmpGT), limit, tie, tie)
	VMOVMSKPS(tie, mask)
	TESTL(mask, mask)
	JZ(LabelRef(name + "Clear"))
	for r := 0; r < runs; r++ {
		label := name + "Clear" + string(rune('0'+r))
		v := r * l.dim / 8
		if r*l.dim%8 == 0 {
			VCMPPS(U8(cmpGT), limit, off[v], off[v])
			VMOVMSKPS(off[v], mask)
		}
		bits := 0xff
		if l.dim == 4 {
			bits = 0xf << (r % 2 * 4)
		}
		TESTL(U32(uint32(bits)), mask)
		JZ(LabelRef(label))
		key[r](l.keys)
		Label(label)
	}
	Label(name + "Clear")
	ADDQ(I32(32), starts)
	INCQ(trial)
	CMPQ(trial, trials)
	JNE(LabelRef(name + "Round"))
}

// latticeSearch gives each lane a neighbour. For every value of the run there is
// a table of the terms that its codes add to a distance, so a lane picks terms
// by the bits of a key and sums them in order. Lists run down the lanes: the
// first of equal distances is in the lowest lane, and there the earliest.
func latticeSearch(name string, l lattice, runs int, s, x, trials, lists Register) {
	run, trial, starts, out := GP64(), GP64(), GP64(), GP64()
	MOVQ(U32(runs), run)
	LEAQ(Mem{Base: s, Disp: latStarts}, starts)
	LEAQ(Mem{Base: s, Disp: latKeys}, out)
	Label(name + "Run")
	at := GP64()
	MOVQ(starts, at)
	XORQ(trial, trial)
	Label(name + "Trial")
	start, more := GP32(), GP32()
	MOVL(Mem{Base: at}, start)
	MOVBLZX(start.As8(), more)
	SHRL(U8(8), start)
	SHLL(U8(4), start)
	list := start.As64()
	ADDQ(lists, list)

	var terms []VecVirtual
	if l.dim == 8 {
		terms = latticeTerms8(s, x, trial)
	} else {
		terms = latticeTerms4(s, x, trial)
	}
	sum := func(disp int) (k, d VecVirtual) {
		k, d = YMM(), YMM()
		VPMOVZXWD(Mem{Base: list, Disp: disp}, k)
		for i, t := range terms {
			v := d
			if i > 0 {
				v = YMM()
				VPSRLD(U8(l.bits), k, k)
			}
			if l.dim == 8 {
				VPERMILPS(k, t, v)
			} else {
				VPERMPS(t, k, v)
			}
			if i > 0 {
				VADDPS(v, d, d)
			}
		}
		return k, d
	}
	best, key := YMM(), YMM()
	k, d := sum(0)
	if l.first == 2 {
		k2, d2 := sum(16)
		VCMPPS(U8(cmpLT), d, d2, k)
		VMINPS(d, d2, best)
		VPMOVZXWD(Mem{Base: list}, key)
		VPMOVZXWD(Mem{Base: list, Disp: 16}, k2)
		VBLENDVPS(k, k2, key, key)
	} else {
		VMOVAPS(d, best)
		VPMOVZXWD(Mem{Base: list}, key)
	}
	TESTL(more, more)
	JZ(LabelRef(name + "Found"))
	Label(name + "More")
	k, d = sum(16 * l.first)
	VPMOVZXWD(Mem{Base: list, Disp: 16 * l.first}, k)
	m := YMM()
	VCMPPS(U8(cmpLT), best, d, m)
	VMINPS(best, d, best)
	VBLENDVPS(m, k, key, key)
	ADDQ(I32(16), list)
	DECL(more)
	JNZ(LabelRef(name + "More"))
	Label(name + "Found")
	VMOVDQU(key, Mem{Base: s, Disp: latPick})
	VMOVAPS(best, key)
	fold8(best, minOp)
	VCMPPS(U8(0), key, best, key)
	mask := GP32()
	VMOVMSKPS(key, mask)
	TZCNTL(mask, mask)
	MOVL(Mem{Base: s, Index: mask.As64(), Scale: 4, Disp: latPick}, mask)
	MOVL(mask, Mem{Base: out, Index: trial, Scale: 4})
	ADDQ(I32(32), at)
	INCQ(trial)
	CMPQ(trial, trials)
	JNE(LabelRef(name + "Trial"))
	ADDQ(I32(4*l.dim), x)
	ADDQ(I32(4), starts)
	ADDQ(I32(128), out)
	DECQ(run)
	JNZ(LabelRef(name + "Run"))
}

// latticeTerms8 gives the terms of the three codes of each of 8 values, in both
// halves of a register.
func latticeTerms8(s, x, trial Register) []VecVirtual {
	scale := YMM()
	VBROADCASTSS(Mem{Base: s, Index: trial, Scale: 4, Disp: latScales}, scale)
	var t [3]VecVirtual
	for c := range t {
		d := YMM()
		if c == 0 {
			VSUBPS(Mem{Base: x, Disp: latX}, scale, d)
		} else {
			VMULPS(floats("latticeLevel"+string(rune('0'+c)), eightTimes(float32(2*c+1))...), scale, d)
			VSUBPS(Mem{Base: x, Disp: latX}, d, d)
		}
		t[c] = YMM()
		VMULPS(Mem{Base: x, Disp: latRoot}, d, t[c])
		VMULPS(d, t[c], t[c])
	}
	return spreadTerms(t)
}

// spreadTerms makes a table for each of 8 values out of a vector for each of
// three codes.
func spreadTerms(t [3]VecVirtual) []VecVirtual {
	terms := make([]VecVirtual, 8)
	for half := 0; half < 2; half++ {
		a, b := YMM(), YMM()
		if half == 0 {
			VUNPCKLPS(t[1], t[0], a)
			VUNPCKLPS(t[2], t[2], b)
		} else {
			VUNPCKHPS(t[1], t[0], a)
			VUNPCKHPS(t[2], t[2], b)
		}
		for k := 0; k < 2; k++ {
			i, v := 2*half+k, YMM()
			if k == 0 {
				VUNPCKLPD(b, a, v)
			} else {
				VUNPCKHPD(b, a, v)
			}
			terms[i], terms[i+4] = YMM(), YMM()
			VINSERTF128(U8(1), v.AsX(), v, terms[i])
			VPERM2F128(U8(0x11), v, v, terms[i+4])
		}
	}
	return terms
}

func eightTimes(v float32) []float32 { return []float32{v, v, v, v, v, v, v, v} }

func oddLevels() Mem { return floats("oddLevels", 1, 3, 5, 7, 9, 11, 13, 15) }

// latticeTerms4 gives the terms of the eight codes of each of 4 values.
func latticeTerms4(s, x, trial Register) []VecVirtual {
	levels := YMM()
	VBROADCASTSS(Mem{Base: s, Index: trial, Scale: 4, Disp: latScales}, levels)
	VMULPS(oddLevels(), levels, levels)
	terms := make([]VecVirtual, 4)
	for i := range terms {
		d, t := YMM(), YMM()
		VBROADCASTSS(Mem{Base: x, Disp: latX + 4*i}, d)
		VSUBPS(d, levels, d)
		VBROADCASTSS(Mem{Base: x, Disp: latRoot + 4*i}, t)
		VMULPS(d, t, t)
		VMULPS(d, t, t)
		terms[i] = t
	}
	return terms
}

// latticeSums has a candidate in each lane.
func latticeSums(l lattice, group, vectors int) {
	runs := group / l.dim
	name := "latticeSums" + string(rune('0'+l.dim)) + "x" + string(rune('0'+runs)) + "For" + string(rune('0'+vectors)) + "SIMD"
	TEXT(name, NOSPLIT, "func(s *float32, at int)")
	Doc(name+" gives the sums of fitted under the keys of 8 candidates a vector for", "the group at byte at.")
	Pragma("noescape")
	s, x := Load(Param("s"), GP64()), Load(Param("at"), GP64())
	ADDQ(s, x)
	keys, left := GP64(), GP64()
	LEAQ(Mem{Base: s, Disp: latKeys}, keys)
	MOVQ(U32(runs), left)
	levels := load(oddLevels())
	if l.dim == 8 {
		VPERM2F128(U8(0), levels, levels, levels)
	}
	qx, q2, k := make([]VecVirtual, vectors), make([]VecVirtual, vectors), make([]VecVirtual, vectors)
	for i := range qx {
		qx[i], q2[i], k[i] = zeroed(), zeroed(), YMM()
	}
	Label(name + "Loop")
	for i := range k {
		VMOVDQU(Mem{Base: keys, Disp: 32 * i}, k[i])
	}
	for j := 0; j < l.dim; j++ {
		tx, t2, v := YMM(), YMM(), YMM()
		VBROADCASTSS(Mem{Base: x, Disp: latW + 4*j}, t2)
		VBROADCASTSS(Mem{Base: x, Disp: latX + 4*j}, tx)
		VMULPS(tx, t2, tx)
		VMULPS(levels, tx, tx)
		VMULPS(levels, t2, t2)
		VMULPS(levels, t2, t2)
		pick := func(t, k VecVirtual) {
			if l.dim == 8 {
				VPERMILPS(k, t, v)
			} else {
				VPERMPS(t, k, v)
			}
		}
		for i := range k {
			if j > 0 {
				VPSRLD(U8(l.bits), k[i], k[i])
			}
			pick(tx, k[i])
			VADDPS(v, qx[i], qx[i])
			pick(t2, k[i])
			VADDPS(v, q2[i], q2[i])
		}
	}
	ADDQ(I32(4*l.dim), x)
	ADDQ(I32(128), keys)
	DECQ(left)
	JNZ(LabelRef(name + "Loop"))
	for i := range qx {
		VMOVUPS(qx[i], Mem{Base: s, Disp: latSumQX + 32*i})
		VMOVUPS(q2[i], Mem{Base: s, Disp: latSumQ2 + 32*i})
	}
	VZEROUPPER()
	RET()
}

// latticeKernels are the kernels of IQ2 and IQ3.
func latticeKernels() {
	latticeWeigh()
	latticeFold()
	latticeCandidates()
	latticeSettle(lattice8, 32)
	latticeSettle(lattice8, 16)
	latticeSettle(lattice4, 32)
	latticeSums(lattice8, 32, 2)
	latticeSums(lattice8, 16, 3)
	latticeSums(lattice4, 32, 4)
	latticeSums(lattice4, 32, 3)
}

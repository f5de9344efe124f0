package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// Offsets of type latticeLanes. TestLatticeLayout holds them against the Go
// type.
const (
	latX      = 0
	latW      = latX + 1024
	latRoot   = latW + 1024
	latStarts = latRoot + 1024
	latKeys   = latStarts + 8*latRow
	latIDs    = latKeys + 8*latRow
	latScales = latIDs + 128
	latSumQX  = latScales + 128
	latSumQ2  = latSumQX + 128
	latTops   = latSumQ2 + 128
	latLows   = latTops + 128
	latSigns  = latLows + 128
	latTerms  = latSigns + 32

	// A row has room for 32 candidates and a vector that begins at the last.
	latRow = 4 * 40

	latCountBits = 12 // of a dir entry
)

// lattice holds what differs between the grids of 8 and of 4 values.
type lattice struct {
	dim  int // values of a run
	bits int // bits of a code
	top  float32
	keys int // the short lists in dir; the long ones follow
}

var (
	lattice8 = lattice{dim: 8, bits: 2, top: 2, keys: 6561}
	lattice4 = lattice{dim: 4, bits: 3, top: 7, keys: 4096}
)

func floats(name string, v ...float32) Mem {
	var w []uint32
	for _, f := range v {
		w = append(w, math.Float32bits(f))
	}
	return Words(name, w...)
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
	TEXT(name, NOSPLIT, "func(s *float32, at, trials int, dir *uint32, lists *uint16, rows *uint32)")
	Doc(name+" finds the keys of the entries for the runs of the group at byte at", "under the first candidates.")
	Pragma("noescape")
	s, x, trials := Load(Param("s"), GP64()), Load(Param("at"), GP64()), Load(Param("trials"), GP64())
	ADDQ(s, x)
	latticeRound(name, l, vectors, runs, s, x, trials, Load(Param("dir"), GP64()))
	latticeSearch(name, l, runs, s, x, trials)
	VZEROUPPER()
	RET()
}

func latticeRound(name string, l lattice, vectors, runs int, s, x, trials, dir Register) {
	one, half, zero := Eights("oneFloat", 0x3f800000), Eights("halfFloat", 0x3f000000), Zeroed()
	top, abs := Spread("latticeTop"+string(rune('0'+l.dim)), math.Float32bits(l.top)), Spread("absBits1", 0x7fffffff)
	trial := GP64()
	XORQ(trial, trial)
	Label(name + "Round")
	id, tie := YMM(), Zeroed()
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
		MOVL(r, Mem{Base: s, Index: trial, Scale: 4, Disp: latStarts + latRow*run})
	}
	var key [8]func(long int)
	if l.dim == 8 {
		VPMADDUBSW(Eights("latticePairs8", 0x03010301), b, b)
		VPMADDWD(Words("latticeFours8", 0x00090001, 0x00090001, 0x00090001, 0x00090001, 0x02d90051, 0x02d90051, 0x02d90051, 0x02d90051), b, b)
		VEXTRACTI128(U8(1), b, hi)
		VPADDD(hi, b.AsX(), hi)
		for r := 0; r < runs; r++ {
			key[r] = func(long int) { put(long, hi, r, r) }
		}
	} else {
		VPMADDUBSW(Eights("latticePairs4", 0x08010801), b, b)
		VPMADDWD(Eights("latticeFours4", 0x00400001), b, b)
		VEXTRACTI128(U8(1), b, hi)
		for r := 0; r < runs; r++ {
			key[r] = func(long int) { put(long, []VecVirtual{b.AsX().(VecVirtual), hi}[r%2], r/2, r) }
		}
	}
	for r := 0; r < runs; r++ {
		key[r](0)
	}
	limit, mask := Spread("latticeTie", math.Float32bits(0.49999)), GP32()
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
	INCQ(trial)
	CMPQ(trial, trials)
	JNE(LabelRef(name + "Round"))
}

// latticeSearch gives each lane a candidate. Neighbouring candidates often have
// the same key, and up to eight of them go through its list together. A
// neighbour has a row of terms for each value, at an offset in units of 8 bytes,
// and its key. For runs of 8, rows hold terms of a distance; for runs of 4, with
// more codes and shorter lists, they hold levels, and terms are made on the way.
func latticeSearch(name string, l lattice, runs int, s, x, trials Register) {
	at, row, run := GP64(), GP64(), GP64()
	if l.dim == 4 {
		XORQ(at, at)
		Label(name + "Levels")
		scale := YMM()
		VMOVUPS(Mem{Base: s, Index: at, Scale: 4, Disp: latScales}, scale)
		for c := 0; c < 8; c++ {
			v := YMM()
			VMULPS(levelTimes(c), scale, v)
			VMOVUPS(v, Mem{Base: s, Index: at, Scale: 4, Disp: latTerms + latRow*c})
		}
		ADDQ(I32(8), at)
		CMPQ(at, trials)
		JLT(LabelRef(name + "Levels"))
	}
	MOVQ(U32(uint32(runs)), run)
	MOVQ(s, row)
	Label(name + "Run")
	XORQ(at, at)
	var v, root [4]VecVirtual
	if l.dim == 4 {
		for i := range v {
			v[i], root[i] = YMM(), YMM()
			VBROADCASTSS(Mem{Base: x, Disp: latX + 4*i}, v[i])
			VBROADCASTSS(Mem{Base: x, Disp: latRoot + 4*i}, root[i])
		}
	} else {
		latticeTerms(name, s, x, trials, at)
	}
	Label(name + "Segment")
	count, same, list, terms := GP32(), GP32(), GP64(), GP64()
	m := YMM()
	MOVL(Mem{Base: row, Index: at, Scale: 4, Disp: latStarts}, list.As32())
	VPBROADCASTD(Mem{Base: row, Index: at, Scale: 4, Disp: latStarts}, m)
	VPCMPEQD(Mem{Base: row, Index: at, Scale: 4, Disp: latStarts}, m, m)
	VMOVMSKPS(m, same)
	NOTL(same)
	TZCNTL(same, same) // the complement of 8 bits is not 0
	LEAQ(Mem{Base: s, Index: at, Scale: 4, Disp: latTerms}, terms)
	MOVL(list.As32(), count)
	ANDL(U32(1<<latCountBits-1), count)
	SHRL(U8(latCountBits), list.As32())
	SHLQ(U8(1), list)
	ADDQ(Argument("lists"), list)
	rows, entry := Load(Param("rows"), GP64()), GP64()
	best, key := YMM(), YMM()
	VMOVUPS(Eights("maxFloat", math.Float32bits(math.MaxFloat32)), best)
	MOVWLZX(Mem{Base: list}, entry.As32())
	VPBROADCASTD(Mem{Base: rows, Index: entry, Scale: 4}, key)
	Label(name + "Neighbour")
	d, t := YMM(), YMM()
	MOVWLZX(Mem{Base: list}, entry.As32())
	for i := 0; i < l.dim; i++ {
		code := GP32()
		MOVBLZX(Mem{Base: rows, Index: entry, Scale: 4, Disp: 4 + i}, code)
		if l.dim == 8 {
			m := Mem{Base: terms, Index: code.As64(), Scale: 8, Disp: 3 * latRow * i}
			if i == 0 {
				VMOVUPS(m, d)
			} else {
				VADDPS(m, d, d)
			}
			continue
		}
		q, p := YMM(), t
		if i == 0 {
			p = d
		}
		VMOVUPS(Mem{Base: terms, Index: code.As64(), Scale: 8}, q)
		VSUBPS(v[i], q, q)
		VMULPS(root[i], q, p)
		VMULPS(q, p, p)
		if i > 0 {
			VADDPS(p, d, d)
		}
	}
	VCMPPS(U8(cmpLT), best, d, t)
	VMINPS(best, d, best)
	VPBROADCASTD(Mem{Base: rows, Index: entry, Scale: 4}, d)
	VBLENDVPS(t, d, key, key)
	ADDQ(I32(2), list)
	DECL(count)
	JNZ(LabelRef(name + "Neighbour"))
	VMOVDQU(key, Mem{Base: row, Index: at, Scale: 4, Disp: latKeys})
	ADDQ(same.As64(), at)
	CMPQ(at, trials)
	JLT(LabelRef(name + "Segment"))
	ADDQ(I32(4*l.dim), x)
	ADDQ(I32(latRow), row)
	DECQ(run)
	JNZ(LabelRef(name + "Run"))
}

// levelTimes is the level of a code in all lanes.
func levelTimes(c int) Mem {
	v := float32(2*c + 1)
	return floats("latticeLevel"+string(rune('0'+c)), v, v, v, v, v, v, v, v)
}

// latticeTerms makes the rows of terms of a run of 8: for each value those of its
// three codes. at is 0 before and after.
func latticeTerms(name string, s, x, trials, at Register) {
	Label(name + "Terms")
	var q [3]VecVirtual
	for c := range q {
		q[c] = YMM()
	}
	VMOVUPS(Mem{Base: s, Index: at, Scale: 4, Disp: latScales}, q[0])
	VMULPS(levelTimes(1), q[0], q[1])
	VMULPS(levelTimes(2), q[0], q[2])
	for i := 0; i < 8; i++ {
		v, root := YMM(), YMM()
		VBROADCASTSS(Mem{Base: x, Disp: latX + 4*i}, v)
		VBROADCASTSS(Mem{Base: x, Disp: latRoot + 4*i}, root)
		for c := range q {
			d, t := YMM(), YMM()
			VSUBPS(v, q[c], d)
			VMULPS(root, d, t)
			VMULPS(d, t, t)
			VMOVUPS(t, Mem{Base: s, Index: at, Scale: 4, Disp: latTerms + latRow*(3*i+c)})
		}
	}
	ADDQ(I32(8), at)
	CMPQ(at, trials)
	JLT(LabelRef(name + "Terms"))
	XORQ(at, at)
}

func oddLevels() Mem { return floats("oddLevels", 1, 3, 5, 7, 9, 11, 13, 15) }

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
	levels := Fetch(oddLevels())
	if l.dim == 8 {
		VPERM2F128(U8(0), levels, levels, levels)
	}
	qx, q2, k := make([]VecVirtual, vectors), make([]VecVirtual, vectors), make([]VecVirtual, vectors)
	for i := range qx {
		qx[i], q2[i], k[i] = Zeroed(), Zeroed(), YMM()
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
	ADDQ(I32(latRow), keys)
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

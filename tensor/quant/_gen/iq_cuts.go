package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// Levels of codes 0, 1 and 2 for shifts up and down.
var iq1Levels = [2][3]float32{{-0.875, 0.125, 1.125}, {-1.125, -0.125, 0.875}}

// level is a level in all lanes of a constant.
func level(v float32) Mem {
	names := map[float32]string{-0.875: "M875", 0.125: "P125", 1.125: "P1125", -1.125: "M1125", -0.125: "M125", 0.875: "P875",
		0.75: "P75", -1.25: "M125x", 1.25: "P125x", -0.75: "M75"}
	return Eights("iq1Level"+names[v], math.Float32bits(v))
}

// splitScan tries all cuts of eight blocks in the scalar order.
//
// The scalar search takes a cut that is better than the best so far. Here a few
// cuts are looked at first, and the search starts from a thousandth below the
// best of them: fewer cuts are taken on the way, and the last one is the same.
// For among at most 1122 cuts there is a gap, between a thousandth and a ten
// thousandth below that best, that is wider than what rounding can move: cuts
// above it always beat the ones below, and one of them is the best looked at.
// This holds where no product leaves the range of normal numbers; other blocks
// get no cut.
type splitScan struct {
	name      string
	n, shifts int
	s         Register
	best      VecVirtual
	// hoist loads what depends on the first cut, at byte row of the sums. Sums
	// gives the two sums of shift k at the second; negative says that the first
	// has the wrong sign.
	hoist    func(row Register)
	sums     func(row Register, k int) (qx, q2 VecVirtual)
	all      func(row Register) (hit VecVirtual)
	negative bool
}

func (c *splitScan) row(off int, row Register) Mem {
	return Mem{Base: c.s, Index: row, Scale: 1, Disp: off}
}

// better is the scalar comparison without the test for a positive q2.
func (c *splitScan) better(qx, q2 VecVirtual) VecVirtual {
	a, b := YMM(), YMM()
	VMULPS(qx, qx, a)
	VMULPS(q2, c.best, b)
	VCMPPS(U8(cmpGT), b, a, a)
	return a
}

func (c *splitScan) generate() {
	at := func(l string) string { return c.name + l }
	i1, i2 := GP64(), GP64()
	end := uint32(32 * c.n)
	step := uint32(32 * c.n / 8)
	// Look at 16 cuts.
	seed := Zeroed()
	MOVQ(U32(step), i1)
	Label(at("Seed1"))
	c.hoist(i1)
	MOVQ(U32(end/2), i2)
	Label(at("Seed2"))
	for k := 0; k < c.shifts; k++ {
		qx, q2 := c.sums(i2, k)
		VDIVPS(q2, qx, q2)
		VMULPS(qx, q2, q2)
		VMAXPS(seed, q2, seed)
	}
	ADDQ(U32(step), i2)
	CMPQ(i2, U32(end))
	JNE(LabelRef(at("Seed2")))
	ADDQ(U32(step), i1)
	CMPQ(i1, U32(end/2+step))
	JNE(LabelRef(at("Seed1")))
	// Blocks that are zero or beyond the usual take no part.
	ok, t, w := YMM(), YMM(), YMM()
	VMOVUPS(Mem{Base: c.s, Disp: spSumW + 32*c.n}, w)
	if c.shifts == 4 {
		VADDPS(Mem{Base: c.s, Disp: spSumW + spRows + 32*c.n}, w, w)
	}
	VCMPPS(U8(cmpGE), Eights("splitLeastW", math.Float32bits(1.0/(1<<45))), w, ok)
	VCMPPS(U8(cmpLE), Eights("splitMost", math.Float32bits(1<<60)), w, t)
	VANDPS(t, ok, ok)
	VMULPS(Mem{Base: c.s, Disp: spTop}, w, w)
	VCMPPS(U8(cmpLE), Eights("splitMost", math.Float32bits(1<<60)), w, t)
	VANDPS(t, ok, ok)
	eps := float32(1e-12)
	if c.shifts == 4 {
		eps = 1e-7
	}
	VMOVUPS(Mem{Base: c.s, Disp: spTop}, w)
	VCMPPS(U8(cmpGE), Eights(c.name+"Eps", math.Float32bits(eps)), w, t)
	VANDPS(t, ok, ok)
	VCMPPS(U8(cmpGE), Eights("splitLeast", math.Float32bits(1.0/(1<<35)/(1<<35))), seed, t)
	VANDPS(t, ok, ok)
	VCMPPS(U8(cmpLE), Eights("splitMost", math.Float32bits(1<<60)), seed, t)
	VANDPS(t, ok, ok)
	VMULPS(Eights("splitBelow", math.Float32bits(0.999)), seed, seed)
	// Nothing is greater than a NaN, whatever the sign of q2, which rounding
	// among the smallest numbers can turn.
	VMOVUPS(Eights("splitNever", 0x7fc00000), c.best)
	VBLENDVPS(ok, seed, c.best, c.best)
	VPCMPEQD(t, t, t)
	VMOVDQU(t, Mem{Base: c.s, Disp: spCut})
	VMOVUPS(t, Mem{Base: c.s, Disp: spScale})

	XORQ(i1, i1)
	Label(at("First"))
	c.hoist(i1)
	MOVQ(i1, i2)
	Label(at("Second"))
	hit, mask := c.all(i2), GP32()
	VMOVMSKPS(hit, mask)
	TESTL(mask, mask)
	JNZ(LabelRef(at("Hit")))
	Label(at("Next"))
	ADDQ(I32(32), i2)
	CMPQ(i2, U32(end))
	JLE(LabelRef(at("Second")))
	ADDQ(I32(32), i1)
	CMPQ(i1, U32(end))
	JLE(LabelRef(at("First")))
	VZEROUPPER()
	RET()

	Label(at("Hit"))
	cut := GP32()
	MOVL(i1.As32(), cut)
	SHLL(U8(16), cut)
	ORL(i2.As32(), cut)
	for k := 0; k < c.shifts; k++ {
		qx, q2 := c.sums(i2, k)
		m := c.better(qx, q2)
		r := YMM()
		VDIVPS(q2, qx, q2)
		VMULPS(qx, q2, qx)
		VBLENDVPS(m, qx, c.best, c.best)
		if c.negative {
			VXORPS(Eights("signBit", 0x80000000), q2, q2)
		}
		VMASKMOVPS(q2, m, Mem{Base: c.s, Disp: spScale})
		VMOVD(cut, r.AsX())
		VPBROADCASTD(r.AsX(), r)
		VMASKMOVPS(r, m, Mem{Base: c.s, Disp: spCut})
		if k+1 < c.shifts {
			INCL(cut)
		}
	}
	JMP(LabelRef(at("Next")))
}

// splitScan32 is the search of IQ1_S.
func splitScan32() {
	c := &splitScan{name: "splitScan32SIMD", n: 32, shifts: 2, best: YMM()}
	TEXT(c.name, NOSPLIT, "func(s *float32)")
	Doc(c.name + " finds the cuts of eight blocks of IQ1_S; -1 is none.")
	Pragma("noescape")
	c.s = Load(Param("s"), GP64())
	// What the last run adds, by second cut.
	p, n := GP64(), GP64()
	MOVQ(c.s, p)
	MOVQ(U32(33), n)
	x, w := YMM(), YMM()
	VMOVUPS(Mem{Base: c.s, Disp: spSumX + 32*c.n}, x)
	VMOVUPS(Mem{Base: c.s, Disp: spSumW + 32*c.n}, w)
	Label(c.name + "Last")
	for k := 0; k < 2; k++ {
		v, t := level(iq1Levels[k][2]), YMM()
		VSUBPS(Mem{Base: p, Disp: spSumX}, x, t)
		VMULPS(v, t, t)
		VMOVUPS(t, Mem{Base: p, Disp: spLast + k*spRows})
		VSUBPS(Mem{Base: p, Disp: spSumW}, w, t)
		VMULPS(v, t, t)
		VMULPS(v, t, t)
		VMOVUPS(t, Mem{Base: p, Disp: spLast + (2+k)*spRows})
	}
	ADDQ(I32(32), p)
	DECQ(n)
	JNZ(LabelRef(c.name + "Last"))
	fx, fw, eighth := YMM(), YMM(), YMM()
	VMOVUPS(level(0.125), eighth)
	var ax, aw [2]VecVirtual
	for k := range ax {
		ax[k], aw[k] = YMM(), YMM()
	}
	c.hoist = func(row Register) {
		VMOVUPS(c.row(spSumX, row), fx)
		VMOVUPS(c.row(spSumW, row), fw)
		for k := range ax {
			v := level(iq1Levels[k][0])
			VMULPS(v, fx, ax[k])
			VMULPS(v, fw, aw[k])
			VMULPS(v, aw[k], aw[k])
		}
	}
	// The middle levels are an eighth up and down.
	middle := func(row Register) (x, w VecVirtual) {
		x, w = YMM(), YMM()
		VMOVUPS(c.row(spSumX, row), x)
		VSUBPS(fx, x, x)
		VMULPS(eighth, x, x)
		VMOVUPS(c.row(spSumW, row), w)
		VSUBPS(fw, w, w)
		VMULPS(eighth, w, w)
		VMULPS(eighth, w, w)
		return x, w
	}
	with := func(row Register, k int, x, w VecVirtual) (qx, q2 VecVirtual) {
		qx, q2 = YMM(), YMM()
		if k == 0 {
			VADDPS(x, ax[k], qx)
		} else {
			VSUBPS(x, ax[k], qx)
		}
		VADDPS(c.row(spLast+k*spRows, row), qx, qx)
		VADDPS(w, aw[k], q2)
		VADDPS(c.row(spLast+(2+k)*spRows, row), q2, q2)
		return qx, q2
	}
	c.sums = func(row Register, k int) (qx, q2 VecVirtual) {
		x, w := middle(row)
		return with(row, k, x, w)
	}
	c.all = func(row Register) VecVirtual {
		x, w := middle(row)
		hit := c.better(with(row, 0, x, w))
		VORPS(c.better(with(row, 1, x, w)), hit, hit)
		return hit
	}
	c.generate()
}

// splitScan16 is the search of IQ1_M, whose blocks have halves with a shift each.
func splitScan16() {
	c := &splitScan{name: "splitScan16SIMD", n: 16, shifts: 4, best: YMM(), negative: true}
	TEXT(c.name, NOSPLIT, "func(s *float32)")
	Doc(c.name + " finds the cuts of eight blocks of IQ1_M; -1 is none.")
	Pragma("noescape")
	c.s = Load(Param("s"), GP64())
	// Differences of squared levels.
	diff := func(k, i int) float32 {
		v := &iq1Levels[k]
		return v[i]*v[i] - v[i+1]*v[i+1]
	}
	p, n := GP64(), GP64()
	MOVQ(c.s, p)
	MOVQ(U32(17), n)
	Label(c.name + "Last")
	for h := 0; h < 2; h++ {
		w, t := YMM(), YMM()
		VMOVUPS(Mem{Base: p, Disp: spSumW + h*spRows}, w)
		for k := 0; k < 2; k++ {
			VMULPS(level(diff(k, 1)), w, t)
			VMOVUPS(t, Mem{Base: p, Disp: spLast + (2*h+k)*spRows})
		}
	}
	ADDQ(I32(32), p)
	DECQ(n)
	JNZ(LabelRef(c.name + "Last"))
	var aw [2][2]VecVirtual
	for h := range aw {
		x, w := YMM(), YMM()
		VMOVUPS(Mem{Base: c.s, Disp: spSumX + h*spRows + 32*c.n}, x)
		VMOVUPS(Mem{Base: c.s, Disp: spSumW + h*spRows + 32*c.n}, w)
		for k := range aw[h] {
			aw[h][k] = YMM()
			t, v := YMM(), level(iq1Levels[k][2])
			VMULPS(v, x, t)
			VMOVUPS(t, Mem{Base: c.s, Disp: spTotal + 32*(2*h+k)})
			VMULPS(v, w, t)
			VMULPS(v, t, t)
			VMOVUPS(t, Mem{Base: c.s, Disp: spKeys + 32*(2*h+k)}) // free until the keys are made
		}
	}
	c.hoist = func(row Register) {
		for h := range aw {
			x := YMM()
			VMOVUPS(c.row(spSumX+h*spRows, row), x)
			VMOVUPS(x, Mem{Base: c.s, Disp: spFirst + 32*h})
			VMOVUPS(c.row(spSumW+h*spRows, row), x)
			for k := range aw[h] {
				VMULPS(level(diff(k, 0)), x, aw[h][k])
				VADDPS(Mem{Base: c.s, Disp: spKeys + 32*(2*h+k)}, aw[h][k], aw[h][k])
			}
		}
	}
	// The negative of the first sum is as good: its square is the same.
	runs := func(row Register, h int) VecVirtual {
		x := YMM()
		VMOVUPS(c.row(spSumX+h*spRows, row), x)
		VADDPS(Mem{Base: c.s, Disp: spFirst + 32*h}, x, x)
		return x
	}
	half := func(row Register, h, k int, x VecVirtual) (qx, q2 VecVirtual) {
		qx, q2 = YMM(), YMM()
		VSUBPS(Mem{Base: c.s, Disp: spTotal + 32*(2*h+k)}, x, qx)
		VADDPS(c.row(spLast+(2*h+k)*spRows, row), aw[h][k], q2)
		return qx, q2
	}
	c.sums = func(row Register, k int) (qx, q2 VecVirtual) {
		qx, q2 = half(row, 0, k>>1, runs(row, 0))
		x, w := half(row, 1, k&1, runs(row, 1))
		VADDPS(x, qx, qx)
		VADDPS(w, q2, q2)
		return qx, q2
	}
	c.all = func(row Register) VecVirtual {
		second := runs(row, 1)
		x0, w0 := half(row, 1, 0, second)
		x1, w1 := half(row, 1, 1, second)
		first := runs(row, 0)
		hit := YMM()
		for k := 0; k < 2; k++ {
			x, w := half(row, 0, k, first)
			qx, q2 := YMM(), YMM()
			VADDPS(x0, x, qx)
			VADDPS(w0, w, q2)
			m := c.better(qx, q2)
			if k == 0 {
				VMOVAPS(m, hit)
			} else {
				VORPS(m, hit, hit)
			}
			VADDPS(x1, x, x)
			VADDPS(w1, w, w)
			VORPS(c.better(x, w), hit, hit)
		}
		return hit
	}
	c.generate()
}

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// A gemv kernel multiplies 8 whole rows of weights, as the file holds them, with
// one activation row: what a token of an answer needs. There is no tile between
// memory and the products, so a byte of weights is touched once. As in a single
// kernel, products of a unit are added over integer lanes and lane i is row i
// when the scales come in.

// gemv holds the places that the next unit of 8 rows is read from.
type gemv struct {
	// Rows 0 and 4, and once and three times the distance of rows.
	first, fifth, apart, triple Register
	ahead                       Register // bytes that will be needed later
	a, da, sums                 Register
	bytes                       int // of a unit
}

// newGemv begins the function of a type with units of so many bytes.
func newGemv(name string, bytes int, sums string) (g gemv, units Register, acc VecVirtual) {
	TEXT("gemv"+name+"AVX2", NOSPLIT, "func(dst *float32, w *byte, rowBytes, ahead int, a *int8, da *float32, sums *"+sums+", units int)")
	Doc("gemv"+name+"AVX2 multiplies 8 rows of "+name+", rowBytes apart, with an activation row. Bytes that lie", "ahead are asked for early.")
	Pragma("noescape")
	g = gemv{first: Pointer("w"), fifth: GP64(), apart: Pointer("rowBytes"), triple: GP64(), ahead: Pointer("ahead"),
		a: Pointer("a"), da: Pointer("da"), sums: Pointer("sums"), bytes: bytes}
	LEAQ(Mem{Base: g.first, Index: g.apart, Scale: 4}, g.fifth)
	LEAQ(Mem{Base: g.apart, Index: g.apart, Scale: 2}, g.triple)
	ADDQ(g.first, g.ahead)
	acc = YMM()
	VXORPS(acc, acc, acc)
	return g, Pointer("units"), acc
}

// at is an address in row i's unit.
func (g gemv) at(i, disp int) Mem {
	m := Mem{Base: g.first, Disp: disp}
	if i >= 4 {
		m.Base = g.fifth
	}
	switch i % 4 {
	case 1, 2:
		m.Index, m.Scale = g.apart, uint8(i%4)
	case 3:
		m.Index, m.Scale = g.triple, 1
	}
	return m
}

// ask asks for what lies ahead, part i of parts. 8 rows lie one behind the other,
// and so does what is asked for: in the order of addresses, not of its use.
// Requests that come all at once would wait for each other.
func (g gemv) ask(i, parts int) {
	for at := 0; at < 8*g.bytes; at += 64 {
		if at*parts/(8*g.bytes) == i {
			PREFETCHT0(Mem{Base: g.ahead, Disp: at})
		}
	}
}

// next goes on to the next unit.
func (g gemv) next(activations, sums int) {
	ADDQ(I32(8*g.bytes), g.ahead)
	ADDQ(I32(g.bytes), g.first)
	ADDQ(I32(g.bytes), g.fifth)
	ADDQ(I32(activations), g.a)
	ADDQ(I32(4), g.da)
	ADDQ(I32(sums), g.sums)
}

// end writes the sums, NaNs with the bits of results.
func (g gemv) end(acc VecVirtual) {
	bad := YMM()
	VCMPPS(U8(3), acc, acc, bad)
	VBLENDVPS(bad, quietNaNs(), acc, acc)
	VMOVUPS(acc, Mem{Base: Pointer("dst")})
	VZEROUPPER()
	RET()
}

// scales gives the F16 at an offset of each row as floats, lane i for row i.
func (g gemv) scales(disp int) VecVirtual {
	x, y := XMM(), YMM()
	VPXOR(x, x, x)
	for i := range 8 {
		VPINSRW(U8(i), g.at(i, disp), x, x)
	}
	VCVTPH2PS(x, y)
	return y
}

// scalePairs gives the F16 at an offset and those behind them.
func (g gemv) scalePairs(disp int) (d, m VecVirtual) {
	x := [2]VecVirtual{XMM(), XMM()}
	for i := range 8 {
		if i%4 == 0 {
			VMOVD(g.at(i, disp), x[i/4])
		} else {
			VPINSRD(U8(i%4), g.at(i, disp), x[i/4], x[i/4])
		}
	}
	split, y := splitHalves().AsX(), [2]VecVirtual{XMM(), XMM()}
	for i := range x {
		VPSHUFB(split, x[i], x[i])
	}
	VPUNPCKLQDQ(x[1], x[0], y[0])
	VPUNPCKHQDQ(x[1], x[0], y[1])
	d, m = YMM(), YMM()
	VCVTPH2PS(y[0], d)
	VCVTPH2PS(y[1], m)
	return d, m
}

// addTerm adds float32(n) * (d*da) to acc, or takes it away.
func addTerm(op func(...Op), acc, n, d, da VecVirtual) {
	VMULPS(da, d, d)
	VCVTDQ2PS(n, n)
	VMULPS(d, n, n)
	op(n, acc, acc)
}

// sum4 adds the lanes of 4 vectors within halves: lane i of a half is the sum of
// that half of vector i. Each is made when it is needed.
func sum4(first int, row func(i int) VecVirtual) VecVirtual {
	pair := func(i int) VecVirtual {
		a, b := row(i), row(i+1)
		VPHADDD(b, a, a)
		return a
	}
	a, b := pair(first), pair(first+2)
	VPHADDD(b, a, a)
	return a
}

// joinHalves gives the sums of 8 vectors of those that sum4 made of each four.
func joinHalves(low, high VecVirtual) VecVirtual {
	n := YMM()
	VPERM2I128(U8(0x20), high, low, n)
	VPERM2I128(U8(0x31), high, low, high)
	VPADDD(high, n, n)
	return n
}

func sum8(row func(i int) VecVirtual) VecVirtual { return joinHalves(sum4(0, row), sum4(4, row)) }

// gemvSigned is for units of 32 signed codes, which value reads.
func gemvSigned(name string, bytes int, constants func(), value func(m gemv, i int) VecVirtual) {
	g, units, acc := newGemv(name, bytes, "int32")
	constants()
	Loop("loop", units, func() {
		x, da := YMM(), YMM()
		VMOVDQU(Mem{Base: g.a}, x)
		n := sum8(func(i int) VecVirtual {
			g.ask(i, 8)
			// -128 has no opposite in 8 bits, so it is x that takes the sign.
			w, s := value(g, i), YMM()
			VPSIGNB(w, x, s)
			VPABSB(w, w)
			VPMADDUBSW(s, w, w)
			VPMADDWD(pairOnes(), w, w)
			return w
		})
		VBROADCASTSS(Mem{Base: g.da}, da)
		addTerm(VADDPS, acc, n, g.scales(0), da)
		g.next(32, 4)
	})
	g.end(acc)
}

// gemvNibbles is for units of 32 codes without a sign, whose lower 4 bits lie in 16
// bytes from an offset on: the low nibbles of these, then the high ones. Row i
// has the lower half of a vector, row i+4 the upper one. fifth is the offset of
// the fifth bits, 0 for none; bias the logarithm of what codes are too high, or 0.
func gemvNibbles(name string, bytes, at, fifth, bias int, affine bool) {
	g, units, acc := newGemv(name, bytes, "int32")
	low4 := fill("low4", 15)
	var spread [2]Mem
	var bits, sixteen VecVirtual
	if fifth > 0 {
		spread[0] = Words("spreadLow", 0, 0, 0x01010101, 0x01010101, 0, 0, 0x01010101, 0x01010101)
		spread[1] = Words("spreadHigh", 0x02020202, 0x02020202, 0x03030303, 0x03030303, 0x02020202, 0x02020202, 0x03030303, 0x03030303)
		_, bits, sixteen = fifthBitsConstants()
	}
	both := func(i, at int) VecVirtual {
		y := YMM()
		VMOVDQU(g.at(i, at), y.AsX())
		VINSERTI128(U8(1), g.at(i+4, at), y, y)
		return y
	}
	Loop("loop", units, func() {
		x := YMMs(2)
		for k := range x {
			VBROADCASTI128(Mem{Base: g.a, Disp: 16 * k}, x[k])
		}
		// Products of four codes fit 16 bits, and so do the sums of two such.
		rows := func(i int) VecVirtual {
			g.ask(i, 4)
			q, high := both(i, at), YMM()
			VPSRLW(U8(4), q, high)
			VPAND(low4, q, q)
			VPAND(low4, high, high)
			if fifth > 0 {
				h, other := YMM(), YMM()
				VPBROADCASTD(g.at(i, fifth), h)
				VPBROADCASTD(g.at(i+4, fifth), other)
				VPBLENDD(U8(0xf0), other, h, h)
				for k, v := range []VecVirtual{q, high} {
					y := YMM()
					VPSHUFB(spread[k], h, y)
					VPAND(bits, y, y)
					VPCMPEQB(bits, y, y)
					VPAND(sixteen, y, y)
					VPOR(y, v, v)
				}
			}
			VPMADDUBSW(x[0], q, q)
			VPMADDUBSW(x[1], high, high)
			VPADDW(high, q, q)
			VPMADDWD(pairOnes(), q, q)
			return q
		}
		packed := func(a, b VecVirtual) VecVirtual {
			VPACKSSDW(b, a, a)
			VPMADDWD(pairOnes(), a, a)
			return a
		}
		n, last := packed(rows(0), rows(1)), packed(rows(2), rows(3))
		if fifth > 0 {
			VPHADDD(last, n, n)
		} else {
			n = packed(n, last)
		}
		da := YMM()
		VBROADCASTSS(Mem{Base: g.da}, da)
		if affine {
			d, m := g.scalePairs(0)
			addTerm(VADDPS, acc, n, d, da)
			sum := YMM()
			VPBROADCASTD(Mem{Base: g.sums}, sum)
			addTerm(VADDPS, acc, sum, m, da)
		} else {
			sum := YMM()
			VPBROADCASTD(Mem{Base: g.sums}, sum)
			VPSLLD(U8(bias), sum, sum)
			VPSUBD(sum, n, n)
			addTerm(VADDPS, acc, n, g.scales(0), da)
		}
		g.next(32, 4)
	})
	g.end(acc)
}

func gemvs32() {
	gemvNibbles("Q4_0", 18, 2, 0, 3, false)
	gemvNibbles("Q4_1", 20, 4, 0, 0, true)
	gemvNibbles("Q5_0", 22, 6, 2, 4, false)
	gemvNibbles("Q5_1", 24, 8, 4, 0, true)
	gemvSigned("Q8_0", 34, func() {}, func(g gemv, i int) VecVirtual { return Fetch(g.at(i, 2)) })
	var low, shifts, values VecVirtual
	gemvSigned("IQ4_NL", 18, func() { shifts, low, values = highFour(), fill("low4", 15), table("iq4Codes", 0, iq4...) }, func(g gemv, i int) VecVirtual {
		y := nibblesAt(g.at(i, 2), shifts, low)
		VPSHUFB(y, values, y)
		return y
	})
}

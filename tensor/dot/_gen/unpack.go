package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// An unpacker writes rows of a tile from blocks of a type. Types without minima,
// integer scales or corrections leave those of the tile alone. F16 scales are
// copied to their places as they are, the minimum behind the scale; widen does
// the rest for 8 rows at once.

// block holds the places that the next block of a type is read from and
// written to. Units of the tile lie 32 bytes apart in d, m and corr, so that one
// index does for all.
type block struct {
	codes, d, m, scales, corr, src, at Register
	skip, unit                         int // bytes and units before the block
	width                              int // values in a unit
}

// unpacker writes the function of a type with blocks of so many bytes, units in
// a block and values in a unit. Constants are loaded before the loop. The bytes
// that lie ahead are asked for early: unpacking and multiplying take turns, and
// the memory would idle during the latter.
func unpacker(name string, bytes, units, width int, constants func(), body func(b block)) {
	TEXT("unpack"+name+"AVX2", NOSPLIT, "func(codes *byte, d, m *float32, scales *uint32, corr *int16, src *byte, blocks, rows, rowBytes, ahead int)")
	Doc("unpack" + name + "AVX2 is unpack" + name + " for several rows.")
	Pragma("noescape")
	b := block{codes: Pointer("codes"), d: Pointer("d"), m: Pointer("m"), scales: Pointer("scales"), corr: Pointer("corr"),
		src: GP64(), at: GP64(), width: width}
	row, rows, rowBytes, ahead := Pointer("src"), Pointer("rows"), Pointer("rowBytes"), Pointer("ahead")
	constants()
	// Small blocks are taken two at a time.
	together := 1
	if width == 32 {
		together = 2
	}
	blocks := func(n int) {
		for at := 0; at < n*bytes; at += 64 {
			PREFETCHT1(Mem{Base: b.src, Index: ahead, Scale: 1, Disp: at})
		}
		for i := range n {
			b := b
			b.skip, b.unit = i*bytes, i*units
			body(b)
		}
		ADDQ(I32(n*bytes), b.src)
		ADDQ(I32(32*n*units), b.at)
	}
	Loop("rows", rows, func() {
		n := Load(Param("blocks"), GP64())
		MOVQ(row, b.src)
		XORQ(b.at, b.at)
		if together == 2 {
			SHRQ(U8(1), n)
			JZ(LabelRef("odd"))
		}
		Loop("blocks", n, func() { blocks(together) })
		if together == 2 {
			Label("odd")
			rest := Load(Param("blocks"), GP64())
			TESTQ(U32(1), rest)
			JZ(LabelRef("next"))
			blocks(1)
			Label("next")
		}
		ADDQ(rowBytes, row)
		ADDQ(I32(tileWidth), b.codes)
		ADDQ(I32(4), b.d)
		ADDQ(I32(4), b.m)
		if width == 256 {
			ADDQ(I32(tileWidth/16*4), b.scales)
			ADDQ(I32(tileWidth/16*2), b.corr)
		}
	})
	VZEROUPPER()
	RET()
}

func fill(name string, b uint32) VecVirtual { return Fetch(Eights(name, b*0x01010101)) }

// from is an address in the source.
func (b block) from(at int) Mem { return Mem{Base: b.src, Disp: b.skip + at} }

// slot is a place of the tile that has 32 bytes for a unit.
func (b block) slot(base Register, at int) Mem {
	return Mem{Base: base, Index: b.at, Scale: 1, Disp: 32*b.unit + at}
}

// scale16 copies the scale at an offset, and what follows it if there is room.
func (b block) scale16(at int, last bool) {
	x := GP32()
	if last {
		MOVWLZX(b.from(at), x)
	} else {
		MOVL(b.from(at), x)
	}
	MOVL(x, b.slot(b.d, 0))
}

// nibbles gives the 16 low nibbles of 16 bytes, then the high ones. Shifts are
// those of highFour.
func (b block) nibbles(at int, shifts, mask VecVirtual) VecVirtual {
	return nibblesAt(b.from(at), shifts, mask)
}

func nibblesAt(m Mem, shifts, mask VecVirtual) VecVirtual {
	y := YMM()
	VBROADCASTI128(m, y)
	VPSRLVQ(shifts, y, y)
	VPAND(mask, y, y)
	return y
}

// highFour shifts the upper half by a nibble.
func highFour() VecVirtual { return Fetch(Words("highFour", 0, 0, 0, 0, 4, 0, 4, 0)) }

// store writes 32 codes.
func (b block) store(y VecVirtual, at int) {
	m := b.slot(b.codes, at)
	if b.width == 256 {
		m = Mem{Base: b.codes, Index: b.at, Scale: 8, Disp: at}
	}
	VMOVDQU(y, m)
}

// scaleSlot is a place among the integer scales.
func (b block) scaleSlot(at int) Mem { return Mem{Base: b.scales, Index: b.at, Scale: 2, Disp: at} }

// splitHalves puts the lower halves of a lane's words first.
func splitHalves() VecVirtual {
	return Fetch(Words("splitHalves", 0x05040100, 0x0d0c0908, 0x07060302, 0x0f0e0b0a, 0x05040100, 0x0d0c0908, 0x07060302, 0x0f0e0b0a))
}

// widen turns F16 scales that unpackers copied into float32: lane i is row i.
func widen(both bool) {
	name := "widenAVX2"
	if both {
		name = "widenBothAVX2"
	}
	TEXT(name, NOSPLIT, "func(d, m *float32, units int)")
	if both {
		Doc(name + " makes float32 of the F16 pairs in d, the second ones to m.")
	} else {
		Doc(name + " makes float32 of the F16 in the lower halves of d.")
	}
	Pragma("noescape")
	d, m, units := Pointer("d"), Pointer("m"), Pointer("units")
	// Lower halves of a lane's words first, upper halves after them.
	split := splitHalves()
	Loop("loop", units, func() {
		x, y := YMM(), YMM()
		VPSHUFB(split, Fetch(Mem{Base: d}), x)
		VPERMQ(U8(0xd8), x, x)
		VCVTPH2PS(x.AsX(), y)
		VMOVUPS(y, Mem{Base: d})
		if both {
			h := XMM()
			VEXTRACTI128(U8(1), x, h)
			VCVTPH2PS(h, y)
			VMOVUPS(y, Mem{Base: m})
		}
		ADDQ(I32(32), d)
		ADDQ(I32(32), m)
	})
	VZEROUPPER()
	RET()
}

// table loads 16 codes into both halves of a register.
func table(name string, bias int, v ...int) VecVirtual {
	var w [8]uint32
	for i := range 32 {
		w[i/4] |= uint32(uint8(v[i%16]+bias)) << (8 * (i % 4))
	}
	return Fetch(Words(name, w[:]...))
}

// fifthBits turns the bits of the word at an offset into bit 4 of 32 bytes.
func (b block) fifthBits(at int, spread, bits, sixteen VecVirtual) VecVirtual {
	return fifthBitsAt(b.from(at), spread, bits, sixteen)
}

func fifthBitsConstants() (spread, bits, sixteen VecVirtual) {
	spread = Fetch(Words("spreadBits", 0, 0, 0x01010101, 0x01010101, 0x02020202, 0x02020202, 0x03030303, 0x03030303))
	bits = Fetch(Words("eachBit", 0x08040201, 0x80402010, 0x08040201, 0x80402010, 0x08040201, 0x80402010, 0x08040201, 0x80402010))
	return spread, bits, fill("sixteen", 16)
}

func fifthBitsAt(m Mem, spread, bits, sixteen VecVirtual) VecVirtual {
	y := YMM()
	VPBROADCASTD(m, y)
	VPSHUFB(spread, y, y)
	VPAND(bits, y, y)
	VPCMPEQB(bits, y, y)
	VPAND(sixteen, y, y)
	return y
}

var (
	fp4 = []int{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
	iq4 = []int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
)

func unpackers32() {
	var low, eight, values, shifts VecVirtual
	unpacker("Q4_0", 18, 1, 32, func() { shifts, low, eight = highFour(), fill("low4", 15), fill("eight", 8) }, func(b block) {
		b.scale16(0, false)
		y := b.nibbles(2, shifts, low)
		VPADDB(eight, y, y)
		b.store(y, 0)
	})
	unpacker("KMCUQ4", 18, 1, 32, func() { low, eight = fill("low4", 15), fill("eight", 8) }, func(b block) {
		b.scale16(0, false)
		x, hi, y := XMM(), XMM(), YMM()
		VMOVDQU(b.from(2), x)
		VPSRLW(U8(4), x, hi)
		VPAND(low.AsX(), x, x)
		VPAND(low.AsX(), hi, hi)
		VPUNPCKLBW(hi, x, y.AsX())
		VPUNPCKHBW(hi, x, x)
		VINSERTI128(U8(1), x, y, y)
		VPADDB(eight, y, y)
		b.store(y, 0)
	})
	unpacker("Q4_1", 20, 1, 32, func() { shifts, low = highFour(), fill("low4", 15) }, func(b block) {
		b.scale16(0, false)
		b.store(b.nibbles(4, shifts, low), 0)
	})
	var spread, bits, sixteen VecVirtual
	five := func() {
		shifts, low = highFour(), fill("low4", 15)
		spread, bits, sixteen = fifthBitsConstants()
	}
	unpacker("Q5_0", 22, 1, 32, five, func(b block) {
		b.scale16(0, false)
		y := b.nibbles(6, shifts, low)
		VPOR(b.fifthBits(2, spread, bits, sixteen), y, y)
		b.store(y, 0)
	})
	unpacker("Q5_1", 24, 1, 32, five, func(b block) {
		b.scale16(0, false)
		y := b.nibbles(8, shifts, low)
		VPOR(b.fifthBits(4, spread, bits, sixteen), y, y)
		b.store(y, 0)
	})
	unpacker("Q8_0", 34, 1, 32, func() {}, func(b block) {
		b.scale16(0, false)
		y := YMM()
		VMOVDQU(b.from(2), y)
		b.store(y, 0)
	})
	unpacker("IQ4_NL", 18, 1, 32, func() { shifts, low, values = highFour(), fill("low4", 15), table("iq4Codes", 0, iq4...) }, func(b block) {
		b.scale16(0, false)
		y := b.nibbles(2, shifts, low)
		VPSHUFB(y, values, y)
		b.store(y, 0)
	})
	unpacker("MXFP4", 17, 1, 32, func() { shifts, low, values = highFour(), fill("low4", 15), table("mxfp4Codes", 16, fp4...) }, func(b block) {
		// 2^(e-128): the exponent field, but for the two subnormals.
		e, small, bits := GP32(), GP32(), GP32()
		MOVBLZX(b.from(0), e)
		MOVL(U32(0x00200000), small)
		LEAL(Mem{Base: small, Index: small, Scale: 1}, bits)
		CMPL(e, U32(1))
		CMOVLEQ(bits, small)
		LEAL(Mem{Base: e, Disp: -1}, bits)
		SHLL(U8(23), bits)
		CMPL(e, U32(2))
		CMOVLCS(small, bits)
		MOVL(bits, b.slot(b.d, 0))
		y := b.nibbles(1, shifts, low)
		VPSHUFB(y, values, y)
		b.store(y, 0)
	})
}

// unpackNVFP4 takes two units of 32 values from a block.
func unpackNVFP4() {
	var low, values VecVirtual
	unpacker("NVFP4", 36, 2, 32, func() { low, values = fill("low4", 15), table("fp4Codes", 0, fp4...) }, func(b block) {
		scales, e, scale := GP64(), GP32(), GP32()
		LEAQ(halfUE4M3(), scales)
		for i := range 4 {
			MOVBLZX(b.from(i), e)
			MOVL(Mem{Base: scales, Index: e.As64(), Scale: 4}, scale)
			to := []Register{b.d, b.m}[i%2]
			MOVL(scale, b.slot(to, 32*(i/2)))
		}
		for i := range 2 {
			x, hi, y := XMM(), XMM(), YMM()
			VMOVDQU(b.from(4+16*i), x)
			VPSRLW(U8(4), x, hi)
			VPUNPCKLQDQ(hi, x, y.AsX())
			VPUNPCKHQDQ(hi, x, x)
			VINSERTI128(U8(1), x, y, y)
			VPAND(low, y, y)
			VPSHUFB(y, values, y)
			b.store(y, 32*i)
		}
	})
}

// halfUE4M3 is a table of half the values of a byte: 4 bits of exponent, bias 7,
// and 3 of mantissa, above them one that does not count. 0x7f is no number and
// stands for 0; 0xff does not.
func halfUE4M3() Mem {
	var w [256]uint32
	for c := range w {
		exp, man := c>>3&15, float64(c&7)/8
		v := math.Ldexp(man, -7)
		if exp > 0 {
			v = math.Ldexp(1+man, exp-8)
		}
		if c == 0x7f {
			v = 0
		}
		w[c] = math.Float32bits(float32(v))
	}
	return Words("halfUE4M3", w[:]...)
}

func unpackIQ4_XS() {
	var low, values, shifts VecVirtual
	unpacker("IQ4_XS", 136, 1, 256, func() { shifts, low, values = highFour(), fill("low4", 15), table("iq4Codes", 0, iq4...) }, func(b block) {
		b.scale16(0, false)
		// Scale i: 4 bits of a word, 2 of another, each in lane i.
		s, h := YMM(), YMM()
		VPBROADCASTD(b.from(4), s)
		VPBROADCASTD(b.from(2), h)
		iq4Scales(s, h)
		for i, order := range []Mem{Words("firstTwice", 0, 0, 1, 1, 2, 2, 3, 3), Words("lastTwice", 4, 4, 5, 5, 6, 6, 7, 7)} {
			y := YMM()
			VMOVDQU(order, y)
			VPERMD(s, y, y)
			VMOVDQU(y, b.scaleSlot(32*i))
		}
		for i := range 8 {
			y := b.nibbles(8+16*i, shifts, low)
			VPSHUFB(y, values, y)
			b.store(y, 32*i)
		}
	})
}

// iq4Scales makes the scales of IQ4_XS, twice in a lane each, of their low bits in
// every lane of s and high bits in every lane of h.
func iq4Scales(s, h VecVirtual) {
	VPSRLVD(Words("byFours", 0, 4, 8, 12, 16, 20, 24, 28), s, s)
	VPSRLVD(Words("byTwos", 0, 2, 4, 6, 8, 10, 12, 14), h, h)
	VPAND(Eights("low4Int", 15), s, s)
	VPAND(Eights("low2Int", 3), h, h)
	VPSLLD(U8(4), h, h)
	VPOR(h, s, s)
	VPSUBD(Eights("int32s", 32), s, s)
	VPSLLD(U8(16), s, h)
	VPBLENDW(U8(0xaa), h, s, s)
}

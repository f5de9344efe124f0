package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// An unpacker writes one row of a tile from blocks of a type. Types without
// minima, integer scales or corrections leave those of the tile alone.

// block holds the places that the next block of a type is read from and
// written to.
type block struct {
	codes, d, m, scales, corr, src Register
}

// unpacker writes the function of a type with blocks of so many bytes and
// values. Constants are loaded before the loop. The bytes that lie ahead are
// asked for early: unpacking and multiplying take turns, and the memory would
// idle during the latter.
func unpacker(name string, bytes, values int, constants func(), body func(b block)) {
	TEXT("unpack"+name+"AVX2", NOSPLIT, "func(codes *byte, d, m *float32, scales *uint32, corr *int16, src *byte, blocks, ahead int)")
	Doc("unpack" + name + "AVX2 is unpack" + name + ".")
	Pragma("noescape")
	b := block{pointer("codes"), pointer("d"), pointer("m"), pointer("scales"), pointer("corr"), pointer("src")}
	blocks, ahead := pointer("blocks"), pointer("ahead")
	constants()
	loop("loop", blocks, func() {
		for at := 0; at < bytes; at += 64 {
			PREFETCHT1(Mem{Base: b.src, Index: ahead, Scale: 1, Disp: at})
		}
		body(b)
		ADDQ(I32(bytes), b.src)
		ADDQ(I32(values), b.codes)
		ADDQ(I32(32), b.d)
		ADDQ(I32(32), b.m)
		if values == 256 {
			ADDQ(I32(64), b.scales)
			ADDQ(I32(32), b.corr)
		}
	})
	VZEROUPPER()
	RET()
}

func fill(name string, b uint32) VecVirtual { return load(eights(name, b*0x01010101)) }

// scale16 widens the F16 scale at an offset and stores it.
func (b block) scale16(at int, to Register) {
	x := XMM()
	VPBROADCASTW(Mem{Base: b.src, Disp: at}, x)
	VCVTPH2PS(x, x)
	VMOVSS(x, Mem{Base: to})
}

// scales16 does it for d and m, which follow each other.
func (b block) scales16(at int) {
	x := XMM()
	VMOVD(Mem{Base: b.src, Disp: at}, x)
	VCVTPH2PS(x, x)
	VMOVSS(x, Mem{Base: b.d})
	VEXTRACTPS(U8(1), x, Mem{Base: b.m})
}

// nibbles gives the 16 low nibbles of 16 bytes, then the high ones.
func (b block) nibbles(at int, mask VecVirtual) VecVirtual {
	y, hi := YMM(), XMM()
	VMOVDQU(Mem{Base: b.src, Disp: at}, y.AsX())
	VPSRLW(U8(4), y.AsX(), hi)
	VINSERTI128(U8(1), hi, y, y)
	VPAND(mask, y, y)
	return y
}

// store writes 32 codes.
func (b block) store(y VecVirtual, at int) { VMOVDQU(y, Mem{Base: b.codes, Disp: at}) }

// table loads 16 codes into both halves of a register.
func table(name string, bias int, v ...int) VecVirtual {
	var w [8]uint32
	for i := range 32 {
		w[i/4] |= uint32(uint8(v[i%16]+bias)) << (8 * (i % 4))
	}
	return load(words(name, w[:]...))
}

// fifthBits turns the bits of the word at an offset into bit 4 of 32 bytes.
func (b block) fifthBits(at int, spread, bits, sixteen VecVirtual) VecVirtual {
	y := YMM()
	VPBROADCASTD(Mem{Base: b.src, Disp: at}, y)
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
	var low, eight, values VecVirtual
	unpacker("Q4_0", 18, 32, func() { low, eight = fill("low4", 15), fill("eight", 8) }, func(b block) {
		b.scale16(0, b.d)
		y := b.nibbles(2, low)
		VPADDB(eight, y, y)
		b.store(y, 0)
	})
	unpacker("KMCUQ4", 18, 32, func() { low, eight = fill("low4", 15), fill("eight", 8) }, func(b block) {
		b.scale16(0, b.d)
		x, hi, y := XMM(), XMM(), YMM()
		VMOVDQU(Mem{Base: b.src, Disp: 2}, x)
		VPSRLW(U8(4), x, hi)
		VPAND(low.AsX(), x, x)
		VPAND(low.AsX(), hi, hi)
		VPUNPCKLBW(hi, x, y.AsX())
		VPUNPCKHBW(hi, x, x)
		VINSERTI128(U8(1), x, y, y)
		VPADDB(eight, y, y)
		b.store(y, 0)
	})
	unpacker("Q4_1", 20, 32, func() { low = fill("low4", 15) }, func(b block) {
		b.scales16(0)
		b.store(b.nibbles(4, low), 0)
	})
	var spread, bits, sixteen VecVirtual
	five := func() {
		low, sixteen = fill("low4", 15), fill("sixteen", 16)
		spread = load(words("spreadBits", 0, 0, 0x01010101, 0x01010101, 0x02020202, 0x02020202, 0x03030303, 0x03030303))
		bits = load(words("eachBit", 0x08040201, 0x80402010, 0x08040201, 0x80402010, 0x08040201, 0x80402010, 0x08040201, 0x80402010))
	}
	unpacker("Q5_0", 22, 32, five, func(b block) {
		b.scale16(0, b.d)
		y := b.nibbles(6, low)
		VPOR(b.fifthBits(2, spread, bits, sixteen), y, y)
		b.store(y, 0)
	})
	unpacker("Q5_1", 24, 32, five, func(b block) {
		b.scales16(0)
		y := b.nibbles(8, low)
		VPOR(b.fifthBits(4, spread, bits, sixteen), y, y)
		b.store(y, 0)
	})
	unpacker("Q8_0", 34, 32, func() {}, func(b block) {
		b.scale16(0, b.d)
		y := YMM()
		VMOVDQU(Mem{Base: b.src, Disp: 2}, y)
		b.store(y, 0)
	})
	unpacker("IQ4_NL", 18, 32, func() { low, values = fill("low4", 15), table("iq4Codes", 0, iq4...) }, func(b block) {
		b.scale16(0, b.d)
		y := b.nibbles(2, low)
		VPSHUFB(y, values, y)
		b.store(y, 0)
	})
	unpacker("MXFP4", 17, 32, func() { low, values = fill("low4", 15), table("mxfp4Codes", 16, fp4...) }, func(b block) {
		// 2^(e-128): the exponent field, but for the two subnormals.
		e, small, bits := GP32(), GP32(), GP32()
		MOVBLZX(Mem{Base: b.src}, e)
		MOVL(U32(0x00200000), small)
		LEAL(Mem{Base: small, Index: small, Scale: 1}, bits)
		CMPL(e, U32(1))
		CMOVLEQ(bits, small)
		LEAL(Mem{Base: e, Disp: -1}, bits)
		SHLL(U8(23), bits)
		CMPL(e, U32(2))
		CMOVLCS(small, bits)
		MOVL(bits, Mem{Base: b.d})
		y := b.nibbles(1, low)
		VPSHUFB(y, values, y)
		b.store(y, 0)
	})
}

// unpackNVFP4 takes two units of 32 values from a block.
func unpackNVFP4() {
	var low, values VecVirtual
	unpacker("NVFP4", 36, 64, func() { low, values = fill("low4", 15), table("fp4Codes", 0, fp4...) }, func(b block) {
		scales, e, scale := GP64(), GP32(), GP32()
		LEAQ(halfUE4M3(), scales)
		for i := range 4 {
			MOVBLZX(Mem{Base: b.src, Disp: i}, e)
			MOVL(Mem{Base: scales, Index: e.As64(), Scale: 4}, scale)
			to := []Register{b.d, b.m}[i%2]
			MOVL(scale, Mem{Base: to, Disp: 32 * (i / 2)})
		}
		for i := range 2 {
			x, hi, y := XMM(), XMM(), YMM()
			VMOVDQU(Mem{Base: b.src, Disp: 4 + 16*i}, x)
			VPSRLW(U8(4), x, hi)
			VPUNPCKLQDQ(hi, x, y.AsX())
			VPUNPCKHQDQ(hi, x, x)
			VINSERTI128(U8(1), x, y, y)
			VPAND(low, y, y)
			VPSHUFB(y, values, y)
			b.store(y, 32*i)
		}
		ADDQ(I32(32), b.d)
		ADDQ(I32(32), b.m)
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
	return words("halfUE4M3", w[:]...)
}

func unpackIQ4_XS() {
	var low, values VecVirtual
	unpacker("IQ4_XS", 136, 256, func() { low, values = fill("low4", 15), table("iq4Codes", 0, iq4...) }, func(b block) {
		b.scale16(0, b.d)
		// Scale i: 4 bits of a word, 2 of another, each in lane i.
		s, h := YMM(), YMM()
		VPBROADCASTD(Mem{Base: b.src, Disp: 4}, s)
		VPBROADCASTD(Mem{Base: b.src, Disp: 2}, h)
		VPSRLVD(words("byFours", 0, 4, 8, 12, 16, 20, 24, 28), s, s)
		VPSRLVD(words("byTwos", 0, 2, 4, 6, 8, 10, 12, 14), h, h)
		VPAND(eights("low4Int", 15), s, s)
		VPAND(eights("low2Int", 3), h, h)
		VPSLLD(U8(4), h, h)
		VPOR(h, s, s)
		VPSUBD(eights("int32s", 32), s, s)
		VPSLLD(U8(16), s, h)
		VPBLENDW(U8(0xaa), h, s, s)
		for i, order := range []Mem{words("firstTwice", 0, 0, 1, 1, 2, 2, 3, 3), words("lastTwice", 4, 4, 5, 5, 6, 6, 7, 7)} {
			y := YMM()
			VMOVDQU(order, y)
			VPERMD(s, y, y)
			VMOVDQU(y, Mem{Base: b.scales, Disp: 32 * i})
		}
		for i := range 8 {
			y := b.nibbles(8+16*i, low)
			VPSHUFB(y, values, y)
			b.store(y, 32*i)
		}
	})
}

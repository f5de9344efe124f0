package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// at32 loads 32 bytes.
func (b block) at32(at int) VecVirtual {
	y := YMM()
	VMOVDQU(b.from(at), y)
	return y
}

// shifted moves bits of bytes from place from to place to and masks them. The
// mask hides what comes from the neighbours.
func shifted(x VecVirtual, from, to int, mask Op) VecVirtual {
	y := YMM()
	switch {
	case from > to:
		VPSRLW(U8(from-to), x, y)
		VPAND(mask, y, y)
	case from < to:
		VPSLLW(U8(to-from), x, y)
		VPAND(mask, y, y)
	default:
		VPAND(mask, x, y)
	}
	return y
}

// storeScales writes 16 integer scales, given as words, twice each.
func (b block) storeScales(s VecVirtual) {
	q, lo, hi := YMM(), YMM(), YMM()
	VPERMQ(U8(0xd8), s, q)
	VPUNPCKLWD(q, q, lo)
	VPUNPCKHWD(q, q, hi)
	VMOVDQU(lo, b.scaleSlot(0))
	VMOVDQU(hi, b.scaleSlot(32))
}

func unpackersK() {
	var low2, low4, mask VecVirtual
	unpacker("Q2_K", 84, 1, 256, func() { low2, low4 = fill("low2", 3), fill("low4", 15) }, func(b block) {
		b.scale16(80, false)
		x, s, hi := XMM(), XMM(), XMM()
		VMOVDQU(b.from(0), x)
		VPAND(low4.AsX(), x, s)
		VPSRLW(U8(4), x, hi)
		VPAND(low4.AsX(), hi, hi)
		y, c := YMM(), YMM()
		VPMOVZXBW(s, y)
		VPMOVZXBW(hi, c)
		b.storeScales(y)
		VMOVDQU(c, b.slot(b.corr, 0))
		for half := range 2 {
			q := b.at32(16 + 32*half)
			for k := range 4 {
				b.store(shifted(q, 2*k, 0, low2), 128*half+32*k)
			}
		}
	})
	unpacker("TQ2_0", 66, 1, 256, func() { low2 = fill("low2", 3) }, func(b block) {
		b.scale16(64, true)
		one := Fetch(pairOnes())
		VMOVDQU(one, b.scaleSlot(0))
		VMOVDQU(one, b.scaleSlot(32))
		VMOVDQU(one, b.slot(b.corr, 0))
		for half := range 2 {
			q := b.at32(32 * half)
			for k := range 4 {
				b.store(shifted(q, 2*k, 0, low2), 128*half+32*k)
			}
		}
	})
	unpacker("Q3_K", 110, 1, 256, func() { low2, mask = fill("low2", 3), fill("four", 4) }, func(b block) {
		b.scale16(108, true)
		x, h := XMM(), XMM()
		VMOVQ(b.from(96), x)
		VPBROADCASTD(b.from(104), h)
		q3Scales(x, h)
		s := YMM()
		VPMOVSXBW(x, s)
		b.storeScales(s)
		VPSLLW(U8(2), s, s)
		VMOVDQU(s, b.slot(b.corr, 0))
		high := b.at32(0)
		for half := range 2 {
			q := b.at32(32 + 32*half)
			for k := range 4 {
				y := shifted(q, 2*k, 0, low2)
				VPOR(shifted(high, 4*half+k, 2, mask), y, y)
				b.store(y, 128*half+32*k)
			}
		}
	})
	unpacker("Q4_K", 144, 1, 256, func() { low4 = fill("low4", 15) }, func(b block) {
		b.scale16(0, false)
		b.sixes(4)
		for p := range 4 {
			q := b.at32(16 + 32*p)
			b.store(shifted(q, 0, 0, low4), 64*p)
			b.store(shifted(q, 4, 0, low4), 64*p+32)
		}
	})
	unpacker("Q5_K", 176, 1, 256, func() { low4, mask = fill("low4", 15), fill("sixteen", 16) }, func(b block) {
		b.scale16(0, false)
		b.sixes(4)
		high := b.at32(16)
		for p := range 4 {
			q := b.at32(48 + 32*p)
			for k := range 2 {
				y := shifted(q, 4*k, 0, low4)
				VPOR(shifted(high, 2*p+k, 4, mask), y, y)
				b.store(y, 64*p+32*k)
			}
		}
	})
	unpacker("Q6_K", 210, 1, 256, func() { low4, mask = fill("low4", 15), fill("bits45", 0x30) }, func(b block) {
		b.scale16(208, true)
		s := YMM()
		VPMOVSXBW(b.from(192), s)
		b.storeScales(s)
		VPSLLW(U8(5), s, s)
		VMOVDQU(s, b.slot(b.corr, 0))
		for half := range 2 {
			high := b.at32(128 + 32*half)
			for l := range 2 {
				q := b.at32(64*half + 32*l)
				for k := range 2 {
					y := shifted(q, 4*k, 0, low4)
					VPOR(shifted(high, 4*k+2*l, 4, mask), y, y)
					b.store(y, 128*half+64*k+32*l)
				}
			}
		}
	})
}

// sixes reads the scales and minima of 8 blocks, 6 bits each, from three words
// at an offset: scales 0-3 and minima 0-3 lie in the low bits of words 0 and 1;
// 4-7 have their low bits in the nibbles of word 2 and their high bits above the
// others.
func (b block) sixes(at int) {
	x, n := XMM(), XMM()
	VMOVDQU(b.from(at), x)
	sixesOf(x, n)
	y := YMM()
	VINSERTI128(U8(1), x, x.AsY(), y)
	for i, m := range []Mem{
		twiceTwice("scales03", 0), twiceTwice("scales47", 4),
	} {
		s := YMM()
		VPSHUFB(m, y, s)
		VMOVDQU(s, b.scaleSlot(32*i))
	}
	VPSHUFB(minimaTwice(), y, y)
	VMOVDQU(y, b.slot(b.corr, 0))
}

// sixesOf makes bytes of the 6 bits in x: scales 0-7, then minima 0-7. n is room.
func sixesOf(x, n VecVirtual) {
	VPSHUFD(U8(0xaa), x, n)
	VPSHUFD(U8(0x50), x, x)
	VPSRLVD(Words("sixesShift", 0, 2, 0, 2), x, x)
	VPAND(Words("sixesMask", 0x3f3f3f3f, 0x30303030, 0x3f3f3f3f, 0x30303030), x, x)
	VPSRLVD(Words("sixesLow", 0, 0, 0, 4), n, n)
	VPAND(Words("sixesLowMask", 0, 0x0f0f0f0f, 0, 0x0f0f0f0f), n, n)
	VPOR(n, x, x)
}

// minimaTwice takes bytes 8-15 of each half to two words each.
func minimaTwice() Mem {
	const none = 0x80
	var w [8]uint32
	for i := range w {
		w[i] = uint32(8+i)*0x00010001 | none<<8 | none<<24
	}
	return Words("minima", w[:]...)
}

// twiceTwice takes 4 bytes from the first one on, each to two words that hold
// it twice.
func twiceTwice(name string, first int) Mem {
	var w [8]uint32
	for i := range w {
		w[i] = uint32(first+i/2)*0x00010001 | 0x80008000
	}
	return Words(name, w[:]...)
}

// q3Scales makes the 16 scales of Q3_K in x, as bytes: 4 bits of bytes 0-7, which x
// has, and 2 of bytes 8-11, which every word of h has.
func q3Scales(x, h VecVirtual) {
	VPSHUFD(U8(0x44), x, x)
	VPSRLVD(Words("q3low", 0, 0, 4, 4), x, x)
	VPAND(Eights("low4", 0x0f0f0f0f), x, x)
	VPSRLVD(Words("q3high", 0, 2, 4, 6), h, h)
	VPAND(Eights("low2", 0x03030303), h, h)
	VPSLLW(U8(4), h, h)
	VPOR(h, x, x)
	VPSUBB(Eights("bytes32", 0x20202020), x, x)
}

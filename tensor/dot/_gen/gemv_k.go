package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// gemv256 is for units of 256 values. row gives the products of a row, scaled and
// added as far as lanes go, and for types with minima those of the minima with the
// activations' sums.
func gemv256(name string, bytes, scale int, minima bool, constants func(), row func(g gemv, i int) (n, c VecVirtual)) {
	g, units, acc := newGemv(name, bytes, "int16")
	constants()
	Loop("loop", units, func() {
		da := YMM()
		var n, c [2]VecVirtual
		for k := range n {
			var v [4]VecVirtual
			n[k] = sum4(0, func(i int) (n VecVirtual) {
				g.ask(4*k+i, 8)
				n, v[i] = row(g, 4*k+i)
				// Minima go the same way, each as soon as it can.
				if minima && i%2 == 1 {
					VPHADDD(v[i], v[i-1], v[i-1])
				}
				return n
			})
			if minima {
				VPHADDD(v[2], v[0], v[0])
				c[k] = v[0]
			}
		}
		VBROADCASTSS(Mem{Base: g.da}, da)
		if !minima {
			addTerm(VADDPS, acc, joinHalves(n[0], n[1]), g.scales(scale), da)
		} else {
			d, m := g.scalePairs(scale)
			addTerm(VADDPS, acc, joinHalves(n[0], n[1]), d, da)
			addTerm(VSUBPS, acc, joinHalves(c[0], c[1]), m, da)
		}
		g.next(256, 32)
	})
	g.end(acc)
}

// wordOf takes byte j of each half as a word, everywhere.
func wordOf(j int) Mem {
	w := uint32(j)*0x00010001 | 0x80008000
	return Eights("word"+string(rune('a'+j)), w)
}

// accumulate adds the products of codes with the activations from value v on, times
// scales, to n.
func (g gemv) accumulate(n, codes VecVirtual, v int, scales VecVirtual) {
	VPMADDUBSW(Mem{Base: g.a, Disp: v}, codes, codes)
	VPMADDWD(scales, codes, codes)
	if v == 0 {
		VMOVDQA(codes, n)
		return
	}
	VPADDD(codes, n, n)
}

func gemvs256() {
	var low4, bits45 VecVirtual
	// Scales and minima of Q4_K and Q5_K as bytes: 0-7 and 8-15 of each half.
	sixes := func(g gemv, i int) VecVirtual {
		x, n, y := XMM(), XMM(), YMM()
		VMOVDQU(g.at(i, 4), x)
		sixesOf(x, n)
		VINSERTI128(U8(1), x, x.AsY(), y)
		return y
	}
	minima := func(g gemv, s VecVirtual) VecVirtual {
		y := YMM()
		VPSHUFB(minimaTwice(), s, y)
		VPMADDWD(Mem{Base: g.sums}, y, y)
		return y
	}
	scaled := func(s VecVirtual, j int) VecVirtual {
		y := YMM()
		VPSHUFB(wordOf(j), s, y)
		return y
	}
	gemv256("Q4_K", 144, 0, true, func() { low4 = fill("low4", 15) }, func(g gemv, i int) (n, c VecVirtual) {
		s := sixes(g, i)
		n, c = YMM(), minima(g, s)
		for p := range 4 {
			q := Fetch(g.at(i, 16+32*p))
			g.accumulate(n, shifted(q, 0, 0, low4), 64*p, scaled(s, 2*p))
			g.accumulate(n, shifted(q, 4, 0, low4), 64*p+32, scaled(s, 2*p+1))
		}
		return n, c
	})
	gemv256("Q5_K", 176, 0, true, func() { low4 = fill("low4", 15) }, func(g gemv, i int) (n, c VecVirtual) {
		s, high := sixes(g, i), Fetch(g.at(i, 16))
		n, c = YMM(), minima(g, s)
		for p := range 4 {
			q := Fetch(g.at(i, 48+32*p))
			for k := range 2 {
				y := shifted(q, 4*k, 0, low4)
				VPOR(shifted(high, 2*p+k, 4, Eights("sixteen", 0x10101010)), y, y)
				g.accumulate(n, y, 64*p+32*k, scaled(s, 2*p+k))
			}
		}
		return n, c
	})
	gemv256("Q6_K", 210, 208, false, func() { low4, bits45 = fill("low4", 15), fill("bits45", 0x30) }, func(g gemv, i int) (n, _ VecVirtual) {
		s := YMM()
		n = YMM()
		VPMOVSXBW(g.at(i, 192), s)
		both := bothHalves(s)
		for half := range 2 {
			high := Fetch(g.at(i, 128+32*half))
			for l := range 2 {
				q := Fetch(g.at(i, 64*half+32*l))
				for k := range 2 {
					y := shifted(q, 4*k, 0, low4)
					VPOR(shifted(high, 4*k+2*l, 4, bits45), y, y)
					t := YMM()
					VPSHUFB(wordPair(2*k+l), both[half], t)
					g.accumulate(n, y, 128*half+64*k+32*l, t)
				}
			}
		}
		// The codes are 32 too high.
		VPSLLW(U8(5), s, s)
		VPMADDWD(Mem{Base: g.sums}, s, s)
		VPSUBD(s, n, n)
		return n, nil
	})
}

// wordPair takes word 2j of the lower half and 2j+1 of the upper one, everywhere.
func wordPair(j int) Mem {
	a := uint32(4*j+1)<<8 | uint32(4*j)
	b := a + 0x0202
	a, b = a*0x00010001, b*0x00010001
	return Words("wordPair"+string(rune('a'+j)), a, a, a, a, b, b, b, b)
}

// bothHalves gives 16 words: 0-7 in both halves, and 8-15.
func bothHalves(s VecVirtual) []VecVirtual {
	both := YMMs(2)
	VPERM2I128(U8(0x00), s, s, both[0])
	VPERM2I128(U8(0x11), s, s, both[1])
	return both
}

// gemvsLow are those of the types with 2 and 3 bits, and of IQ4_XS.
func gemvsLow() {
	var low2, low4 VecVirtual
	// Codes 32 at a time with scales for each 16.
	eachPart := func(g gemv, n VecVirtual, scales []VecVirtual, codes func(half, k int) VecVirtual) {
		for half := range 2 {
			for k := range 4 {
				t := YMM()
				VPSHUFB(wordPair(k), scales[half], t)
				g.accumulate(n, codes(half, k), 128*half+32*k, t)
			}
		}
	}
	gemv256("Q2_K", 84, 80, true, func() { low2 = fill("low2", 3) }, func(g gemv, i int) (n, c VecVirtual) {
		x, m, s := XMM(), XMM(), YMM()
		n, c = YMM(), YMM()
		VMOVDQU(g.at(i, 0), x)
		VPSRLW(U8(4), x, m)
		VPAND(Eights("low4", 0x0f0f0f0f), x, x)
		VPAND(Eights("low4", 0x0f0f0f0f), m, m)
		VPMOVZXBW(x, s)
		VPMOVZXBW(m, c)
		VPMADDWD(Mem{Base: g.sums}, c, c)
		var q VecVirtual
		eachPart(g, n, bothHalves(s), func(half, k int) VecVirtual {
			if k == 0 {
				q = Fetch(g.at(i, 16+32*half))
			}
			return shifted(q, 2*k, 0, low2)
		})
		return n, c
	})
	gemv256("Q3_K", 110, 108, false, func() { low2 = fill("low2", 3) }, func(g gemv, i int) (n, _ VecVirtual) {
		x, h, s := XMM(), XMM(), YMM()
		n = YMM()
		VMOVQ(g.at(i, 96), x)
		VPBROADCASTD(g.at(i, 104), h)
		q3Scales(x, h)
		VPMOVSXBW(x, s)
		high := Fetch(g.at(i, 0))
		var q VecVirtual
		eachPart(g, n, bothHalves(s), func(half, k int) VecVirtual {
			if k == 0 {
				q = Fetch(g.at(i, 32+32*half))
			}
			y := shifted(q, 2*k, 0, low2)
			VPOR(shifted(high, 4*half+k, 2, Eights("four", 0x04040404)), y, y)
			return y
		})
		// The codes are 4 too high.
		VPSLLW(U8(2), s, s)
		VPMADDWD(Mem{Base: g.sums}, s, s)
		VPSUBD(s, n, n)
		return n, nil
	})
	var values, shifts VecVirtual
	gemv256("IQ4_XS", 136, 0, false, func() { shifts, low4, values = highFour(), fill("low4", 15), table("iq4Codes", 0, iq4...) }, func(g gemv, i int) (n, _ VecVirtual) {
		s, h := YMM(), YMM()
		n = YMM()
		VPBROADCASTD(g.at(i, 4), s)
		VPBROADCASTD(g.at(i, 2), h)
		iq4Scales(s, h)
		for j := range 8 {
			w, x, t := nibblesAt(g.at(i, 8+16*j), shifts, low4), YMM(), YMM()
			VPSHUFB(w, values, w)
			VMOVDQU(Mem{Base: g.a, Disp: 32 * j}, x)
			VPSIGNB(w, x, x)
			VPABSB(w, w)
			VPMADDUBSW(x, w, w)
			VMOVDQU(Eights("lane"+string(rune('0'+j)), uint32(j)), t)
			VPERMD(s, t, t)
			VPMADDWD(t, w, w)
			if j == 0 {
				VMOVDQA(w, n)
				continue
			}
			VPADDD(w, n, n)
		}
		return n, nil
	})
}

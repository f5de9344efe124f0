package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

// Kernels for superblocks. Weights lie in a tile of package dot; a group of 8
// columns lies as superRows says, so that lane t of every vector belongs to column
// t and nothing is added across lanes. What ggml's own lanes hold is a vector
// each.

// tileWidth is the constant of package dot: rows of codes lie that far apart.
const tileWidth = 2048

// scaleRow and corrRow are the distances of rows of scales and of corrections, in
// bytes.
const (
	scaleRow = tileWidth / 4
	corrRow  = tileWidth / 8
)

func super() {
	for _, k := range laneKinds {
		superLanes(k)
	}
	superBases()
	superMins("Mins4", 4, 12)
	superMins("Mins1", 1, 9)
	superMins("Quarters", 4, 2)
	superMins("Whole", 1, 2)
	superWholes("Quarters", 4)
	superWholes("Whole", 1)
	for _, k := range panelKinds {
		superPanel(k)
	}
	superNibbles()
	for _, k := range oneKinds {
		superOne(k)
	}
	for _, k := range laneKinds {
		superFinish(k)
	}
	superFinishQ4_K()
}

// laneKind is how a kernel of lanes reads codes and what comes beside.
type laneKind struct {
	name string
	acc  int // vectors of sums of a row
	// signed codes, at most 63 in magnitude, are multiplied with activations that are
	// 128 too high; bases make up for it.
	signed bool
	wide   bool // signed codes of any magnitude: |code| * (activation with the code's sign)
	sums   bool // corrections come off before rounding
	mins   bool // corrections enter the lanes first, with scales of their own
}

var laneKinds = []laneKind{
	{name: "Plain", acc: 8, signed: true},
	{name: "Wide", acc: 8, wide: true},
	{name: "PlainOf9", acc: 9, signed: true},
	{name: "PlainOf16", acc: 16, signed: true},
	{name: "Sums", acc: 8, sums: true},
	{name: "Mins8", acc: 8, mins: true},
	{name: "Mins4", acc: 12},
	{name: "Mins1", acc: 9},
}

// laneRows is the number of weight rows of a lane kernel; half of the lanes of both
// fit the registers.
const laneRows = 2

func superLanes(k laneKind) {
	signature := "func(acc *float32, codes *byte, d *float32, scales *uint32, "
	switch {
	case k.signed:
		signature += "bases *int32, "
	case k.sums:
		signature += "corr, sums *int16, "
	case k.mins:
		signature += "m *float32, corr, sums *int16, "
	}
	TEXT("lanes"+k.name+"AVX2", NOSPLIT, signature+"a *int8, da *float32, units int)")
	Doc("lanes" + k.name + "AVX2 adds units to 8 lanes of 2 weight rows with 8 columns.")
	Pragma("noescape")
	acc, codes, d, scales := Pointer("acc"), Pointer("codes"), Pointer("d"), Pointer("scales")
	var base, m, corr, sums Register
	switch {
	case k.signed:
		base = Pointer("bases")
	case k.sums || k.mins:
		corr, sums = Pointer("corr"), Pointer("sums")
	}
	if k.mins {
		m = Pointer("m")
	}
	a, da, units := Pointer("a"), Pointer("da"), Pointer("units")
	Loop("unit", units, func() {
		for half := range 2 {
			n := make([][]VecVirtual, laneRows)
			for i := range n {
				n[i] = YMMs(4)
				for l := range n[i] {
					if k.signed {
						VPBROADCASTD(Mem{Base: base, Disp: baseRow*i + 16*half + 4*l}, n[i][l])
						continue
					}
					VPXOR(n[i][l], n[i][l], n[i][l])
				}
			}
			g := GP64()
			MOVQ(U32(8), g)
			Loop("run"+string(rune('0'+half)), g, func() {
				s := YMMs(laneRows)
				for i := range s {
					VPBROADCASTD(Mem{Base: scales, Disp: scaleRow*i + 4*half}, s[i])
				}
				for l := range 4 {
					x := YMM()
					VMOVDQU(Mem{Base: a, Disp: 128*half + 32*l}, x)
					if k.signed {
						VPXOR(Eights("signBits", 0x80808080), x, x)
					}
					for i := range n {
						w := YMM()
						VPBROADCASTD(Mem{Base: codes, Disp: tileWidth*i + 16*half + 4*l}, w)
						switch {
						case k.signed:
							VPMADDUBSW(w, x, w)
						case k.wide:
							y := YMM()
							VPSIGNB(w, x, y)
							VPABSB(w, w)
							VPMADDUBSW(y, w, w)
						default:
							VPMADDUBSW(x, w, w)
						}
						VPMADDWD(s[i], w, w)
						VPADDD(w, n[i][l], n[i][l])
					}
				}
				ADDQ(I32(32), codes)
				ADDQ(I32(256), a)
				ADDQ(I32(8), scales)
			})
			if half == 0 {
				SUBQ(I32(256), codes)
				SUBQ(I32(2048), a)
				SUBQ(I32(64), scales)
			}
			for i := range n {
				p, q := YMM(), YMM()
				VBROADCASTSS(Mem{Base: d, Disp: 4 * i}, p)
				VMULPS(Mem{Base: da}, p, p)
				if k.mins {
					VBROADCASTSS(Mem{Base: m, Disp: 4 * i}, q)
					VMULPS(Mem{Base: da}, q, q)
				}
				for l := range n[i] {
					at := Mem{Base: acc, Disp: 32 * (k.acc*i + 4*half + l)}
					sum, c := YMM(), YMM()
					if k.sums || k.mins {
						VPBROADCASTD(Mem{Base: corr, Disp: corrRow*i + 16*half + 4*l}, c)
						VPMADDWD(Mem{Base: sums, Disp: 128*half + 32*l}, c, c)
					}
					if k.sums {
						VPSUBD(c, n[i][l], n[i][l])
					}
					VMOVUPS(at, sum)
					if k.mins {
						VCVTDQ2PS(c, c)
						VFNMADD231PS(c, q, sum)
					}
					VCVTDQ2PS(n[i][l], n[i][l])
					VFMADD231PS(n[i][l], p, sum)
					VMOVUPS(sum, at)
				}
			}
		}
		ADDQ(I32(32), d)
		ADDQ(I32(32), da)
		if k.signed {
			ADDQ(I32(32), base)
		}
		if k.mins {
			ADDQ(I32(32), m)
		}
		if k.sums || k.mins {
			ADDQ(I32(32), corr)
			ADDQ(I32(256), sums)
		}
	})
	VZEROUPPER()
	RET()
}

// baseRow is the distance of the bases of two rows in bytes: 8 of each unit.
const baseRow = tileWidth / 256 * 32

// superBases takes the bias off a row's codes, and gives for the lanes of each unit what
// activations that are 128 too high make of them, with the other sign.
func superBases() {
	TEXT("basesAVX2", NOSPLIT, "func(bases *int32, codes *byte, scales *uint32, bias uint32, units int)")
	Doc("basesAVX2 takes bias, in all four bytes, off a row's codes and gives -128 times the lanes' sums of scale times code.")
	Pragma("noescape")
	to, codes, scales, units := Pointer("bases"), Pointer("codes"), Pointer("scales"), Pointer("units")
	bias, ones := YMM(), YMM()
	VMOVD(Load(Param("bias"), GP32()), bias.AsX())
	VPBROADCASTD(bias.AsX(), bias)
	VMOVDQU(Eights("oneBytes", 0x01010101), ones)
	Loop("unit", units, func() {
		n := YMM()
		VPXOR(n, n, n)
		for g := range 8 {
			w, s := YMM(), YMM()
			VMOVDQU(Mem{Base: codes, Disp: 32 * g}, w)
			VPSUBB(bias, w, w)
			VMOVDQU(w, Mem{Base: codes, Disp: 32 * g})
			VPMADDUBSW(w, ones, w)
			// The scale of the first half in the lower 4 words, of the second in the upper.
			VPBROADCASTQ(Mem{Base: scales, Disp: 8 * g}, s)
			t := YMM()
			VPSHUFD(U8(0x00), s, t)
			VPSHUFD(U8(0x55), s, s)
			VPERM2I128(U8(0x20), s, t, s)
			VPMADDWD(s, w, w)
			VPADDD(w, n, n)
		}
		zero := YMM()
		VPXOR(zero, zero, zero)
		VPSLLD(U8(7), n, n)
		VPSUBD(n, zero, n)
		VMOVDQU(n, Mem{Base: to})
		ADDQ(I32(32), to)
		ADDQ(I32(256), codes)
		ADDQ(I32(64), scales)
	})
	VZEROUPPER()
	RET()
}

// minRows is the number of weight rows of the other kernels.
const minRows = 4

// superMins adds up the minima of Q4_K and Q5_K, of each quarter of a superblock or of all.
// Lanes subtract them.
func superMins(name string, parts, acc int) {
	TEXT("mins"+name+"AVX2", NOSPLIT, "func(acc, m *float32, corr *int16, da *float32, sums *int16, units int)")
	Doc("mins" + name + "AVX2 adds the minima of units to the sums that 4 weight rows with 8 columns have for them.")
	Pragma("noescape")
	to, m, corr, da, sums, units := Pointer("acc"), Pointer("m"), Pointer("corr"), Pointer("da"), Pointer("sums"), Pointer("units")
	lanes, separate := acc > 2, acc == 12
	Loop("unit", units, func() {
		s := YMMs(4)
		for j := range s {
			VMOVDQU(Mem{Base: sums, Disp: 32 * j}, s[j])
		}
		for i := range minRows {
			p := YMM()
			VBROADCASTSS(Mem{Base: m, Disp: 4 * i}, p)
			VMULPS(Mem{Base: da}, p, p)
			sum := YMM()
			at := Mem{Base: to, Disp: 32 * acc * i}
			take := func(n VecVirtual) {
				VCVTDQ2PS(n, n)
				if lanes {
					VFNMADD231PS(n, p, sum)
				} else {
					VFMADD231PS(n, p, sum)
				}
			}
			if !separate {
				VMOVUPS(at, sum)
			}
			n := YMMs(4)
			for j := range n {
				// Corrections are of each 16: the second of a pair and the first of the next.
				VPBROADCASTD(Mem{Base: corr, Disp: corrRow*i + 8*j + 2}, n[j])
				VPMADDWD(s[j], n[j], n[j])
				switch {
				case separate:
					at := at.Offset(32 * j)
					VMOVUPS(at, sum)
					take(n[j])
					VMOVUPS(sum, at)
				case parts == 4:
					take(n[j])
				case j > 0:
					VPADDD(n[j], n[0], n[0])
				}
			}
			if parts == 1 {
				take(n[0])
			}
			if !separate {
				VMOVUPS(sum, at)
			}
		}
		ADDQ(I32(32), m)
		ADDQ(I32(32), corr)
		ADDQ(I32(32), da)
		ADDQ(I32(128), sums)
	})
	VZEROUPPER()
	RET()
}

// superWholes adds up codes of at most 15, 64 values or 256 at a time.
func superWholes(name string, parts int) {
	TEXT("sum"+name+"AVX2", NOSPLIT, "func(acc *float32, codes *byte, d *float32, scales *uint32, a *int8, da *float32, units int)")
	Doc("sum" + name + "AVX2 adds the values of units to the sums of 4 weight rows with 8 columns, 64 bytes apart.")
	Pragma("noescape")
	to, codes, d, scales, a, da, units := Pointer("acc"), Pointer("codes"), Pointer("d"), Pointer("scales"), Pointer("a"), Pointer("da"), Pointer("units")
	acc := YMMs(minRows)
	for i := range acc {
		VMOVUPS(Mem{Base: to, Disp: 64 * i}, acc[i])
	}
	n := YMMs(minRows)
	block := func(disp int, first bool) {
		sum16 := YMMs(minRows)
		for g := range 8 {
			x := YMM()
			VMOVDQU(Mem{Base: a, Disp: 256*disp + 32*g}, x)
			for i := range sum16 {
				if g == 0 {
					VPBROADCASTD(Mem{Base: codes, Disp: tileWidth*i + 32*disp + 4*g}, sum16[i])
					VPMADDUBSW(x, sum16[i], sum16[i])
					continue
				}
				w := YMM()
				VPBROADCASTD(Mem{Base: codes, Disp: tileWidth*i + 32*disp + 4*g}, w)
				VPMADDUBSW(x, w, w)
				VPADDW(w, sum16[i], sum16[i])
			}
		}
		for i := range sum16 {
			s := YMM()
			VPBROADCASTD(Mem{Base: scales, Disp: scaleRow*i + 8*disp}, s)
			if first {
				VPMADDWD(s, sum16[i], n[i])
				continue
			}
			VPMADDWD(s, sum16[i], sum16[i])
			VPADDD(sum16[i], n[i], n[i])
		}
	}
	take := func() {
		for i := range n {
			p := YMM()
			VBROADCASTSS(Mem{Base: d, Disp: 4 * i}, p)
			VMULPS(Mem{Base: da}, p, p)
			VCVTDQ2PS(n[i], n[i])
			VFMADD231PS(n[i], p, acc[i])
		}
	}
	next := func(blocks int) {
		ADDQ(I32(int32(32*blocks)), codes)
		ADDQ(I32(int32(256*blocks)), a)
		ADDQ(I32(int32(8*blocks)), scales)
	}
	Loop("unit", units, func() {
		j := GP64()
		if parts == 4 {
			MOVQ(U32(4), j)
			Loop("quarter", j, func() {
				block(0, true)
				block(1, false)
				take()
				next(2)
			})
		} else {
			block(0, true)
			next(1)
			MOVQ(U32(7), j)
			Loop("block", j, func() {
				block(0, false)
				next(1)
			})
			take()
		}
		ADDQ(I32(32), d)
		ADDQ(I32(32), da)
	})
	for i := range acc {
		VMOVUPS(acc[i], Mem{Base: to, Disp: 64 * i})
	}
	VZEROUPPER()
	RET()
}

// superFinish adds lanes up.
func superFinish(k laneKind) {
	if k.wide || k.sums || k.mins || k.signed && k.acc > 8 {
		return // like Plain, or none
	}
	TEXT("finish"+k.name+"AVX2", NOSPLIT, "func(out, acc, over *float32)")
	Doc("finish" + k.name + "AVX2 gives the products of 8 weight rows with 8 columns; over points to a factor that comes last.")
	Pragma("noescape")
	out, acc, over, rows := Pointer("out"), Pointer("acc"), Pointer("over"), GP64()
	times := YMM()
	VBROADCASTSS(Mem{Base: over}, times)
	MOVQ(U32(8), rows)
	Loop("row", rows, func() {
		at := func(i int) Mem { return Mem{Base: acc, Disp: 32 * i} }
		s := YMMs(4)
		for i := range s {
			VMOVUPS(at(i), s[i])
			VADDPS(at(i+4), s[i], s[i])
		}
		VADDPS(s[2], s[0], s[0])
		VADDPS(s[3], s[1], s[1])
		VADDPS(s[1], s[0], s[0])
		switch k.acc {
		case 8:
			VMULPS(times, s[0], s[0])
		case 9:
			VADDPS(at(8), s[0], s[0])
		default:
			m := YMMs(2)
			VMOVUPS(at(8), m[0])
			VADDPS(at(10), m[0], m[0])
			VMOVUPS(at(9), m[1])
			VADDPS(at(11), m[1], m[1])
			VADDPS(m[1], m[0], m[0])
			VADDPS(m[0], s[0], s[0])
		}
		VMOVUPS(s[0], Mem{Base: out})
		ADDQ(I32(32), out)
		ADDQ(I32(int32(32*k.acc)), acc)
	})
	VZEROUPPER()
	RET()
}

func superFinishQ4_K() {
	TEXT("finishQ4_KAVX2", NOSPLIT, "func(out, acc *float32)")
	Doc("finishQ4_KAVX2 takes the minima off the values of 8 weight rows with 8 columns.")
	Pragma("noescape")
	out, acc := Pointer("out"), Pointer("acc")
	for i := range 8 {
		v := YMM()
		VMOVUPS(Mem{Base: acc, Disp: 64 * i}, v)
		VSUBPS(Mem{Base: acc, Disp: 64*i + 32}, v, v)
		VMOVUPS(v, Mem{Base: out, Disp: 32 * i})
	}
	VZEROUPPER()
	RET()
}

package neon

import (
	"slices"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/reg"
)

// What moves elements, and what moves between vectors, memory and general
// registers.

func moveVector(t *translator, in *ir.Instruction) {
	from, to := in.Operands[0], in.Operands[1]
	if asVector(to) == nil {
		r := asVector(from)
		t.store(to, r.Size(), t.register(r))
		return
	}
	r := asVector(to)
	if asVector(from) != nil {
		h := t.register(asVector(from))
		t.write(in, func(k int) temp { return h[k] })
		return
	}
	if w, ok := t.equalWords(from); ok && r.Size() == 32 {
		d := t.register(r)
		t.copyTo(d[0], t.constant(w))
		if d[0] != d[1] {
			t.copyTo(d[1], d[0])
		}
		return
	}
	if r.Size() == 32 {
		d := t.register(r)
		t.loadTo(from, 32, d[0], d[1])
		return
	}
	p := t.pair(from, 16)
	t.write(in, func(int) temp { return p[0] })
}

func moveFirst(t *translator, in *ir.Instruction) {
	if len(in.Operands) != 2 || asVector(in.Operands[0]) != nil && asVector(in.Operands[1]) != nil {
		fail("not a load or a store")
	}
	if r := asVector(in.Operands[0]); r != nil {
		base, at := t.address(in.Operands[1])
		t.emit(inst{op: storeF, src: []temp{base, t.register(r)[0]}, i: at})
		return
	}
	w := t.firstOf(in.Operands[0])
	t.write(in, func(int) temp { return w })
}

func broadcastWord(t *translator, in *ir.Instruction) {
	from := in.Operands[0]
	var all temp
	if asVector(from) != nil {
		all = t.vec(dupS, t.register(asVector(from))[0])
	} else if w, ok := t.words(from); ok {
		all = t.constant(w[0])
	} else if _, _, ok := argument(from); ok {
		all = t.vec(dupS, t.firstOf(from))
	} else {
		all = t.vec(loadEach, t.exact(from))
	}
	t.write(in, func(int) temp { return all })
}

// storeMasked stores the elements whose mask is negative, among the old ones.
func storeMasked(t *translator, in *ir.Instruction) {
	v := asVector(in.Operands[0])
	if v == nil || v.Size() != 32 {
		fail("not a store of eight")
	}
	h, m := t.register(v), t.register(asVector(in.Operands[1]))
	old := t.pair(in.Operands[2], 32)
	for k := range old {
		old[k] = t.change(bit, old[k], h[k], t.maskOf(in.Operands[1], m[k], signs4s))
	}
	t.store(in.Operands[2], 32, old)
}

// pack narrows a into the lower halves of the lanes and b into the upper.
func pack(low, high *op) vectorFunc {
	return func(t *translator, in *ir.Instruction) {
		p := t.operands(in)
		t.write(in, func(k int) temp { return t.change(high, t.vec(low, p[1][k]), p[0][k]) })
	}
}

func permuteHalves(t *translator, in *ir.Instruction) {
	how, _ := number(in.Operands[0])
	p := t.operands(in)
	of := []temp{p[1][0], p[1][1], p[0][0], p[0][1]}
	t.write(in, func(k int) temp {
		sel := how >> (4 * k)
		if sel&8 != 0 {
			return t.constant(0)
		}
		return of[sel&3]
	})
}

func extract(t *translator, in *ir.Instruction) {
	k, _ := number(in.Operands[0])
	if asVector(in.Operands[2]) == nil {
		t.store(in.Operands[2], 16, [2]temp{t.register(asVector(in.Operands[1]))[k&1]})
		return
	}
	h := t.register(asVector(in.Operands[1]))[k&1]
	t.write(in, func(int) temp { return h })
}

func shuffle(t *translator, in *ir.Instruction) {
	how, _ := number(in.Operands[0])
	p := t.operands(in)
	t.write(in, func(k int) temp {
		switch how {
		case 0x4e:
			return t.vec(ext8, p[0][k], p[0][k])
		case 0xb1:
			return t.vec(rev64s, p[0][k])
		}
		fail("shuffle %#x", how)
		return 0
	})
}

// permuteQuads moves 64-bit elements.
func permuteQuads(t *translator, in *ir.Instruction) {
	how, _ := number(in.Operands[0])
	p := t.operands(in)
	t.write(in, func(k int) temp {
		a, b := how>>(4*k)&3, how>>(4*k+2)&3
		from, to := p[0][a/2], p[0][b/2]
		switch {
		case a%2 == 0 && b%2 == 0:
			return t.vec(zip1d, from, to)
		case a%2 == 1 && b%2 == 1:
			return t.vec(zip2d, from, to)
		case a%2 == 1:
			return t.vec(ext8, from, to)
		case from == to:
			return from
		}
		fail("permutation %#x", how)
		return 0
	})
}

// permute looks words up in a vector of eight.
func permute(t *translator, in *ir.Instruction) {
	table, index := asVector(in.Operands[0]), asVector(in.Operands[1])
	if table == nil {
		fail("the table is in memory")
	}
	h := t.register(table)
	if slices.Equal(t.table[index.ID()], []uint32{0, 4, 1, 5, 2, 6, 3, 7}) {
		t.write(in, func(k int) temp { return t.vec([...]*op{zip1s, zip2s}[k], h[0], h[1]) })
		return
	}
	if t.uniform[table.ID()] {
		fail("the table is all one word")
	}
	t.pairs = append(t.pairs, h)
	at := t.register(index)
	t.write(in, func(k int) temp {
		i := t.tableIndex(at[k], 7)
		d := t.newTemp(vector)
		t.emit(inst{op: tbl2, dst: []temp{d}, src: []temp{h[0], i, h[1]}})
		return d
	})
}

// permuteLanes looks words up in the half that they lie in.
func permuteLanes(t *translator, in *ir.Instruction) {
	if _, ok := number(in.Operands[0]); ok {
		shuffle(t, in)
		return
	}
	p := t.operands(in)
	t.write(in, func(k int) temp { return t.vec(tbl1, p[1][k], t.tableIndex(p[0][k], 3)) })
}

func insert(t *translator, in *ir.Instruction) {
	at, _ := number(in.Operands[0])
	half := t.pair(in.Operands[1], 16)[0]
	h := t.register(asVector(in.Operands[2]))
	h[at&1] = half
	t.write(in, func(k int) temp { return h[k] })
}

// tableIndex gives the places of the bytes of the words whose indices are the
// lower bits: 4*i, 4*i+1, 4*i+2, 4*i+3.
func (t *translator) tableIndex(i temp, bits uint32) temp {
	if b, ok := t.indexes[i]; ok {
		return b
	}
	b := t.vec(and, i, t.sharedConstant(bits))
	b = t.vec(mul4s, b, t.sharedConstant(0x04040404))
	b = t.vec(add4s, b, t.sharedConstant(0x03020100))
	t.indexes[i] = b
	return b
}

// multiplyBytes multiplies unsigned bytes of a with signed bytes of b and adds
// neighbours, with saturation.
func multiplyBytes(t *translator, in *ir.Instruction) {
	p := t.operands(in)
	t.write(in, func(k int) temp {
		a, b := p[1][k], p[0][k]
		lo := t.vec(saddlp8h, t.vec(mul8h, t.vec(uxtl8h, a), t.vec(sxtl8h, b)))
		hi := t.vec(saddlp8h, t.vec(mul8h, t.vec(uxtl8hHi, a), t.vec(sxtl8hHi, b)))
		return t.change(sqxtn8h, t.vec(sqxtn4h, lo), hi)
	})
}

// multiplyWords multiplies signed 16-bit elements and adds neighbours.
func multiplyWords(t *translator, in *ir.Instruction) {
	p := t.operands(in)
	t.write(in, func(k int) temp {
		a, b := p[1][k], p[0][k]
		return t.vec(addp4s, t.vec(smull4s, a, b), t.vec(smullHi, a, b))
	})
}

// widen makes a vector of half of one.
func widen(low, high *op) vectorFunc {
	return func(t *translator, in *ir.Instruction) {
		h := t.pair(in.Operands[0], 16)[0]
		t.write(in, func(k int) temp { return t.vec([...]*op{low, high}[k], h) })
	}
}

// toHalf rounds to F16, to the nearest, ties to even.
func toHalf(t *translator, in *ir.Instruction) {
	if how, _ := number(in.Operands[0]); how != 0 {
		fail("rounding %d", how)
	}
	r := asVector(in.Operands[1])
	h := t.register(r)
	t.write(in, func(int) temp {
		lo := t.vec(fcvtn, h[0])
		if r.Size() == 16 {
			return lo
		}
		return t.change(fcvtn2, lo, h[1])
	})
}

// laneMask gathers a bit for each lane, or a byte. See learnLanes.
func laneMask(t *translator, in *ir.Instruction) {
	r := asVector(in.Operands[0])
	if r.Size() != 32 {
		fail("not a mask of eight lanes")
	}
	h := t.register(r)
	m := t.vec(uzp2h, h[0], h[1])
	if !t.mask[r.ID()] {
		m = t.vec(signs8h, m)
	}
	m = t.vec(xtn8b, m)
	d := []temp{t.gen(in.Operands[1])}
	if t.isLanes(in.Operands[1]) {
		t.emit(inst{op: toX, dst: d, src: []temp{m}})
		return
	}
	t.emit(inst{op: toW, dst: d, src: []temp{t.vec(addv8b, t.vec(and, m, t.laneBits()))}})
}

// byteMask gathers a bit for each byte: eight bytes with a bit each are added up
// in pairs.
func byteMask(t *translator, in *ir.Instruction) {
	r := asVector(in.Operands[0])
	if r.Size() != 32 {
		fail("not a mask of 32 bytes")
	}
	h := t.register(r)
	for k := range h {
		if !t.mask[r.ID()] {
			h[k] = t.vec(signs16b, h[k])
		}
		h[k] = t.vec(and, h[k], t.laneBits())
	}
	m := t.vec(addp16b, h[0], h[1])
	m = t.vec(addp16b, m, m)
	m = t.vec(addp16b, m, m)
	t.emit(inst{op: toW, dst: []temp{t.gen(in.Operands[1])}, src: []temp{m}})
}

func moveWord(t *translator, in *ir.Instruction) {
	if r := asVector(in.Operands[0]); r != nil {
		t.emit(inst{op: toW, dst: []temp{t.gen(in.Operands[1])}, src: []temp{t.register(r)[0]}})
		return
	}
	s := t.gen(in.Operands[0])
	t.write(in, func(int) temp { return t.do(fromW, vector, s) })
}

func extractWord(t *translator, in *ir.Instruction) {
	k, _ := number(in.Operands[0])
	if !isGen(in.Operands[2]) {
		fail("not to a register")
	}
	t.emit(inst{op: toWord, dst: []temp{t.gen(in.Operands[2])}, src: []temp{t.register(asVector(in.Operands[1]))[0]}, i: k})
}

// countBits counts in a vector.
func countBits(t *translator, in, next *ir.Instruction) {
	n := t.vec(addv8b, t.vec(cnt8b, t.do(fromW, vector, t.gen(in.Operands[0]))))
	t.emit(inst{op: toW, dst: []temp{t.gen(in.Operands[1])}, src: []temp{n}})
}

func extractHalf(t *translator, in *ir.Instruction) {
	if k, _ := number(in.Operands[0]); k != 0 {
		fail("element %d", k)
	}
	h := t.do(toH, general, t.register(asVector(in.Operands[1]))[0])
	if r, ok := in.Operands[2].(reg.Register); ok {
		t.emit(inst{op: zero32, dst: []temp{t.gen(r)}, src: []temp{h}})
		return
	}
	base, at := t.address(in.Operands[2])
	t.emit(inst{op: store16, src: []temp{base, h}, i: at})
}

package ggmldot

import (
	"quern/internal/fma"
	"quern/tensor/dot"
)

// Products of types with blocks of 32 values, with activations of 8 bits.
//
// Plain rows: 8 lanes take the blocks of a row in order. Lane l has the integer sum n of
// products of values 4l to 4l+3 of a block, whose weights have scale d and whose
// activations have scale da:
//
//	lane = fma(d*da, float32(n), lane)
//
// They are added as ((0+4)+(2+6)) + ((1+5)+(3+7)).
//
//	Q4_0, Q5_0, Q8_0 and, if there are 2 columns or more, IQ4_NL: this is it.
//	Q4_1, Q5_1: a sum of its own takes the minima m in row order, with s of Q8_1,
//	    sum = fma(m, s, sum), and is added last.
//	MXFP4, and IQ4_NL with one column: blocks 0, 2, 4 ... and 1, 3, 5 ... have lanes of their own,
//	    which are added before the lanes are. Where the number of blocks is odd, the last
//	    one is left out of them; it follows as fma(d*da, float32(n), sum), with n the sum
//	    of all its products.
//
// Repacked rows have no lanes: with n the sum of all products of a block,
//
//	sum = fma(float32(n), d*da, sum)
//
// An activation that is not finite can have code -128, whose product with a negative
// weight ggml gets wrong (signedProduct): in lanes always, in repacked rows where
// columns are multiplied one by one, which are those after the last whole four.

// rowStep is the number of weight rows that are unpacked at once.
const rowStep = dot.Step

// int8Rows are rowStep unpacked rows of weights, block by block:
//
//	codes   32 codes of row 0, of row 1, ... row 7, then room for a second form of them
//	scales  d of rows 0-7, then m
type int8Rows struct {
	tile   dot.Tile
	codes  []int8
	scales []float32
	out    []float32 // results that do not fit where they go
}

// form is the second form of codes.
type form uint8

const (
	none   form = iota
	mags        // magnitudes
	biased      // with the bias that some types have: not negative
)

// secondForm is what kernels without lanes take of codes with a bias or without.
func secondForm(bias int8) form {
	if bias == 0 {
		return mags
	}
	return biased
}

// stepCodes and stepScales are how far blocks lie apart.
const (
	stepCodes  = 2 * rowStep * 32
	stepScales = 2 * rowStep
)

// block is block u of row i.
func (p *int8Rows) block(i, u int) *[32]int8 { return (*[32]int8)(p.codes[stepCodes*u+32*i:]) }

func (p *int8Rows) d(i, u int) float32 { return p.scales[stepScales*u+i] }

func (p *int8Rows) m(i, u int) float32 { return p.scales[stepScales*u+rowStep+i] }

// results gives room for n columns of rowStep results.
func (p *int8Rows) results(n int) []float32 {
	if len(p.out) < rowStep*n {
		p.out = make([]float32, rowStep*n)
	}
	return p.out[:rowStep*n]
}

// adding is how the lanes of blocks come together.
type adding uint8

const (
	addAll    adding = iota // lanes take all blocks
	addMins                 // and minima have a sum
	addInTurn               // two sets of lanes take turns
)

// lanesPath gives the family of a type with blocks of 32, whose unpacked codes have a
// bias: how blocks are added with one column, and with more.
func lanesPath(f Format, bias int8, one, more adding) family {
	plain := &path{format: f}
	plain.mul = func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
		how := more
		if b.rows == 1 {
			how = one
		}
		k.eachRows(w, s, bias, none, func(r, n int) {
			mulLanes(dst[r:], stride, n, b, &s.int8Rows, how)
		})
	}
	packed := &path{format: Q8_0x8}
	packed.mul = func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
		k.eachRows(w, s, bias, secondForm(bias), func(r, n int) {
			mulBlocks(dst[r:], stride, n, b, &s.int8Rows, bias)
		})
	}
	return func(_ int, repacked bool) *path {
		if repacked {
			return packed
		}
		return plain
	}
}

// eachRows unpacks rows, rowStep at a time, and calls do with the first and their number.
func (k *Kernel) eachRows(w []byte, s *Scratch, bias int8, second form, do func(r, n int)) {
	p := &s.int8Rows
	blocks, perBlock, blockBytes := k.width/32, int(k.typ.BlockValues())/32, int(k.typ.BlockBytes())
	if len(p.codes) < stepCodes*blocks {
		p.codes, p.scales = make([]int8, stepCodes*blocks), make([]float32, stepScales*blocks)
	}
	for r := 0; r*k.rowBytes < len(w); r += rowStep {
		n := min(len(w)/k.rowBytes-r, rowStep)
		for u := 0; u < blocks; u += dot.TileWidth / 32 {
			count := min(blocks-u, dot.TileWidth/32)
			p.tile.Unpack(k.typ, n, count/perBlock, w[r*k.rowBytes+u/perBlock*blockBytes:], k.rowBytes)
			spread(p, u, count, bias, second)
		}
		do(r, n)
	}
}

// spreadScalar brings blocks of the tile to their places from block u on.
func spreadScalar(p *int8Rows, u, blocks int, bias int8, second form) {
	d, m := p.tile.D(), p.tile.M()
	for x := range blocks {
		for i := range rowStep {
			from := p.tile.Codes()[i*dot.TileWidth+32*x:][:32]
			codes := p.codes[stepCodes*(u+x)+32*i:]
			for j, q := range from {
				v := int8(q) - bias
				codes[j] = v
				switch {
				case second == biased:
					v = int8(q)
				case v < 0:
					v = -v
				}
				codes[32*rowStep+j] = v
			}
			at := stepScales*(u+x) + i
			p.scales[at], p.scales[at+rowStep] = d[rowStep*x+i], m[rowStep*x+i]
		}
	}
}

// mulLanesScalar multiplies the first n rows with all columns.
func mulLanesScalar(dst []float32, stride, n int, b *Batch, p *int8Rows, how adding) {
	for t := range b.rows {
		for i := range n {
			dst[t*stride+i] = number(lanesOf(p, i, b, t, how))
		}
	}
}

// lanesOf is the product of row i with column t.
func lanesOf(p *int8Rows, i int, b *Batch, t int, how adding) float32 {
	q, da := b.codes[t*b.width:], b.scales[t*b.blocks:]
	var l, second [8]float32
	blocks := b.blocks
	if how == addInTurn {
		blocks &^= 1
	}
	for u := range blocks {
		to := &l
		if how == addInTurn && u&1 == 1 {
			to = &second
		}
		addBlock(to, p.block(i, u), (*[32]int8)(q[32*u:]), float32(p.d(i, u)*da[u]))
	}
	if how == addInTurn {
		for j := range l {
			l[j] += second[j]
		}
	}
	sum := addLanes(&l)
	switch {
	case how == addMins:
		var mins float32
		for u := range b.blocks {
			mins = fma.F32(p.m(i, u), b.sums[t*b.blocks+u], mins)
		}
		sum += mins
	case blocks < b.blocks:
		sum = addLast(sum, p, i, b, t)
	}
	return sum
}

// addLast adds the block that two sets of lanes leave.
func addLast(sum float32, p *int8Rows, i int, b *Batch, t int) float32 {
	u := b.blocks - 1
	n := blockSum(p.block(i, u), (*[32]int8)(b.codes[t*b.width+32*u:]), false)
	return fma.F32(float32(p.d(i, u)*b.scales[t*b.blocks+u]), float32(n), sum)
}

// addBlock adds a block to lanes.
func addBlock(l *[8]float32, w, a *[32]int8, d float32) {
	for j := range l {
		var n int32
		for x := 4 * j; x < 4*j+4; x++ {
			n += signedProduct(w[x], a[x])
		}
		l[j] = fma.F32(d, float32(n), l[j])
	}
}

// signedProduct is w*a as x86 has it: |w| times a with the sign of w, where -128, an
// activation that was not finite, has no negative.
func signedProduct(w, a int8) int32 {
	if w < 0 && a == -128 {
		return int32(w) * 128
	}
	return int32(w) * int32(a)
}

// blockSum is the sum of all products of a block. signed says that they are
// those of signedProduct.
func blockSum(w, a *[32]int8, signed bool) int32 {
	var n int32
	for x := range w {
		if signed {
			n += signedProduct(w[x], a[x])
		} else {
			n += int32(w[x]) * int32(a[x])
		}
	}
	return n
}

// mulBlocksScalar multiplies the first n rows, repacked ones, with columns from first to last-1.
func mulBlocksScalar(dst []float32, stride, n int, b *Batch, p *int8Rows, first, last int) {
	var q [32]int8
	for t := first; t < last; t++ {
		group, lane := t&^7, t&7
		single := t >= b.rows&^3
		for i := range n {
			var sum float32
			for u := range b.blocks {
				b.groupBlock(&q, group, u, lane)
				d := float32(p.d(i, u) * b.scales[group*b.blocks+8*u+lane])
				sum = fma.F32(float32(blockSum(p.block(i, u), &q, single)), d, sum)
			}
			dst[t*stride+i] = number(sum)
		}
	}
}

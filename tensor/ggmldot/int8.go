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

// int8Rows are rowStep unpacked rows of weights:
//
//	codes   row 0, row 1, ... row 7, one after the other
//	d, m    block 0 of rows 0-7, block 1 of rows 0-7, ...
type int8Rows struct {
	tile  dot.Tile
	codes []int8
	d, m  []float32
}

// adding is how the lanes of blocks come together.
type adding uint8

const (
	addAll    adding = iota // lanes take all blocks
	addMins                 // and minima have a sum
	addInTurn               // two sets of lanes take turns
)

// lanesPath gives the family of a type with blocks of 32, whose unpacked codes have a
// bias: how blocks are added with one column, and with more. Some have a repacked form.
func lanesPath(f Format, bias int8, one, more adding, repacks bool) family {
	plain := &path{format: f}
	plain.mul = func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
		how := more
		if b.rows == 1 {
			how = one
		}
		k.eachRows(w, s, bias, func(r, n int) {
			mulLanes(dst[r:], stride, n, b, &s.int8Rows, how)
		})
	}
	packed := &path{format: Q8_0x8}
	packed.mul = func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
		k.eachRows(w, s, bias, func(r, n int) {
			mulBlocks(dst[r:], stride, n, b, &s.int8Rows)
		})
	}
	return func(_, rows int, repacked bool) *path {
		switch {
		case !repacked:
			return plain
		case repacks && rows%8 == 0:
			return packed
		}
		return nil
	}
}

// eachRows unpacks rows, rowStep at a time, and calls do with the first and their number.
func (k *Kernel) eachRows(w []byte, s *Scratch, bias int8, do func(r, n int)) {
	p := &s.int8Rows
	if len(p.codes) < rowStep*k.width {
		p.codes = make([]int8, rowStep*k.width)
	}
	if n := rowStep * k.width / 32; len(p.d) < n {
		p.d, p.m = make([]float32, n), make([]float32, n)
	}
	blocks, perBlock, blockBytes := k.width/32, int(k.typ.BlockValues())/32, int(k.typ.BlockBytes())
	for r := 0; r*k.rowBytes < len(w); r += rowStep {
		n := min(len(w)/k.rowBytes-r, rowStep)
		for u := 0; u < blocks; u += dot.TileWidth / 32 {
			count := min(blocks-u, dot.TileWidth/32)
			p.tile.Unpack(k.typ, n, count/perBlock, w[r*k.rowBytes+u/perBlock*blockBytes:], k.rowBytes)
			copy(p.d[rowStep*u:], p.tile.D()[:rowStep*count])
			copy(p.m[rowStep*u:], p.tile.M()[:rowStep*count])
			for i := range n {
				to, from := p.codes[i*k.width+32*u:][:32*count], p.tile.Codes()[i*dot.TileWidth:]
				for j := range to {
					to[j] = int8(from[j]) - bias
				}
			}
		}
		do(r, n)
	}
}

// mulLanes multiplies the first n rows with all columns.
func mulLanes(dst []float32, stride, n int, b *Batch, p *int8Rows, how adding) {
	for t := range b.rows {
		q, da := b.codes[t*b.width:], b.scales[t*b.blocks:]
		for i := range n {
			dst[t*stride+i] = number(lanesOf(p, i, b, q, da, t, how))
		}
	}
}

// lanesOf is the product of row i with column t.
func lanesOf(p *int8Rows, i int, b *Batch, q []int8, da []float32, t int, how adding) float32 {
	w, d := p.codes[i*b.width:][:b.width], p.d[i:]
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
		addBlock(to, (*[32]int8)(w[32*u:]), (*[32]int8)(q[32*u:]), float32(d[rowStep*u]*da[u]))
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
			mins = fma.F32(p.m[rowStep*u+i], b.sums[t*b.blocks+u], mins)
		}
		sum += mins
	case blocks < b.blocks:
		n := blockSum((*[32]int8)(w[32*blocks:]), (*[32]int8)(q[32*blocks:]), false)
		sum = fma.F32(float32(d[rowStep*blocks]*da[blocks]), float32(n), sum)
	}
	return sum
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

// mulBlocks multiplies the first n rows, repacked ones, with all columns.
func mulBlocks(dst []float32, stride, n int, b *Batch, p *int8Rows) {
	var q [32]int8
	for t := range b.rows {
		first, lane := t&^7, t&7
		single := t >= b.rows&^3
		for i := range n {
			var sum float32
			for u := range b.blocks {
				codes := b.codes[first*b.width+256*u+4*lane:]
				for x := 0; x < 32; x += 4 {
					*(*[4]int8)(q[x:]) = [4]int8(codes[8*x:])
				}
				d := float32(p.d[rowStep*u+i] * b.scales[first*b.blocks+8*u+lane])
				sum = fma.F32(float32(blockSum((*[32]int8)(p.codes[i*b.width+32*u:]), &q, single)), d, sum)
			}
			dst[t*stride+i] = number(sum)
		}
	}
}

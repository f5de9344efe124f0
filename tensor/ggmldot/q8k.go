package ggmldot

import (
	"math"

	"quern/tensor/dot"
)

// columns is the number of activation rows that lie side by side, and of weight
// rows that are unpacked at once.
const columns = dot.Step

// superRows are activation rows in superblocks of 256 codes with a float32 scale.
// They are packed in groups of 8, filled up with zeros:
//
//	codes   4 codes of column 0, of column 1, ... column 7; the next 4 of each
//	scales  unit 0 of columns 0-7, unit 1 of columns 0-7, ...
//	sums16  of each 16 codes: two of column 0, two of column 1, ...; the next two
//	sums32  of each 32 codes, like sums16
//
// Unit is the field's word for a superblock here as in package dot.
type superRows struct {
	codes  []int8
	scales []float32
	sums16 []int16
	sums32 []int16
	// odd is of each row with values that are not finite: the group that it would be in
	// if it lay among fours of columns of a repacked matrix, nil of other rows.
	odd []*superRows
	// alone says that there is a single column, which lies in row order too, for vector
	// code that multiplies it by itself.
	alone bool
	one   superColumn
}

// superColumn is a column in row order: codes, scales of units, and sums of each 16
// codes.
type superColumn struct {
	codes  []int8
	scales []float32
	sums   []int16
}

// superGroup is what one group of columns has of some units.
type superGroup struct {
	codes  []int8    // 2048 a unit
	scales []float32 // 8 a unit
	sums16 []int16   // 128 a unit
	sums32 []int16   // 64 a unit
}

// group cuts units from first to first+n of group g of rows of units units.
func (r *superRows) group(g, units, first, n int) superGroup {
	at := g*units + first
	return superGroup{
		codes:  r.codes[2048*at:][:2048*n],
		scales: r.scales[columns*at:][:columns*n],
		sums16: r.sums16[128*at:][:128*n],
		sums32: r.sums32[64*at:][:64*n],
	}
}

// newSuperRows makes room for groups of columns.
func newSuperRows(groups, units int) *superRows {
	n := groups * units
	return &superRows{
		codes:  make([]int8, 2048*n),
		scales: make([]float32, columns*n),
		sums16: make([]int16, 128*n),
		sums32: make([]int16, 64*n),
	}
}

func roomQ8_K(b *Batch) {
	b.super = newSuperRows((b.room+columns-1)/columns, b.blocks)
	b.super.odd = make([]*superRows, b.room)
	b.super.one = superColumn{make([]int8, b.width), make([]float32, b.blocks), make([]int16, 16*b.blocks)}
}

// resetQ8_K clears the last group if some of its columns will not be set.
func resetQ8_K(b *Batch) {
	b.super.alone = b.rows == 1
	if b.rows%columns == 0 {
		return
	}
	last := b.super.group(b.rows/columns, b.blocks, 0, b.blocks)
	clear(last.codes)
	clear(last.scales)
	clear(last.sums16)
	clear(last.sums32)
}

func setQ8_K(b *Batch, t int, x []float32) {
	group, lane := b.super.group(t/columns, b.blocks, 0, b.blocks), t%columns
	b.super.odd[t] = nil
	odd := false
	var q [superValues]int8
	var sums [16]int16
	for u := range b.blocks {
		x := (*[superValues]float32)(x[superValues*u:])
		d := dot.QuantizeQ8_K(&q, &sums, x)
		odd = odd || d != d
		if d != d || d == 0 {
			d = quantizeQ8_K(&q, x)
			sum16s(&sums, &q)
		}
		group.set(u, lane, d, &q, &sums)
		if b.super.alone {
			b.super.one.scales[u] = d
			copy(b.super.one.codes[superValues*u:], q[:])
			copy(b.super.one.sums[16*u:], sums[:])
		}
	}
	if !odd {
		return
	}
	among := newSuperRows(1, b.blocks)
	group = among.group(0, b.blocks, 0, b.blocks)
	for u := range b.blocks {
		d := quantizeAmong(&q, (*[superValues]float32)(x[superValues*u:]))
		sum16s(&sums, &q)
		group.set(u, lane, d, &q, &sums)
	}
	b.super.odd[t] = among
}

// set brings unit u of a column into its lane.
func (g *superGroup) set(u, lane int, d float32, q *[superValues]int8, sums *[16]int16) {
	g.scales[columns*u+lane] = d
	codes := g.codes[2048*u+4*lane:]
	for i := 0; i < superValues; i += 4 {
		*(*[4]int8)(codes[columns*i:]) = [4]int8(q[i:])
	}
	pairs := g.sums16[128*u+2*lane:]
	for j := 0; j < 16; j += 2 {
		pairs[columns*j], pairs[columns*j+1] = sums[j], sums[j+1]
	}
	pairs = g.sums32[64*u+2*lane:]
	for j := 0; j < 8; j += 2 {
		pairs[columns*j], pairs[columns*j+1] = sums[2*j]+sums[2*j+1], sums[2*j+2]+sums[2*j+3]
	}
}

func sum16s(sums *[16]int16, q *[superValues]int8) {
	clear(sums[:])
	for i, v := range q {
		sums[i/16] += int16(v)
	}
}

// Q8_K has codes and the scale
//
//	by = 127/max|x|    q = x*by to the nearest, ties to even    d = 1/by
//
// ggml gives by a sign, and so d and all codes; products are the same, and package
// dot leaves it out. It matters with values that are not finite, which the two functions that make
// Q8_K treat in ways of their own, and takes part below.

// quantizeQ8_K is ggml's quantize_row_q8_K: what is not a number is passed over
// by the maximum, and has the low bits of its payload for a code.
func quantizeQ8_K(q *[superValues]int8, x *[superValues]float32) float32 {
	clear(q[:])
	var most, signed float32
	for _, v := range x {
		if a := abs(v); a > most {
			most, signed = a, v
		}
	}
	if most == 0 {
		return 0
	}
	by := -127 / signed
	for i, v := range x {
		switch p := float32(v * by); {
		case v != v:
			q[i] = int8(min(math.Float32bits(v)&0x3fffff, math.MaxInt8))
		case abs(p) <= 127.5: // neither infinite nor NaN
			q[i] = int8(math.RoundToEven(float64(p)))
		}
	}
	return 1 / by
}

// quantizeAmong is ggml's quantize_mat_q8_K_4x8 for one of its four rows: the maximum
// and codes go the way of x86's instructions, as in quantize.go.
func quantizeAmong(q *[superValues]int8, x *[superValues]float32) float32 {
	// Lanes of maxima, and whether a lane's is that of a positive value.
	var most [8]float32
	var positive [8]bool
	for l := range most {
		most[l] = abs(x[l])
		for first := 0; first < superValues; first += 32 {
			before := most[l]
			for i := first + l; i < first+32; i += 8 {
				if i > l {
					most[l] = maxOf(most[l], abs(x[i]))
				}
			}
			positive[l] = positive[l] && most[l] == before
			for i := first + l; i < first+32; i += 8 {
				positive[l] = positive[l] || most[l] == x[i]
			}
		}
	}
	top := topOf(&most)
	var by float32
	if top != 0 {
		by = 127 / top
		for l, m := range most {
			if positive[l] && m == top {
				by = -127 / top
			}
		}
	}
	for i, v := range x {
		q[i] = saturated(toInt32(float32(v * by)))
	}
	if top == 0 {
		return 0
	}
	return 1 / by
}

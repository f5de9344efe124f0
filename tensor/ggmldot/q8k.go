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

func roomQ8_K(b *Batch) {
	units := (b.room + columns - 1) / columns * b.blocks
	b.super = superRows{
		codes:  make([]int8, 2048*units),
		scales: make([]float32, columns*units),
		sums16: make([]int16, 128*units),
		sums32: make([]int16, 64*units),
	}
}

// resetQ8_K clears the last group if some of its columns will not be set.
func resetQ8_K(b *Batch) {
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
	var q [256]int8
	var sums [16]int16
	for u := range b.blocks {
		group.scales[columns*u+lane] = quantizeQ8_K(&q, &sums, (*[256]float32)(x[256*u:]))
		codes := group.codes[2048*u+4*lane:]
		for i := 0; i < 256; i += 4 {
			*(*[4]int8)(codes[columns*i:]) = [4]int8(q[i:])
		}
		pairs := group.sums16[128*u+2*lane:]
		for j := 0; j < 16; j += 2 {
			pairs[columns*j], pairs[columns*j+1] = sums[j], sums[j+1]
		}
		pairs = group.sums32[64*u+2*lane:]
		for j := 0; j < 8; j += 2 {
			pairs[columns*j], pairs[columns*j+1] = sums[2*j]+sums[2*j+1], sums[2*j+2]+sums[2*j+3]
		}
	}
}

// quantizeQ8_K gives the codes of a superblock, the sums of each 16 and the scale,
// as both of ggml's functions do that make Q8_K (quantize_row_q8_K and
// ggml_quantize_mat_q8_K_4x8):
//
//	by = 127/max|x|, q = x*by to the nearest, ties to even, d = 1/by
//
// Their scales have a sign, each its own, and so have all codes of the superblock; the
// products are the same. A superblock so small that by is infinite is all zero, one
// with a value that is not finite makes every product NaN, where ggml gives some
// other NaN or passes over it.
func quantizeQ8_K(q *[256]int8, sums *[16]int16, x *[256]float32) float32 {
	d := dot.QuantizeQ8_K(q, sums, x)
	if d != 0 {
		return d
	}
	// Package dot takes all of the last binade for zero.
	var most float32
	for _, v := range x {
		if v := float32(math.Abs(float64(v))); v > most {
			most = v
		}
	}
	by := 127 / most
	if by > math.MaxFloat32 {
		return 0
	}
	for i, v := range x {
		q[i] = int8(math.RoundToEven(float64(float32(v * by))))
		sums[i/16] += int16(q[i])
	}
	return 1 / by
}

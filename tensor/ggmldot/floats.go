package ggmldot

import (
	"quern/internal/fma"
	"quern/tensor/quant"
)

// Products of F32, F16 and BF16 weights, with activations rounded to the type of the
// weights. 8 lanes take their products in turn, lane l those of values l, l+8,
// l+16 and so on: lane = fma(w, x, lane).
//
// In tiles, if 8 divides the width, 4 the rows of the matrix, and there are 2 columns
// or more: the lanes are added as ((0+4)+(2+6)) + ((1+5)+(3+7)).
//
// One by one otherwise: four such vectors of lanes take turns, values 0-7, 8-15, 16-23
// and 24-31 of each 32, and are added as (0+2)+(1+3). Then the lanes are added, in
// BF16 as above, else as ((0+4)+(1+5)) + ((2+6)+(3+7)). What is left after whole 32s
// follows in order: F32 adds rounded products as far as whole 4s of it go, and up to
// 3 more by fma; F16 and BF16 add rounded products to a float64 sum that is rounded
// at the end.

// floatLanes is the number of lanes.
const floatLanes = 8

// tiledRows is the number of rows that are decoded at once for tiles.
const tiledRows = 16

// floatPath gives the family of a float type.
func floatPath(f Format, one func(w, x []float32) float32) family {
	p := &path{format: f}
	p.mul = func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
		step := 1
		if b.rows > 1 && k.width%floatLanes == 0 && k.rows%4 == 0 {
			step = min(tiledRows, (len(w)/k.rowBytes+3)&^3)
		}
		d, err := quant.DecoderFor(k.typ)
		if err != nil {
			return // these types have one
		}
		rows := s.floats(step * k.width)
		for r := 0; r*k.rowBytes < len(w); r += step {
			n := min(step, len(w)/k.rowBytes-r)
			for i := range n {
				d.Decode(rows[i*k.width:][:k.width], w[(r+i)*k.rowBytes:][:k.rowBytes])
			}
			if step > 1 {
				mulTiled(dst[r:], stride, n, rows, b, s)
				continue
			}
			for t := range b.rows {
				dst[t*stride+r] = number(one(rows, b.floats[t*k.width:][:k.width]))
			}
		}
	}
	return func(int, bool) *path { return p }
}

// mulTiledScalar multiplies the first n decoded rows with all columns.
func mulTiledScalar(dst []float32, stride, n int, rows []float32, b *Batch) {
	for t := range b.rows {
		for i := range n {
			dst[t*stride+i] = number(dotTiled(rows[i*b.width:], b.floats[t*b.width:][:b.width]))
		}
	}
}

// fmaLanes takes 8 products into the lanes.
func fmaLanes(l *[floatLanes]float32, w, x []float32) {
	a, b := (*[floatLanes]float32)(w), (*[floatLanes]float32)(x)
	for i := range l {
		l[i] = fma.F32(a[i], b[i], l[i])
	}
}

// addLanes is the sum of lanes as most products take it.
func addLanes(l *[floatLanes]float32) float32 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

// addNeighbours is the sum of lanes that adds neighbours first.
func addNeighbours(l *[floatLanes]float32) float32 {
	return ((l[0] + l[4]) + (l[1] + l[5])) + ((l[2] + l[6]) + (l[3] + l[7]))
}

func dotTiled(w, x []float32) float32 {
	var l [floatLanes]float32
	for i := 0; i < len(x); i += floatLanes {
		fmaLanes(&l, w[i:], x[i:])
	}
	return addLanes(&l)
}

// lanes32sScalar gives the lanes of the whole 32s of a row.
func lanes32sScalar(sum *[floatLanes]float32, w, x []float32) {
	var l [4][floatLanes]float32
	for ; len(x) >= 32; w, x = w[32:], x[32:] {
		for j := range l {
			fmaLanes(&l[j], w[8*j:], x[8*j:])
		}
	}
	for i := range sum {
		sum[i] = (l[0][i] + l[2][i]) + (l[1][i] + l[3][i])
	}
}

// dot32s gives the lanes of the whole 32s of a row.
func dot32s(w, x []float32) *[floatLanes]float32 {
	var l [floatLanes]float32
	lanes32s(&l, w, x)
	return &l
}

func dotF32(w, x []float32) float32 {
	sum, i := addNeighbours(dot32s(w, x)), len(x)&^31
	for ; i < len(x)&^3; i++ {
		sum += float32(w[i] * x[i])
	}
	for ; i < len(x); i++ {
		sum = fma.F32(w[i], x[i], sum)
	}
	return sum
}

func dotF16(w, x []float32) float32 { return addRest(addNeighbours(dot32s(w, x)), w, x) }

func dotBF16(w, x []float32) float32 { return addRest(addLanes(dot32s(w, x)), w, x) }

// addRest adds the products after the whole 32s.
func addRest(first float32, w, x []float32) float32 {
	sum := float64(first)
	for i := len(x) &^ 31; i < len(x); i++ {
		sum += float64(float32(w[i] * x[i]))
	}
	return float32(sum)
}

// roomFloats has room for two rows more, for kernels that take three at once.
func roomFloats(b *Batch) { b.floats = make([]float32, (b.room+2)*b.width) }

func setF32(b *Batch, t int, x []float32) { copy(b.floats[t*b.width:], x) }

func setF16(b *Batch, t int, x []float32) {
	row := b.floats[t*b.width:][:b.width]
	for i, v := range x {
		row[i] = quant.FromF16(quant.ToF16(v))
	}
}

func setBF16(b *Batch, t int, x []float32) {
	row := b.floats[t*b.width:][:b.width]
	for i, v := range x {
		row[i] = quant.FromBF16(quant.ToBF16(v))
	}
}

package ggmldot

import (
	"quern/internal/fma"
	"quern/tensor/dot"
)

// ggml's vec_dot functions keep 8 lanes. Lane l has those values of a superblock
// whose places are 4*l to 4*l+3 modulo 32, and lanes are added at the end:
//
//	n[l]    = sum over them of scale * code * a         (exact)
//	lane[l] = fma(d*da, float32(n[l]), lane[l])
//	result  = ((0+4)+(2+6)) + ((1+5)+(3+7))
//
// What the codes are too high, and minima, go with the sums of each 16 activations.
// With c[l] = corr[2l]*sum[2l] + corr[2l+1]*sum[2l+1]:
//
//	Sums    n[l] - c[l] in place of n[l]: the bias enters other lanes than the values
//	Mins8   lane[l] = fma(-da*dmin, float32(c[l]), lane[l]), before the values
//	Mins4   4 lanes of their own take float32(c[2l]+c[2l+1]) in that way; added as
//	        (0+2)+(1+3), and to the result
//	Mins1   one sum of its own takes float32(all of c); added to the result
//
// IQ1 types have values of an eighth more or less than an integer. The eighths, +1
// or -1 for each value and times its scale, are added up apart: in IQ1_S all of a
// superblock by fma to one sum, in IQ1_M by lanes. The sum of the lanes and an eighth
// of that sum are the result, by fma in IQ1_M, rounded twice in IQ1_S.
var (
	lanesPlain = order{acc: columns, sum: sumLanes, finish: finishLanes}
	lanesSums  = order{acc: columns, sum: sumLanesSums, finish: finishLanes}
	lanesMins8 = order{acc: columns, sum: sumLanesMins8, finish: finishLanes}
	lanesMins4 = order{acc: columns + 4, sum: sumLanesMins4, finish: finishMins4}
	lanesMins1 = order{acc: columns + 1, sum: sumLanesMins1, finish: finishMins1}
	lanesIQ1_S = order{acc: columns + 1, sum: sumIQ1_S, finish: finishIQ1_S}
	lanesIQ1_M = order{acc: 2 * columns, sum: sumIQ1_M, finish: finishIQ1_M}
)

// cell is one product in the making: a weight row of a tile and a column of a group.
type cell struct {
	t   *dot.Tile
	g   superGroup
	f   *superFamily
	row int
	col int
}

// codes gives 4 codes of unit u at value v, without bias if it is to go, and the
// activations.
func (c *cell) codes(u, v int) (w *[4]byte, a *[4]int8) {
	w = (*[4]byte)(c.t.Codes()[c.row*dot.TileWidth+superValues*u+v:])
	return w, (*[4]int8)(c.g.codes[2048*u+columns*v+4*c.col:])
}

func (c *cell) scale(u, v int) int32 {
	return int32(int16(c.t.Scales()[c.row*dot.TileWidth/16+(superValues*u+v)/16]))
}

// dot4 multiplies 4 codes with activations.
func dot4(w *[4]byte, a *[4]int8, bias int32, signed bool) int32 {
	var n int32
	for i, q := range w {
		v := int32(q) - bias
		if signed {
			v = int32(int8(q))
		}
		n += v * int32(a[i])
	}
	return n
}

// values is n of the lanes, of codes less bias.
func (c *cell) values(u int, bias int32, signed bool) (n [columns]int32) {
	for v := 0; v < superValues; v += 4 {
		w, a := c.codes(u, v)
		n[v/4%columns] += c.scale(u, v) * dot4(w, a, bias, signed)
	}
	return n
}

// corrections is c of the lanes.
func (c *cell) corrections(u int) (n [columns]int32) {
	corr := c.t.Corr()[c.row*dot.TileWidth/16+16*u:][:16]
	sums := c.g.sums16[128*u+2*c.col:]
	for l := range n {
		n[l] = int32(corr[2*l])*int32(sums[16*l]) + int32(corr[2*l+1])*int32(sums[16*l+1])
	}
	return n
}

// d and dmin are the products of the weights' scale, or that of their minima, with
// the activations' scale.
func (c *cell) d(u int) float32 {
	return float32(c.t.D()[columns*u+c.row] * c.g.scales[columns*u+c.col])
}

func (c *cell) dmin(u int) float32 {
	return float32(c.t.M()[columns*u+c.row] * c.g.scales[columns*u+c.col])
}

// take adds the sums of lanes, whose first column has place acc[0].
func take(acc []float32, d float32, n *[columns]int32) {
	for l, v := range n {
		acc[columns*l] = fma.F32(d, float32(v), acc[columns*l])
	}
}

// cells calls f for every product of a group, with its sums from acc[0] on, each
// columns further.
func cells(o *order, fam *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, f func(c *cell, acc []float32)) {
	for i := range rows {
		for lane := range columns {
			f(&cell{t, g, fam, i, lane}, acc[columns*o.acc*i+lane:columns*o.acc*(i+1)])
		}
	}
}

func sumLanes(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, units int) {
	cells(o, f, acc, t, rows, g, func(c *cell, acc []float32) {
		for u := range units {
			n := c.values(u, f.bias, f.bias == 0)
			take(acc, c.d(u), &n)
		}
	})
}

func sumLanesSums(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, units int) {
	cells(o, f, acc, t, rows, g, func(c *cell, acc []float32) {
		for u := range units {
			n, corr := c.values(u, 0, false), c.corrections(u)
			for l, v := range corr {
				n[l] -= v
			}
			take(acc, c.d(u), &n)
		}
	})
}

func sumLanesMins8(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, units int) {
	cells(o, f, acc, t, rows, g, func(c *cell, acc []float32) {
		for u := range units {
			n, corr := c.values(u, 0, false), c.corrections(u)
			take(acc, -c.dmin(u), &corr)
			take(acc, c.d(u), &n)
		}
	})
}

func sumLanesMins4(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, units int) {
	cells(o, f, acc, t, rows, g, func(c *cell, acc []float32) {
		for u := range units {
			n, corr := c.values(u, 0, false), c.corrections(u)
			take(acc, c.d(u), &n)
			d := -c.dmin(u)
			for l := range 4 {
				to := &acc[columns*(columns+l)]
				*to = fma.F32(d, float32(corr[2*l]+corr[2*l+1]), *to)
			}
		}
	})
}

func sumLanesMins1(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, units int) {
	cells(o, f, acc, t, rows, g, func(c *cell, acc []float32) {
		for u := range units {
			n, corr := c.values(u, 0, false), c.corrections(u)
			take(acc, c.d(u), &n)
			var sum int32
			for _, v := range corr {
				sum += v
			}
			to := &acc[columns*columns]
			*to = fma.F32(-c.dmin(u), float32(sum), *to)
		}
	})
}

// eighths splits the values of an IQ1 type: code-16 is 8 times an integer and 1 more
// or less.
func (c *cell) eighths(u int) (integers, rests [columns]int32) {
	for v := 0; v < superValues; v += 4 {
		w, a := c.codes(u, v)
		var whole, rest int32
		for i, q := range w {
			// One of 8g+1+1 and 8g-1+1, which both have g in front.
			g := (int32(q) - 16 + 1) >> 3
			whole += g * int32(a[i])
			rest += (int32(q) - 16 - 8*g) * int32(a[i])
		}
		s := c.scale(u, v)
		integers[v/4%columns] += s * whole
		rests[v/4%columns] += s * rest
	}
	return integers, rests
}

func sumIQ1_S(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, units int) {
	cells(o, f, acc, t, rows, g, func(c *cell, acc []float32) {
		for u := range units {
			n, rests := c.eighths(u)
			take(acc, c.d(u), &n)
			var sum int32
			for _, v := range rests {
				sum += v
			}
			to := &acc[columns*columns]
			*to = fma.F32(c.d(u), float32(sum), *to)
		}
	})
}

func sumIQ1_M(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, units int) {
	cells(o, f, acc, t, rows, g, func(c *cell, acc []float32) {
		for u := range units {
			n, rests := c.eighths(u)
			take(acc, c.d(u), &n)
			take(acc[columns*columns:], c.d(u), &rests)
		}
	})
}

// columnLanes are the lanes of a column.
func columnLanes(acc []float32, col int) *[columns]float32 {
	var l [columns]float32
	for i := range l {
		l[i] = acc[columns*i+col]
	}
	return &l
}

func finishLanes(f *superFamily, out *[columns]float32, acc []float32) {
	for c := range out {
		out[c] = float32(f.over * addLanes(columnLanes(acc, c)))
	}
}

func finishMins4(_ *superFamily, out *[columns]float32, acc []float32) {
	for c := range out {
		m := acc[columns*columns+c:]
		mins := (m[0] + m[2*columns]) + (m[columns] + m[3*columns])
		out[c] = addLanes(columnLanes(acc, c)) + mins
	}
}

func finishMins1(_ *superFamily, out *[columns]float32, acc []float32) {
	for c := range out {
		out[c] = addLanes(columnLanes(acc, c)) + acc[columns*columns+c]
	}
}

func finishIQ1_S(f *superFamily, out *[columns]float32, acc []float32) {
	for c := range out {
		out[c] = addLanes(columnLanes(acc, c)) + float32(f.over*acc[columns*columns+c])
	}
}

func finishIQ1_M(f *superFamily, out *[columns]float32, acc []float32) {
	for c := range out {
		rests := addLanes(columnLanes(acc[columns*columns:], c))
		out[c] = fma.F32(f.over, rests, addLanes(columnLanes(acc, c)))
	}
}

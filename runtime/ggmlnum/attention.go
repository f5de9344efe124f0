package ggmlnum

import (
	"quern/internal/fma"
	"quern/runtime/num"
	"quern/tensor"
	"quern/tensor/quant"
)

// TilePositions is the number of positions whose scores are computed together. Tiles begin at multiples of it.
const TilePositions = 64

// Attention weighs values by the scores of queries, tile by tile:
//
//	score = softcap(q.k * scale)        products added in the order of the head's dimensions, by fma
//	top'  = max(top, max(scores))       of a tile; on growth sum and result are multiplied by Exp(top-top')
//	sum  += e^(score-top')              ExpSum, added in float64 and rounded to float32
//	result = fma(e^(score-top'), value, result)    in the order of positions
//
// and result/sum in the end, as a product with 1/sum. A row to which all of a tile is hidden passes it over. It is for one
// goroutine; its memory is used again.
type Attention struct {
	dim            int
	scale, softcap float32
	rows           int
	query          []float32 // (rows, dim)
	top, sum       []float32 // (rows)
	result         []float32 // (rows, dim)
	scores         []float32 // (rows, TilePositions)
	keys           []float32 // (dim, TilePositions)
	values         []float32 // (TilePositions, dim)
}

// Reset makes room for rows queries of heads of dim values, a multiple of 8, that have seen nothing. softcap is 0 for none.
func (a *Attention) Reset(rows, dim int, scale, softcap float32) {
	a.rows, a.dim, a.scale, a.softcap = rows, dim, scale, softcap
	if softcap != 0 {
		a.scale = scale / softcap
	}
	for _, b := range []struct {
		room *[]float32
		n    int
	}{{&a.query, rows * dim}, {&a.top, rows}, {&a.sum, rows}, {&a.result, rows * dim}, {&a.scores, rows * TilePositions},
		{&a.keys, dim * TilePositions}, {&a.values, dim * TilePositions}} {
		if cap(*b.room) < b.n {
			*b.room = make([]float32, b.n)
		}
		*b.room = (*b.room)[:b.n]
	}
	clear(a.sum)
	clear(a.result)
	for i := range a.top {
		a.top[i] = negInf
	}
}

// Query sets query row r.
func (a *Attention) Query(r int, q []float32) { copy(a.query[r*a.dim:][:a.dim], q) }

// View is the part of a tile that a row sees: positions From to To-1 of it. None where From is not less than To.
type View struct{ From, To int }

// Tile shows the keys and values of n positions, n at most TilePositions: (n, dim) in F16, two bytes each, the lower first. view
// gives what each row sees of it, by the number of the row.
func (a *Attention) Tile(keys, values []byte, n int, view func(row int) View) {
	low, high := a.rows, 0
	for r := range a.rows {
		if v := view(r); v.From < v.To {
			low, high = min(low, r), r+1
		}
	}
	if low >= high {
		return
	}
	d := a.dim
	a.unpack(keys, values, n)
	scores := a.scores[low*TilePositions : high*TilePositions]
	clear(scores)
	gemm(scores, a.query[low*d:], a.keys, high-low, d, TilePositions)
	num.Scale(scores, a.scale)
	if a.softcap != 0 {
		for i, v := range scores {
			scores[i] = float32(Tanh(v) * a.softcap)
		}
	}
	for r := low; r < high; r++ {
		v := view(r)
		row := a.scores[r*TilePositions:][:TilePositions]
		if v.From >= v.To {
			clear(row)
			continue
		}
		for i := range v.From {
			row[i] = negInf
		}
		for i := v.To; i < len(row); i++ {
			row[i] = negInf
		}
		if top := num.Max(row); top > a.top[r] {
			by := Exp(a.top[r] - top)
			num.Scale(a.result[r*d:][:d], by)
			a.sum[r] = float32(a.sum[r] * by)
			a.top[r] = top
		}
		a.sum[r] = float32(float64(a.sum[r]) + ExpSum(row, a.top[r]))
	}
	gemm(a.result[low*d:], scores, a.values, high-low, TilePositions, d)
}

// unpack decodes a tile, keys with their dimensions across.
func (a *Attention) unpack(keys, values []byte, n int) {
	halves(a.values[:n*a.dim], keys)
	for p := range TilePositions {
		if p >= n {
			for i := range a.dim {
				a.keys[i*TilePositions+p] = 0
			}
			continue
		}
		for i, v := range a.values[p*a.dim:][:a.dim] {
			a.keys[i*TilePositions+p] = v
		}
	}
	halves(a.values[:n*a.dim], values)
	clear(a.values[n*a.dim:])
}

// Result writes what row r has gathered to dst.
func (a *Attention) Result(dst []float32, r int) {
	by := float32(0)
	if a.sum[r] != 0 {
		by = 1 / a.sum[r]
	}
	row := a.result[r*a.dim:][:a.dim]
	num.Scale(row, by)
	copy(dst, row)
}

// half is the codec of F16.
var half, _ = quant.DecoderFor(tensor.F16)

func halves(dst []float32, b []byte) { half.Decode(dst, b) }

// gemmScalar adds a.b to c, (m, n) += (m, k) (k, n): every value by fma in the order of k.
func gemmScalar(c, a, b []float32, m, k, n int) {
	for i := range m {
		c := c[i*n:][:n]
		for l, v := range a[i*k:][:k] {
			for j, w := range b[l*n:][:n] {
				c[j] = fma.F32(v, w, c[j])
			}
		}
	}
}

package ggmlnum

import (
	"quern/internal/fma"
	"quern/runtime/num"
	"quern/tensor/quant"
)

// Single is attention for few queries: position by position, query and result rounded to F16. With s = softcap(q.k * scale):
//
//	top' = max(top, s)      on growth result and sum are multiplied by Exp(top-top')
//	w = Exp(s-top')         result = F16(fma(value, w, result)), sum = fma(sum, growth, w)
type Single struct {
	scale, softcap float32
	query, row     []float32
	result         []float32
	top, sum       float32
}

// Reset starts a query of dim values.
func (a *Single) Reset(q []float32, scale, softcap float32) {
	a.scale, a.softcap = scale, softcap
	if softcap != 0 {
		a.scale = scale / softcap
	}
	a.query = append(a.query[:0], q...)
	for i, v := range a.query {
		a.query[i] = quant.FromF16(quant.ToF16(v))
	}
	a.Clear()
}

// Clear forgets what the query has seen.
func (a *Single) Clear() {
	a.result = append(a.result[:0], a.query...)
	clear(a.result)
	a.top, a.sum = negInf, 0
}

// See shows keys and values of n positions, (n, dim) in F16, two bytes each, the lower first.
func (a *Single) See(keys, values []byte, n int) {
	d := len(a.query)
	for ; n > 0; n-- {
		a.see(keys[:2*d], values[:2*d])
		keys, values = keys[2*d:], values[2*d:]
	}
}

func (a *Single) see(key, value []byte) {
	d := len(a.query)
	if cap(a.row) < d {
		a.row = make([]float32, d)
	}
	row := a.row[:d]
	halves(row, key)
	s := float32(dotHalves(row, a.query) * a.scale)
	if a.softcap != 0 {
		s = float32(Tanh(s) * a.softcap)
	}
	grow, weight := float32(1), float32(1)
	if s > a.top {
		grow = Exp(a.top - s)
		a.top = s
		for i, v := range a.result {
			a.result[i] = quant.FromF16(quant.ToF16(float32(v * grow)))
		}
	} else {
		weight = Exp(s - a.top)
	}
	halves(row, value)
	for i, v := range row {
		a.result[i] = quant.FromF16(quant.ToF16(fma.F32(v, weight, a.result[i])))
	}
	a.sum = fma.F32(a.sum, grow, weight)
}

// dotHalves multiplies rows of F16 as ggml does: 32 lanes by fma, of which lane l takes every 32nd product, and what is left after
// whole 32s in float64.
func dotHalves(x, y []float32) float32 {
	var lane [32]float32
	n := len(x) &^ 31
	for i := range n {
		lane[i&31] = fma.F32(x[i], y[i], lane[i&31])
	}
	var l [8]float32
	for i := range l {
		l[i] = (lane[i] + lane[i+16]) + (lane[i+8] + lane[i+24])
	}
	sum := float64(((l[0] + l[4]) + (l[1] + l[5])) + ((l[2] + l[6]) + (l[3] + l[7])))
	for i := n; i < len(x); i++ {
		sum += float64(float32(x[i] * y[i]))
	}
	return float32(sum)
}

// Result writes what the query has gathered to dst.
func (a *Single) Result(dst []float32) {
	by := float32(0)
	if a.sum != 0 {
		by = 1 / a.sum
	}
	copy(dst, a.result)
	num.Scale(dst[:len(a.result)], by)
}

// Join is a result of several parts of the positions, as threads make them.
type Join struct {
	result   []float32
	top, sum float32
}

// Reset starts a result of dim values.
func (j *Join) Reset(dim int) {
	if cap(j.result) < dim {
		j.result = make([]float32, dim)
	}
	j.result = j.result[:dim]
	clear(j.result)
	j.top, j.sum = negInf, 0
}

// Add takes a part.
func (j *Join) Add(a *Single) {
	if a.sum == 0 {
		return
	}
	top := j.top
	if a.top > top {
		top = a.top
	}
	before, here := Exp(j.top-top), Exp(a.top-top)
	for i, v := range a.result {
		j.result[i] = fma.F32(j.result[i], before, float32(v*here))
	}
	j.sum = fma.F32(j.sum, before, float32(a.sum*here))
	j.top = top
}

// Result writes the whole to dst.
func (j *Join) Result(dst []float32) {
	copy(dst, j.result)
	if j.sum != 0 {
		num.Scale(dst[:len(j.result)], 1/j.sum)
	}
}

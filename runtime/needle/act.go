package needle

import (
	"math"

	"quern/runtime/num"
	"quern/tensor/cq"
)

func sigmoid(x float32) float32 { return num.Sigmoid(x) }

// round8 rounds a vector to 255 steps: whole multiples, halves to even, of its
// greatest magnitude over 127. A vector of zeros stays.
func round8(x []float32) {
	var most float32
	for _, v := range x {
		if a := math.Float32frombits(math.Float32bits(v) &^ (1 << 31)); a > most {
			most = a
		}
	}
	if !(most > 0) {
		return
	}
	scale := most / 127
	if scale == 0 {
		return
	}
	for i, v := range x {
		x[i] = float32(float32(math.RoundToEven(float64(v/scale))) * scale)
	}
}

// round8Rows rounds each of rows of n values.
func round8Rows(x []float32, n int) {
	for ; len(x) >= n && n > 0; x = x[n:] {
		round8(x[:n])
	}
}

// enter readies rows of n values for matrices, rounding them first when asked. x
// is changed by the rounding. The result holds until the next call.
func (s *session) enter(x []float32, rows, n int, round bool) *entering {
	if round {
		round8Rows(x[:rows*n], n)
	}
	e := &s.in
	e.rows = rows
	e.x = num.Matrix{Data: x, Rows: rows, Stride: n}
	if g := s.m.group; g > 0 {
		wide := (n + g - 1) / g * g
		t := grow(&s.buf.turned, rows*wide)
		for i := range rows {
			row := t[i*wide:][:wide]
			clear(row[copy(row, x[i*n:][:n]):])
			for at := 0; at < wide; at += g {
				cq.Rotate(row[at : at+g])
			}
		}
		e.turned = num.Matrix{Data: t, Rows: rows, Stride: wide}
	}
	return e
}

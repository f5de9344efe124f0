package ggmldot

import (
	"math"

	"quern/tensor/quant"
)

// Activations of 8 bits in blocks of 32:
//
//	d = max|x| / 127    q = x * (127 / max|x|) to the nearest, ties to even
//
// Products take d as F16 rounds it; Q8_1 has F16(d * sum of q) beside it, of the d
// before. A block of zeros is zeros.
//
// What is not a number goes the way of x86's instructions, so that results stay
// equal: a maximum with one is its second operand, codes that do not fit
// saturate, or are -128 for NaNs and what 32 bits do not hold.

// quantizeScalar brings blocks to Q8_1, with the sums of codes besides. It reports
// whether a code is -128.
func quantizeScalar(q []int8, d, s []float32, sums []int32, x []float32) (odd bool) {
	for u := range d {
		codes := (*[32]int8)(q[32*u:])
		scale, sum := quantize32(codes, (*[32]float32)(x[32*u:]))
		d[u], s[u] = half(scale), half(float32(scale*float32(sum)))
		sums[u] = 0
		for _, c := range codes {
			sums[u] += int32(c)
			odd = odd || c == -128
		}
	}
	return odd
}

// quantize32 gives the codes of a block, d before rounding, and the sum of codes before
// they saturate.
func quantize32(q *[32]int8, x *[32]float32) (float32, int32) {
	var m [8]float32
	for i := range m {
		m[i] = abs(x[i])
		for j := i + 8; j < 32; j += 8 {
			m[i] = maxOf(m[i], abs(x[j]))
		}
	}
	top := topOf(&m)
	var by float32
	if top != 0 {
		by = 127 / top
	}
	var sum int32
	for i, v := range x {
		n := toInt32(float32(v * by))
		sum += n
		q[i] = saturated(n)
	}
	return top / 127, sum
}

// topOf is the greatest of lanes.
func topOf(m *[8]float32) float32 {
	var n [4]float32
	for i := range n {
		n[i] = maxOf(m[i+4], m[i])
	}
	return maxOf(maxOf(n[0], n[2]), maxOf(n[1], n[3]))
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// maxOf is x86's maximum: b if one is not a number.
func maxOf(a, b float32) float32 {
	if a > b {
		return a
	}
	return b
}

// toInt32 is x86's conversion, to the nearest, ties to even.
func toInt32(v float32) int32 {
	if v >= -1<<31 && v < 1<<31 {
		return int32(math.RoundToEven(float64(v)))
	}
	return math.MinInt32
}

func saturated(n int32) int8 {
	switch {
	case n > math.MaxInt8:
		return math.MaxInt8
	case n < math.MinInt8:
		return math.MinInt8
	}
	return int8(n)
}

// half rounds to F16 and back.
func half(v float32) float32 { return quant.FromF16(quant.ToF16(v)) }

// quantizeStep is the number of blocks that are quantized at once.
const quantizeStep = 16

func roomQ8_0(b *Batch) {
	b.codes = make([]int8, b.room*b.width)
	b.scales = make([]float32, b.room*b.blocks)
}

func roomQ8_1(b *Batch) {
	roomQ8_0(b)
	b.sums = make([]float32, b.room*b.blocks)
}

func setQ8_0(b *Batch, t int, x []float32) {
	var s [quantizeStep]float32
	var sums [quantizeStep]int32
	for u := 0; u < b.blocks; u += quantizeStep {
		at, n := t*b.blocks+u, min(b.blocks-u, quantizeStep)
		quantize(b.codes[32*at:], b.scales[at:][:n], s[:n], sums[:n], x[32*u:])
	}
}

func setQ8_1(b *Batch, t int, x []float32) {
	var sums [quantizeStep]int32
	for u := 0; u < b.blocks; u += quantizeStep {
		at, n := t*b.blocks+u, min(b.blocks-u, quantizeStep)
		quantize(b.codes[32*at:], b.scales[at:][:n], b.sums[at:][:n], sums[:n], x[32*u:])
	}
}

// The rows of Q8_0x8 lie in groups of 8, filled up with zeros:
//
//	codes    4 codes of row 0, of row 1, ... row 7; the next 4 of each; ...
//	scales   block 0 of rows 0-7, block 1 of rows 0-7, ...
//	codeSums like the scales
//
// Of 1 to 3 rows after the last whole 8 the batch has codes and scales in order, too.
func roomQ8_0x8(b *Batch) {
	padded := (b.room + 7) &^ 7
	b.codes = make([]int8, padded*b.width)
	b.scales = make([]float32, padded*b.blocks)
	b.codeSums = make([]int32, padded*b.blocks)
	b.odd = make([]bool, b.room)
	b.fewCodes, b.fewScales = make([]int8, few*b.width), make([]float32, few*b.blocks)
}

// few is the number of rows that are quicker to multiply one by one than as a group.
const few = 3

// grouped is the number of rows without the few after the last whole 8.
func (b *Batch) grouped() int {
	if b.rows&7 <= few {
		return b.rows &^ 7
	}
	return b.rows
}

func resetQ8_0x8(b *Batch) {
	if b.rows&7 == 0 {
		return
	}
	first := b.rows &^ 7
	clear(b.codes[first*b.width:][:8*b.width])
	clear(b.scales[first*b.blocks:][:8*b.blocks])
	clear(b.codeSums[first*b.blocks:][:8*b.blocks])
}

func setQ8_0x8(b *Batch, t int, x []float32) {
	first, lane := t&^7, t&7
	b.odd[t] = false
	var q [32 * quantizeStep]int8
	var d, s [quantizeStep]float32
	var sums [quantizeStep]int32
	for u := 0; u < b.blocks; u += quantizeStep {
		n := min(b.blocks-u, quantizeStep)
		if quantize(q[:], d[:n], s[:n], sums[:n], x[32*u:]) {
			b.odd[t] = true
		}
		at := first*b.blocks + 8*u + lane
		for i := range n {
			b.scales[at+8*i], b.codeSums[at+8*i] = d[i], sums[i]
		}
		codes := b.codes[first*b.width+256*u+4*lane:]
		for i := 0; i < 32*n; i += 4 {
			*(*[4]int8)(codes[8*i:]) = [4]int8(q[i:])
		}
		if i := t - b.grouped(); i >= 0 {
			copy(b.fewCodes[i*b.width+32*u:], q[:32*n])
			copy(b.fewScales[i*b.blocks+u:], d[:n])
		}
	}
}

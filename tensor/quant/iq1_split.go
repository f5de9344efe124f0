package quant

import (
	"cmp"
	"math"
	"slices"
)

// What IQ1_S and IQ1_M share. Values are -1, 0 or 1, all moved by an eighth up
// or down (the shift), times a scale.

// iq1Delta is the shift.
const iq1Delta = 0.125

// iq1Levels are the values of codes 0..2 for shifts up and down.
var iq1Levels = [2][8]float32{
	{-1 + iq1Delta, iq1Delta, 1 + iq1Delta},
	{-1 - iq1Delta, -iq1Delta, 1 - iq1Delta},
}

// split is the result of a search over all ways to cut sorted values into three
// runs for the codes 0, 1 and 2.
type split struct {
	order  [32]uint8 // positions by ascending value
	i1, i2 int       // where codes 1 and 2 begin in order
	scale  float32
	best   float32
	shift  int // the caller's number of the shifts, -1 when nothing fits
}

// sorted starts a split with the positions of x in ascending order, equal values
// in place order.
func sorted(x []float32, scale float32) *split {
	s := &split{scale: scale, best: -math.MaxFloat32, shift: -1}
	for i := range x {
		s.order[i] = uint8(i)
	}
	slices.SortStableFunc(s.order[:len(x)], func(a, b uint8) int { return cmp.Compare(x[a], x[b]) })
	return s
}

// offer takes a cut with the sums of its least squares scale if it is better
// than the best so far.
func (s *split) offer(i1, i2, shift int, sumqx, sumq2 float32) {
	if sumq2 > 0 && sumqx*sumqx > s.best*sumq2 {
		s.scale = sumqx / sumq2
		s.best = float32(s.scale * sumqx)
		s.i1, s.i2, s.shift = i1, i2, shift
	}
}

// codes writes the codes of the best cut for n values; mirror turns them round,
// for a scale that came out negative.
func (s *split) codes(n int, mirror bool) (l [32]uint8) {
	for j, i := range s.order[:n] {
		switch {
		case j < s.i1:
			l[i] = 0
		case j < s.i2:
			l[i] = 1
		default:
			l[i] = 2
		}
		if mirror {
			l[i] = 2 - l[i]
		}
	}
	return l
}

// maxAbs is the greatest magnitude.
func maxAbs(x []float32) float32 {
	_, amax := argAbs(x)
	return amax
}

// iq1Entry gives the entry of a run of 8 codes, and whether the codes had to
// move to become one.
func iq1Entry(g *grid, codes []uint8, x, w []float32, scale float32, levels *[8]float32) (entry uint16, moved bool) {
	key := g.key(codes)
	if e := g.index[key]; e >= 0 {
		return uint16(e), false
	}
	return uint16(g.nearestEntry(key, x, w, scale, levels)), true
}

// addFit adds a run's terms to the sums of a least squares scale. Levels are
// multiplied by times, a small odd number.
func addFit(sumqx, sumq2 float32, entry []uint8, x, w []float32, levels *[8]float32, times float32) (float32, float32) {
	for j, c := range entry {
		q := float32(levels[c] * times)
		sumqx += float32(float32(w[j]*q) * x[j])
		sumq2 += float32(float32(w[j]*q) * q)
	}
	return sumqx, sumq2
}

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

// keys gives the keys of the best cut's codes for the runs of n values; the codes
// turn round for a scale that came out negative.
func (s *split) keys(n int) (keys [4]uint32) {
	for j, i := range s.order[:n] {
		var c uint32
		switch {
		case j < s.i1:
			c = 0
		case j < s.i2:
			c = 1
		default:
			c = 2
		}
		if s.scale < 0 {
			c = 2 - c
		}
		keys[i/8] |= c << (i % 8 * 2)
	}
	return keys
}

// maxAbs is the greatest magnitude.
func maxAbs(x []float32) float32 {
	_, amax := argAbs(x)
	return amax
}

// iq1Search is the search of one row's blocks.
type iq1Search struct {
	lanes *splitLanes // nil for the scalar search
	w     *[256]float32
}

func newIQ1Search(fast bool) *iq1Search {
	if fast {
		lanes, w := newSplitLanes()
		return &iq1Search{lanes, w}
	}
	return &iq1Search{w: new([256]float32)}
}

// load takes a superblock with blocks of n values and sets the weights: by
// importance, or else the squares.
func (s *iq1Search) load(x, weights []float32, sigma2 float32, n int) {
	if s.lanes != nil && s.lanes.load(x, weights, sigma2, n) {
		return
	}
	if weights != nil {
		importance(s.w[:], x, weights, sigma2)
		return
	}
	for i, v := range x {
		s.w[i] = float32(v * v)
	}
}

// settle finds the entries of runs of 8 codes with the given keys, and the scale
// that fits them. levels are those of each run. A run whose codes are no entry
// moves to the nearest; then the scale is fitted again.
func (s *iq1Search) settle(entries []uint16, keys *[4]uint32, x, w []float32, scale float32, levels *[4]*[8]float32) float32 {
	g := gridIQ1S()
	moved := false
	for k := range entries {
		e := int(g.index[keys[k]])
		if e < 0 {
			moved = true
			if s.lanes != nil {
				e = s.lanes.nearest(g, int(keys[k]), x[8*k:8*k+8], w[8*k:8*k+8], scale, levels[k])
			} else {
				e = g.nearestEntry(int(keys[k]), x[8*k:], w[8*k:], scale, levels[k])
			}
		}
		entries[k] = uint16(e)
	}
	if !moved {
		return scale
	}
	var sumqx, sumq2 float32
	for k, e := range entries {
		sumqx, sumq2 = addFit(sumqx, sumq2, g.entry(int(e)), x[8*k:], w[8*k:], levels[k], 1)
	}
	if sumqx > 0 && sumq2 > 0 {
		scale = sumqx / sumq2
	}
	return scale
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

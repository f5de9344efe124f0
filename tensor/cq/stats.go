package cq

import "math"

// Stats says how far weights that were read back are from those that went in.
// The zero value is empty. Sums are float64 in the order of the calls.
type Stats struct {
	Values int64
	// Signal is the sum of the squared weights, Noise that of the squared
	// errors.
	Signal, Noise float64
	// Max is the largest absolute error.
	Max float64
	// Used counts how often each codebook entry was chosen.
	Used [maxLevels]int64
}

// Add counts one row: the weights, the same read back, and the packed indices,
// which may be nil. Padding is not counted as values, but its indices are.
func (s *Stats) Add(c *Codec, want, got []float32, index []byte) {
	for i, v := range want {
		d := float64(got[i]) - float64(v)
		s.Signal += float64(float64(v) * float64(v))
		s.Noise += float64(d * d)
		if d = math.Abs(d); d > s.Max {
			s.Max = d
		}
	}
	s.Values += int64(len(want))
	var idx [256]byte
	for step := c.group / 8 * c.width.IndexBits(); len(index) >= step; index = index[step:] {
		unpack(idx[:c.group], index, c.width)
		for _, k := range idx[:c.group] {
			s.Used[k&(maxLevels-1)]++
		}
	}
}

// RMS is the root of the mean squared error, 0 without values.
func (s *Stats) RMS() float64 {
	if s.Values == 0 {
		return 0
	}
	return math.Sqrt(s.Noise / float64(s.Values))
}

// Relative is the error's length over the weights': 0 when nothing is lost,
// about 0.095 for normal weights at 4 bits.
func (s *Stats) Relative() float64 {
	if s.Noise == 0 {
		return 0
	}
	return math.Sqrt(s.Noise / s.Signal)
}

// Entropy is the mean information of an index in bits, from what was counted.
func (s *Stats) Entropy() float64 {
	var n int64
	for _, k := range s.Used {
		n += k
	}
	var sum float64
	for _, k := range s.Used {
		if k > 0 {
			sum -= float64(float64(k) / float64(n) * log2(float64(k)/float64(n)))
		}
	}
	return sum
}

func log2(x float64) float64 { return ln(x) / ln2.hi }

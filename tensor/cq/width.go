package cq

import (
	"errors"
	"fmt"
	"math"

	"quern/tensor"
)

// Width says how many bits a weight has, by the number that archives record.
type Width uint8

// The widths. Archives record 1.58 bits as 5.
const (
	W1   Width = 1
	W2   Width = 2
	W3   Width = 3
	W4   Width = 4
	W158 Width = 5
)

const maxLevels = 16

var (
	// ErrWidth marks a width that CQ does not have.
	ErrWidth = errors.New("unknown CQ width")
	// ErrGroup marks a group that is no power of two from 32 to 256.
	ErrGroup = errors.New("bad CQ group")
)

// widths is indexed by Width.
var widths = [...]struct {
	name   string
	levels int
	bits   int // an index
	typ    tensor.Type
}{
	W1:   {"1", 2, 1, tensor.CQ1},
	W2:   {"2", 4, 2, tensor.CQ2},
	W3:   {"3", 8, 3, tensor.CQ3},
	W4:   {"4", 16, 4, tensor.CQ4},
	W158: {"1.58", 3, 2, tensor.CQ1_58},
}

// Widths lists the widths, widest first.
func Widths() []Width { return []Width{W4, W3, W2, W158, W1} }

// Valid reports whether w is one of the widths.
func (w Width) Valid() bool { return w >= W1 && w <= W158 }

// String gives the bits of a weight, such as 4 or 1.58.
func (w Width) String() string {
	if !w.Valid() {
		return fmt.Sprintf("Width(%d)", uint8(w))
	}
	return widths[w].name
}

// Levels is the number of codebook entries.
func (w Width) Levels() int { return widths[w].levels }

// IndexBits is the number of bits that an index takes in the file.
func (w Width) IndexBits() int { return widths[w].bits }

// Type is the tensor type of packed indices.
func (w Width) Type() tensor.Type { return widths[w].typ }

// ParseWidth reads 4, 3, 2, 1.58 or 1, also with CQ in front.
func ParseWidth(s string) (Width, error) {
	t := s
	if len(t) > 2 && (t[:2] == "CQ" || t[:2] == "cq") {
		t = t[2:]
	}
	for _, w := range Widths() {
		if t == w.String() || w == W158 && t == "1_58" {
			return w, nil
		}
	}
	return 0, fmt.Errorf("%w %q: there are 4, 3, 2, 1.58 and 1", ErrWidth, s)
}

// WidthOf gives the width of a type of packed indices.
func WidthOf(t tensor.Type) (Width, bool) {
	for _, w := range Widths() {
		if w.Type() == t {
			return w, true
		}
	}
	return 0, false
}

// CheckGroup refuses groups that are no power of two from 32 to 256.
func CheckGroup(g int) error {
	if g < 32 || g > 256 || g&(g-1) != 0 {
		return fmt.Errorf("%w: %d; 32, 64, 128 and 256 are allowed", ErrGroup, g)
	}
	return nil
}

// ternaryLevel is the outer level of the three-level Lloyd-Max quantizer of the
// normal distribution, as the exporter states it.
const ternaryLevel = 1.2240064

// Levels gives the standard levels of a width for values of standard deviation
// 1: those of the normal distribution.
func Levels(w Width) ([]float64, error) {
	switch w {
	case W1:
		c := math.Sqrt(2 / math.Pi)
		return []float64{-c, c}, nil
	case W158:
		return []float64{-ternaryLevel, 0, ternaryLevel}, nil
	case W2, W3, W4:
		return append([]float64(nil), standardLevels[w.Levels()]...), nil
	}
	return nil, fmt.Errorf("%w: %s", ErrWidth, w)
}

// Codebook gives the standard codebook of a width: the levels over sqrt(group),
// since a coordinate of a random point on the unit sphere has that deviation.
func Codebook(w Width, group int) ([]float32, error) {
	if err := CheckGroup(group); err != nil {
		return nil, err
	}
	levels, err := Levels(w)
	if err != nil {
		return nil, err
	}
	return ForGroup(levels, group), nil
}

// ForGroup scales levels for values of deviation 1 to those of a group.
func ForGroup(levels []float64, group int) []float32 {
	root := math.Sqrt(float64(group))
	out := make([]float32, len(levels))
	for i, v := range levels {
		out[i] = float32(v / root)
	}
	return out
}

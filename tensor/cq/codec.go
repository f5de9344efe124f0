package cq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"quern/tensor/quant"
)

var (
	// ErrCodebook marks a codebook of the wrong length, or whose entries are not
	// finite or do not ascend.
	ErrCodebook = errors.New("bad CQ codebook")
	// ErrValue marks a weight that is not finite, or a group whose length F16
	// cannot hold.
	ErrValue = errors.New("weights cannot be stored as CQ")
	// ErrCrumb marks ternary bits that stand for no level.
	ErrCrumb = errors.New("bad ternary index")
)

// Codec turns rows of weights into indices and norms and back. It has no state
// and may be used by several goroutines at once.
type Codec struct {
	width Width
	group int
	book  [maxLevels]float32
	cuts  cuts
	root  float32
}

// cuts are the codebook's borders for a search in four steps: entry i of step s
// is the border that decides after s steps gave the number i. A value goes up
// where it is greater. Borders past the codebook's are infinite.
type cuts [4][8]float32

// New makes the codec of a width, a group and a codebook of that width, for
// points of the unit sphere; nil means the standard one.
func New(w Width, group int, book []float32) (*Codec, error) {
	if !w.Valid() {
		return nil, fmt.Errorf("%w: %s", ErrWidth, w)
	}
	if err := CheckGroup(group); err != nil {
		return nil, err
	}
	if book == nil {
		var err error
		if book, err = Codebook(w, group); err != nil {
			return nil, err
		}
	}
	if len(book) != w.Levels() {
		return nil, fmt.Errorf("%w: %d entries, a width of %s bits has %d", ErrCodebook, len(book), w, w.Levels())
	}
	for i, v := range book {
		if v != v || math.IsInf(float64(v), 0) || i > 0 && !(v > book[i-1]) {
			return nil, fmt.Errorf("%w: entry %d is %v; entries must be finite and ascend", ErrCodebook, i, v)
		}
	}
	c := &Codec{width: w, group: group, root: rootOf(group)}
	copy(c.book[:], book)
	c.cuts = newCuts(book)
	return c, nil
}

// Width is the codec's width.
func (c *Codec) Width() Width { return c.width }

// Group is the number of weights that share a norm.
func (c *Codec) Group() int { return c.group }

// Book is the codebook.
func (c *Codec) Book() []float32 { return append([]float32(nil), c.book[:c.width.Levels()]...) }

// Padded rounds a row up to whole groups.
func (c *Codec) Padded(cols int) int { return (cols + c.group - 1) / c.group * c.group }

// IndexBytes is the size of the indices of a row of cols weights.
func (c *Codec) IndexBytes(cols int) int { return c.Padded(cols) / 8 * c.width.IndexBits() }

// NormBytes is the size of the norms of a row of cols weights.
func (c *Codec) NormBytes(cols int) int { return c.Padded(cols) / c.group * 2 }

// newCuts finds between each two neighbours the greatest value that still goes to
// the lower one, by the exporter's rule |x - left| <= |x - right| in float32. Both
// sides are monotonic in x, so there is one such value.
func newCuts(book []float32) cuts {
	var border [15]float32
	for i := range border {
		border[i] = float32(math.Inf(1))
		if i+1 < len(book) {
			border[i] = lastLower(book[i], book[i+1])
		}
	}
	var c cuts
	for s := range c {
		for i := range 1 << s {
			// With s bits of the index known to be i, the next bit asks for
			// the border in the middle of what is left.
			c[s][i] = border[i<<(4-s)+1<<(3-s)-1]
		}
	}
	return c
}

// lastLower bisects the floats from l to r.
func lastLower(l, r float32) float32 {
	lower := func(x float32) bool { return abs(x-l) <= abs(x-r) }
	lo, hi := order(l), order(r) // lower(lo) holds, lower(hi) does not
	for hi-lo > 1 {
		if m := lo + (hi-lo)/2; lower(float(m)) {
			lo = m
		} else {
			hi = m
		}
	}
	return float(lo)
}

// order numbers the floats in ascending order, float goes back.
func order(f float32) int64 {
	b := int64(int32(math.Float32bits(f)))
	if b < 0 {
		b = math.MinInt32 - b
	}
	return b
}

func float(n int64) float32 {
	if n < 0 {
		n = math.MinInt32 - n
	}
	return math.Float32frombits(uint32(int32(n)))
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// smallest is what a norm is taken for at least when a group is divided by it.
const smallest = 1e-12

// encodeGroup writes the index of each weight of a group. It gives the group's norm
// and how near a coordinate comes to a border. x is left in disorder.
func encodeGroup(index []byte, x []float32, c *cuts, root float32) (norm, near float32) {
	norm = groupNorm(x, root)
	return norm, nearest(index, x, norm, c)
}

// groupNorm turns a group and gives its norm.
func groupNorm(x []float32, root float32) float32 {
	transform(x)
	return float32(math.Sqrt(float64(scaledSquares(x, root))))
}

// nearestScalar writes the index of the nearest entry for each of the rotated
// weights over their norm, and gives the least distance from a border. A search
// passes both borders of the cell where it ends.
func nearestScalar(index []byte, x []float32, norm float32, c *cuts) float32 {
	if norm < smallest {
		norm = smallest
	}
	near := float32(math.Inf(1))
	for i, v := range x {
		v /= norm
		k := 0
		for s := range c {
			t := c[s][k]
			if d := abs(v - t); d < near {
				near = d
			}
			k *= 2
			if v > t {
				k++
			}
		}
		index[i] = byte(k)
	}
	return near
}

// scaledSquaresScalar multiplies by root and adds the squares as NumPy does.
func scaledSquaresScalar(x []float32, root float32) float32 {
	for i := range x {
		x[i] = float32(x[i] * root)
	}
	return sumSquares(x)
}

// sumSquares is pairwise over the squares: eight sums for up to 128 values, two
// halves for 256.
func sumSquares(x []float32) float32 {
	if len(x) > 128 {
		return sumSquares(x[:len(x)/2]) + sumSquares(x[len(x)/2:])
	}
	var s [8]float32
	for ; len(x) >= 8; x = x[8:] {
		for j := range s {
			s[j] += float32(x[j] * x[j])
		}
	}
	return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
}

// EncodeRow writes the indices and norms of one row: IndexBytes(len(src)) and
// NormBytes(len(src)) bytes. Either may be nil when it is not wanted. The error
// says which column is at fault.
func (c *Codec) EncodeRow(index, norms []byte, src []float32) error {
	var x [256]float32
	var idx [256]byte
	g := c.group
	step := g / 8 * c.width.IndexBits()
	load := func(at int) []float32 {
		n := copy(x[:g], src[at:])
		clear(x[n:g])
		return x[:g]
	}
	for at := 0; at < len(src); at += g {
		var norm, near float32
		if index == nil {
			norm, near = groupNorm(load(at), c.root), 1
		} else {
			norm, near = encodeGroup(idx[:g], load(at), &c.cuts, c.root)
		}
		if near < doubt || wavers(norm) {
			norm = c.settle(idx[:g], load(at), at/g, c.Padded(len(src))/g)
		}
		if index != nil {
			pack(index[at/g*step:], idx[:g], c.width)
		}
		h := quant.ToF16(norm)
		if h&0x7c00 == 0x7c00 {
			return c.refuse(src[at:min(at+g, len(src))], at, norm)
		}
		if norms != nil {
			binary.LittleEndian.PutUint16(norms[at/g*2:], h)
		}
	}
	return nil
}

// refuse says why a group has no norm.
func (c *Codec) refuse(src []float32, at int, norm float32) error {
	for i, v := range src {
		if v != v || math.IsInf(float64(v), 0) {
			return fmt.Errorf("%w: column %d is %v", ErrValue, at+i, v)
		}
	}
	return fmt.Errorf("%w: the %d weights from column %d on have a length of %v, the greatest that F16 holds is 65504", ErrValue, len(src), at, norm)
}

// DecodeRow reads a row back; len(dst) is its length without padding. Ternary
// bits that stand for no level are ErrCrumb.
func (c *Codec) DecodeRow(dst []float32, index, norms []byte) error {
	var x [256]float32
	var idx [256]byte
	g := c.group
	step := g / 8 * c.width.IndexBits()
	for at := 0; at < len(dst); at += g {
		unpack(idx[:g], index[at/g*step:], c.width)
		norm := quant.FromF16(binary.LittleEndian.Uint16(norms[at/g*2:]))
		if c.width == W158 {
			if i := bytes.IndexByte(idx[:g], 3); i >= 0 {
				return fmt.Errorf("%w: column %d", ErrCrumb, at+i)
			}
		}
		for i, k := range idx[:g] {
			x[i] = float32(c.book[k&(maxLevels-1)] * norm)
		}
		rotate(x[:g], c.root)
		copy(dst[at:], x[:g])
	}
	return nil
}

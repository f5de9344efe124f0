package repack

import (
	"errors"
	"fmt"
	"strings"

	"quern/tensor"
)

// ErrLayout marks a layout that there is not.
var ErrLayout = errors.New("unknown repacked layout")

// order is how a field of N blocks is put together.
type order uint8

const (
	turns   order = iota // chunks of each row in turn
	flipped              // likewise, and the fourth bit of each nibble flipped
	nibbles              // four bits of each row in turn
	scales6              // six-bit scales and minima, sub-block by sub-block
)

// field is a run of bytes in a plain block. Bundles have the fields in the order
// of the table, N times as long.
type field struct {
	at, size int
	chunk    int // bytes of one turn
	order    order
}

// Layout is one way to interleave rows. There is one value of each; compare
// them by pointer or by name.
type Layout struct {
	name   string
	typ    tensor.Type
	rows   int
	fields []field
}

// simple is the layout of a block that begins with one scale.
func simple(name string, typ tensor.Type, rows, chunk int, o order) *Layout {
	size := int(typ.BlockBytes())
	scale := 2
	if typ == tensor.MXFP4 {
		scale = 1
	}
	return &Layout{name, typ, rows, []field{{0, scale, scale, turns}, {scale, size - scale, chunk, o}}}
}

func q4K(name string, chunk int) *Layout {
	return &Layout{name, tensor.Q4_K, 8, []field{{0, 2, 2, turns}, {2, 2, 2, turns}, {4, 12, 12, scales6}, {16, 128, chunk, turns}}}
}

func q5K(name string, chunk int) *Layout {
	return &Layout{name, tensor.Q5_K, 8, []field{{0, 2, 2, turns}, {2, 2, 2, turns}, {4, 12, 12, scales6},
		{16, 32, chunk, turns}, {48, 128, chunk, turns}}}
}

func q6K(name string, chunk int) *Layout {
	return &Layout{name, tensor.Q6_K, 8, []field{{208, 2, 2, turns}, {192, 16, 1, turns}, {0, 128, chunk, turns}, {128, 64, chunk, turns}}}
}

func q2K(name string) *Layout {
	return &Layout{name, tensor.Q2_K, 8, []field{{80, 2, 2, turns}, {82, 2, 2, turns}, {0, 16, 2, turns}, {16, 64, 8, turns}}}
}

var layouts = []*Layout{
	simple("q4_0_4x4", tensor.Q4_0, 4, 4, flipped),
	simple("q4_0_4x8", tensor.Q4_0, 4, 8, flipped),
	simple("q4_0_8x8", tensor.Q4_0, 8, 8, flipped),
	q4K("q4_K_8x4", 4),
	q4K("q4_K_8x8", 8),
	q5K("q5_K_8x4", 4),
	q5K("q5_K_8x8", 8),
	q6K("q6_K_8x4", 4),
	q6K("q6_K_8x8", 8),
	q2K("q2_K_8x8"),
	simple("iq4_nl_4x4", tensor.IQ4_NL, 4, 4, turns),
	simple("iq4_nl_8x8", tensor.IQ4_NL, 8, 8, turns),
	simple("mxfp4_4x4", tensor.MXFP4, 4, 4, turns),
	simple("mxfp4_8x8", tensor.MXFP4, 8, 8, turns),
	simple("q8_0_4x4", tensor.Q8_0, 4, 4, turns),
	simple("q8_0_4x8", tensor.Q8_0, 4, 8, turns),
	simple("q1_0_4x4", tensor.Q1_0, 4, 4, nibbles),
	simple("q1_0_4x8", tensor.Q1_0, 4, 1, turns),
}

// Layouts lists all layouts in the order of the documentation.
func Layouts() []*Layout { return append([]*Layout(nil), layouts...) }

// Parse finds a layout by its name, without regard to letter case.
func Parse(name string) (*Layout, error) {
	names := make([]string, len(layouts))
	for i, l := range layouts {
		if strings.EqualFold(l.name, name) {
			return l, nil
		}
		names[i] = l.name
	}
	return nil, fmt.Errorf("%w %q; there are %s", ErrLayout, name, strings.Join(names, ", "))
}

// String is the layout's name, such as q4_0_8x8.
func (l *Layout) String() string { return l.name }

// Type is the type of the plain rows.
func (l *Layout) Type() tensor.Type { return l.typ }

// GroupRows is how many rows are interleaved.
func (l *Layout) GroupRows() int64 { return int64(l.rows) }

// Check says why a tensor of type t and shape s, outermost axis first, cannot
// have the layout, or nil. ggml repacks matrices and stacks of them, one for
// each expert; a matrix must divide into groups of rows, so that no group
// reaches from one expert into the next.
func (l *Layout) Check(t tensor.Type, s tensor.Shape) error {
	if t != l.typ {
		return fmt.Errorf("%w: layout %s is made of %s, not of %s", tensor.ErrShape, l.name, l.typ, t)
	}
	if len(s) != 2 && len(s) != 3 {
		return fmt.Errorf("%w: layout %s is for matrices and stacks of them, not for %v", tensor.ErrShape, l.name, s)
	}
	if _, err := tensor.Bytes(t, s); err != nil {
		return fmt.Errorf("layout %s: %w", l.name, err)
	}
	if rows := s[len(s)-2]; rows%int64(l.rows) != 0 {
		return fmt.Errorf("%w: layout %s takes rows in groups of %d, %d rows do not divide into them", tensor.ErrShape, l.name, l.rows, rows)
	}
	return nil
}

package repack

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"quern/tensor"
)

// ErrLayout marks a layout that there is not.
var ErrLayout = errors.New("unknown repacked layout")

// order is how a field of N blocks is put together.
type order uint8

const (
	turns    order = iota // chunks of each row in turn
	flipped               // likewise, and the fourth bit of each nibble flipped
	nibbles               // four bits of each row in turn
	scales6               // six-bit scales and minima, sub-block by sub-block
	quads                 // two-bit values, 16 of each row in turn, such that a shift leaves 4 that follow each other
	planes                // one-bit values, 32 of each row in turn, such that a mask leaves 4 that follow each other
	lookups               // one-bit values, 4 of each row in turn, rows of the second half in the high nibbles
	lookups2              // lookups of the low bits, then of the high bits, of two-bit values
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
	blocks int // of a row, in a bundle
	size   int // bytes of a bundle
	fields []field
	words  bool  // fields that unbundle32 knows
	coder  coder // in place of fields
}

// coder makes bundles that are more than another order of fields.
type coder struct {
	// pack and unpack are between a bundle and the blocks of its rows, which lie
	// row bytes apart.
	pack   func(bundle, rows []byte, row int) error
	unpack func(bundle, rows []byte, row int)
	// lossy says that pack rounds.
	lossy bool
}

// ordered is a layout of fields.
func ordered(name string, typ tensor.Type, rows int, fields ...field) *Layout {
	return &Layout{name: name, typ: typ, rows: rows, blocks: 1, size: rows * int(typ.BlockBytes()), fields: fields}
}

// simple is the layout of a block that begins with one scale.
func simple(name string, typ tensor.Type, rows, chunk int, o order) *Layout {
	size := int(typ.BlockBytes())
	scale := 2
	if typ == tensor.MXFP4 {
		scale = 1
	}
	l := ordered(name, typ, rows, field{0, scale, scale, turns}, field{scale, size - scale, chunk, o})
	l.words = typ.BlockValues() == 32
	return l
}

func q4K(name string, chunk int) *Layout {
	return ordered(name, tensor.Q4_K, 8, field{0, 2, 2, turns}, field{2, 2, 2, turns}, field{4, 12, 12, scales6}, field{16, 128, chunk, turns})
}

func q5K(name string, chunk int) *Layout {
	return ordered(name, tensor.Q5_K, 8, field{0, 2, 2, turns}, field{2, 2, 2, turns}, field{4, 12, 12, scales6},
		field{16, 32, chunk, turns}, field{48, 128, chunk, turns})
}

func q6K(name string, chunk int) *Layout {
	return ordered(name, tensor.Q6_K, 8, field{208, 2, 2, turns}, field{192, 16, 1, turns}, field{0, 128, chunk, turns}, field{128, 64, chunk, turns})
}

func q2K(name string, rows, scales, chunk int, o order) *Layout {
	return ordered(name, tensor.Q2_K, rows, field{80, 2, 2, turns}, field{82, 2, 2, turns}, field{0, 16, scales, turns}, field{16, 64, chunk, o})
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
	q2K("q2_K_8x8", 8, 2, 8, turns),
	simple("iq4_nl_4x4", tensor.IQ4_NL, 4, 4, turns),
	simple("iq4_nl_8x8", tensor.IQ4_NL, 8, 8, turns),
	simple("mxfp4_4x4", tensor.MXFP4, 4, 4, turns),
	simple("mxfp4_8x8", tensor.MXFP4, 8, 8, turns),
	simple("q8_0_4x4", tensor.Q8_0, 4, 4, turns),
	simple("q8_0_4x8", tensor.Q8_0, 4, 8, turns),
	simple("q1_0_4x4", tensor.Q1_0, 4, 4, nibbles),
	simple("q1_0_4x8", tensor.Q1_0, 4, 1, turns),

	// quern's own.
	q2K("q2_K_8x4", 8, 1, 4, turns),
	q2K("q2_K_32_lut", 32, 1, 64, lookups2),
	simple("q1_0_8x4_planes", tensor.Q1_0, 8, 4, planes),
	simple("q1_0_32_lut", tensor.Q1_0, 32, 16, lookups),
	simple("q2_0_8x4", tensor.Q2_0, 8, 4, quads),
	{name: "q2_0_8x4_base3", typ: tensor.Q2_0, rows: 8, blocks: 1, size: 120, coder: base3},
	{name: "q2_0_8x4_merged128", typ: tensor.Q2_0, rows: 8, blocks: 2, size: 272, coder: merged128},
	ordered("tq1_0_8x4", tensor.TQ1_0, 8, field{52, 2, 2, turns}, field{0, 48, 4, turns}, field{48, 4, 4, turns}),
	ordered("tq2_0_8x4", tensor.TQ2_0, 8, field{64, 2, 2, turns}, field{0, 64, 4, turns}),
}

// upstream is how many of the layouts, the first ones, are ggml's.
const upstream = 18

// Layouts lists all layouts in the order of the documentation: those that ggml
// makes, then quern's own.
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

// Own reports whether the layout is quern's own, not one of ggml's.
func (l *Layout) Own() bool { return slices.Index(layouts, l) >= upstream }

// Lossy reports whether Pack rounds, so that Unpack gives other blocks than it
// was given.
func (l *Layout) Lossy() bool { return l.coder.lossy }

// BundleBlocks is how many blocks of each row go into a bundle.
func (l *Layout) BundleBlocks() int { return l.blocks }

// BundleBytes is the size of a bundle.
func (l *Layout) BundleBytes() int { return l.size }

// GroupBytes is the size of a group of packed rows of rowLen values.
func (l *Layout) GroupBytes(rowLen int64) (int64, error) {
	if per := l.typ.BlockValues() * int64(l.blocks); rowLen <= 0 || rowLen%per != 0 {
		return 0, fmt.Errorf("%w: layout %s takes rows of whole bundles of %d values, not of %d", tensor.ErrShape, l.name, per, rowLen)
	}
	return rowLen / l.typ.BlockValues() / int64(l.blocks) * int64(l.size), nil
}

// Bytes is the size of a packed tensor of shape s, which Check accepts. It is
// at most that of the plain one.
func (l *Layout) Bytes(s tensor.Shape) (int64, error) {
	if err := l.Check(l.typ, s); err != nil {
		return 0, err
	}
	group, err := l.GroupBytes(s.RowLen())
	return s.Rows() / int64(l.rows) * group, err
}

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
	if _, err := l.GroupBytes(s.RowLen()); err != nil {
		return err
	}
	if rows := s[len(s)-2]; rows%int64(l.rows) != 0 {
		return fmt.Errorf("%w: layout %s takes rows in groups of %d, %d rows do not divide into them", tensor.ErrShape, l.name, l.rows, rows)
	}
	return nil
}

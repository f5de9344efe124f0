package ggmldot

import "fmt"

// Format is how activations are held for products.
type Format uint8

const (
	// F32 keeps activations as they are.
	F32 Format = iota
	// F16 rounds them to half precision, BF16 to bfloat16.
	F16
	BF16
	// Q8_0 has codes of 8 bits, and an F16 scale for each block of 32.
	Q8_0
	// Q8_0x8 is Q8_0 with 8 rows side by side, for repacked weights.
	Q8_0x8
	// Q8_1 is Q8_0 with sums.
	Q8_1
	// Q8_K has a float32 scale for each superblock of 256 int8 codes.
	Q8_K
	formats // their number
)

// layout is what a Batch needs to know of a format.
type layout struct {
	name  string
	block int // a row is whole blocks of so many values
	// room makes the memory for the batch's room of rows.
	room func(b *Batch)
	// reset prepares for the batch's rows, if that is needed.
	reset func(b *Batch)
	// set brings x into row t. It may run for several rows at once.
	set func(b *Batch, t int, x []float32)
}

// layouts is indexed by format.
var layouts = [formats]layout{
	F32:  {name: "F32", block: 1, room: roomFloats, set: setF32},
	F16:  {name: "F16", block: 1, room: roomFloats, set: setF16},
	BF16: {name: "BF16", block: 1, room: roomFloats, set: setBF16},

	Q8_0:   {name: "Q8_0", block: 32, room: roomQ8_0, set: setQ8_0},
	Q8_0x8: {name: "Q8_0x8", block: 32, room: roomQ8_0x8, reset: resetQ8_0x8, set: setQ8_0x8},
	Q8_1:   {name: "Q8_1", block: 32, room: roomQ8_1, set: setQ8_1},
	Q8_K:   {name: "Q8_K", block: 256, room: roomQ8_K, reset: resetQ8_K, set: setQ8_K},
}

func (f Format) String() string {
	if f < formats {
		return layouts[f].name
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// Batch holds activation rows of one format and width: the columns of a product.
type Batch struct {
	format Format
	width  int
	blocks int // in a row
	room   int // most rows
	rows   int

	floats []float32 // rows one after the other: F32, F16, BF16

	codes    []int8
	scales   []float32 // of blocks
	sums     []float32 // of blocks: Q8_1
	codeSums []int32   // of blocks: Q8_0x8
	odd      []bool    // of rows, whether one has code -128: Q8_0x8

	fewCodes  []int8 // rows after the last whole 8, if they are few: Q8_0x8
	fewScales []float32

	super *superRows // Q8_K
}

// NewBatch makes room for up to room activation rows of width values. The batch
// holds none until Reset.
func NewBatch(f Format, width, room int) (*Batch, error) {
	if f >= formats {
		return nil, fmt.Errorf("%w: activations have no format %d", ErrSize, f)
	}
	l := &layouts[f]
	switch {
	case width <= 0 || width%l.block != 0 || room <= 0:
		return nil, fmt.Errorf("%w: %d rows of %d values in blocks of %d", ErrSize, room, width, l.block)
	case width > 1<<28/room:
		return nil, fmt.Errorf("%w: %d rows of %d activations are too many for a batch", ErrSize, room, width)
	}
	b := &Batch{format: f, width: width, blocks: width / l.block, room: room}
	l.room(b)
	return b, nil
}

// Format is how the rows are held.
func (b *Batch) Format() Format { return b.format }

// Width is the number of values in a row.
func (b *Batch) Width() int { return b.width }

// Rows is the number of rows the batch holds.
func (b *Batch) Rows() int { return b.rows }

// Reset makes the batch hold n rows, all to be given by SetRow.
func (b *Batch) Reset(n int) error {
	if n < 0 || n > b.room {
		return fmt.Errorf("%w: %d rows in a batch with room for %d", ErrSize, n, b.room)
	}
	b.rows = n
	if reset := layouts[b.format].reset; reset != nil {
		reset(b)
	}
	return nil
}

// SetRow brings x, of Width values, into row t. Several goroutines may set
// different rows at once.
func (b *Batch) SetRow(t int, x []float32) error {
	if t < 0 || t >= b.rows || len(x) != b.width {
		return fmt.Errorf("%w: row %d of %d values in a batch of %d rows of %d", ErrSize, t, len(x), b.rows, b.width)
	}
	layouts[b.format].set(b, t, x)
	return nil
}

// Scratch is the memory of one goroutine's products. Its zero value is ready; it
// grows to what it is used for and may go from kernel to kernel.
type Scratch struct {
	rows []float32 // decoded weights
	int8Rows
	super superScratch
}

// floats gives room for n values.
func (s *Scratch) floats(n int) []float32 {
	if len(s.rows) < n {
		s.rows = make([]float32, n)
	}
	return s.rows[:n]
}

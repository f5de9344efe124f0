package dot

import (
	"fmt"
	"sync/atomic"
)

// lanes is the number of activation rows that a vector kernel takes at once,
// and of weight rows in a tile.
const lanes = 8

// Batch holds activation rows of one format and width. Rows are packed for the
// kernels, eight side by side; a row that is left over alone keeps its values in
// a row:
//
//	group of 8 rows   codes   4 codes of row 0, of row 1, ... row 7; the next 4 of each
//	                  scales  unit 0 of rows 0-7, unit 1 of rows 0-7, ...
//	                  sums    Q8_0: of each unit, like the scales
//	                          Q8_K: of each 16 values, two of row 0, two of row 1, ...
//	single row        the same in row order
//
// A group of 2 to 7 rows is filled up with zeros.
type Batch struct {
	format Format
	width  int
	units  int // blocks in a row
	room   int // most rows
	rows   int
	groups int // groups of 8; one row more follows when rows > 8*groups

	floats []float32 // F32: rows one after the other
	codes  []int8
	scales []float32
	sums   []int32 // Q8_0
	pairs  []int16 // Q8_K

	version atomic.Uint64 // of the rows
}

// NewBatch makes room for up to rows activation rows of width values. The
// batch holds none until Reset.
func NewBatch(f Format, width, rows int) (*Batch, error) {
	switch {
	case f > Q8_K:
		return nil, fmt.Errorf("%w: activations have no format %d", ErrSize, f)
	case width <= 0 || width%f.block() != 0 || rows <= 0:
		return nil, fmt.Errorf("%w: %d rows of %d values in blocks of %d", ErrSize, rows, width, f.block())
	case width > 1<<30/rows:
		return nil, fmt.Errorf("%w: %d rows of %d activations are too many for a batch", ErrSize, rows, width)
	}
	b := &Batch{format: f, width: width, units: width / f.block(), room: rows}
	if f == F32 {
		b.floats = make([]float32, rows*width)
		return b, nil
	}
	padded := (rows + lanes - 1) / lanes * lanes
	b.codes = make([]int8, padded*width)
	b.scales = make([]float32, padded*b.units)
	if f == Q8_0 {
		b.sums = make([]int32, padded*b.units)
	} else {
		b.pairs = make([]int16, padded*width/16)
	}
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
	b.version.Add(1)
	b.rows, b.groups = n, n/lanes
	if b.format == F32 || n%lanes < 2 {
		return nil
	}
	clear(b.codes[b.groups*lanes*b.width:][:lanes*b.width])
	clear(b.scales[b.groups*lanes*b.units:][:lanes*b.units])
	if b.format == Q8_0 {
		clear(b.sums[b.groups*lanes*b.units:][:lanes*b.units])
	} else {
		clear(b.pairs[b.groups*lanes*b.width/16:][:lanes*b.width/16])
	}
	b.groups++
	return nil
}

// SetRow quantizes x, of Width values, into row t. Several goroutines may set
// different rows at once. A block with a value that is not finite makes every
// product with it NaN.
func (b *Batch) SetRow(t int, x []float32) error {
	if t < 0 || t >= b.rows || len(x) != b.width {
		return fmt.Errorf("%w: row %d of %d values in a batch of %d rows of %d", ErrSize, t, len(x), b.rows, b.width)
	}
	if b.format == F32 {
		copy(b.floats[t*b.width:], x)
		return nil
	}
	b.version.Add(1)
	group, lane, apart := t/lanes, t%lanes, lanes
	if group == b.groups {
		apart = 1
	}
	first := group * lanes
	codes := b.codes[first*b.width+4*lane:]
	scales := b.scales[first*b.units+lane:]
	var q [256]int8
	if b.format == Q8_0 {
		sums := b.sums[first*b.units+lane:]
		var d [8]float32
		var sum [8]int32
		for u := 0; u < b.units; u += 8 {
			n := min(b.units-u, 8)
			quantizeQ8_0(q[:32*n], d[:n], sum[:n], x[32*u:32*(u+n)])
			spread(codes[32*u*apart:], q[:32*n], apart)
			for i := range n {
				scales[(u+i)*apart], sums[(u+i)*apart] = d[i], sum[i]
			}
		}
		return nil
	}
	pairs := b.pairs[first*b.width/16+2*lane:]
	var sums [16]int16
	for u := range b.units {
		scales[u*apart] = quantizeQ8_K(&q, &sums, (*[256]float32)(x[256*u:]))
		spread(codes[256*u*apart:], q[:], apart)
		for j, s := range sums {
			pairs[(16*u+j&^1)*apart+j&1] = s
		}
	}
	return nil
}

// spread copies runs of 4 codes to places that many runs apart.
func spread(dst, q []int8, apart int) {
	if apart == 1 {
		copy(dst, q)
		return
	}
	for i := 0; i < len(q); i += 4 {
		*(*[4]int8)(dst[i*lanes:]) = [4]int8(q[i:])
	}
}

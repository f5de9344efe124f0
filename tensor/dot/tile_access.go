package dot

import "quern/tensor"

// Tile is the unpacked form of a piece of weights, for packages that multiply in
// another order of operations: integer codes and scales are the same in all.
type Tile = tile

// TileWidth is the number of values that a row of a Tile has room for, and the
// distance of its rows.
const TileWidth = tileWidth

// Unpack fills the first rows of the tile, at most Step, with blocks of a type, at
// most TileWidth values of each row. Rows of src lie rowBytes apart. It panics
// for types that FormatOf gives F32.
func (t *tile) Unpack(typ tensor.Type, rows, blocks int, src []byte, rowBytes int) {
	unpackRows(typ, t, rows, blocks, src, rowBytes, rows*rowBytes)
}

// Codes are the codes of all rows, TileWidth apart.
func (t *tile) Codes() []byte { return t.codes[:] }

// D are the scales of units, those of unit 0 of Step rows first.
func (t *tile) D() []float32 { return t.d[:] }

// M are the scales of minima, or of a unit's second half, like D.
func (t *tile) M() []float32 { return t.m[:] }

// Scales are the integer scales of each 16 values, twice in a word; rows lie
// TileWidth/16 apart.
func (t *tile) Scales() []uint32 { return t.scales[:] }

// Corr are the factors of each 16 activations' sum; rows lie TileWidth/16 apart.
func (t *tile) Corr() []int16 { return t.corr[:] }

// QuantizeQ8_K gives the codes of 256 values, the sums of each 16 of them and the
// scale. It is 0, as all codes, if no value is greater than 2^-121, and NaN if
// one is not finite.
func QuantizeQ8_K(q *[256]int8, sums *[16]int16, x *[256]float32) float32 {
	return quantizeQ8_K(q, sums, x)
}

// Turn gives the sums of 8 weight rows with 8 activation rows the order of
// results, those of an activation row together, and NaNs their bits.
func Turn(acc *[Step * Step]float32) { turn(acc) }

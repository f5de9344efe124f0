package dot

import "quern/tensor"

// tileWidth is the number of values of each row that are unpacked at once: 16
// KiB of codes for 8 rows, half of a first-level cache.
const tileWidth = 2048

// kind is the shape of a type's units and how its codes read.
type kind uint8

const (
	// Units of 32 values, d for each.
	biased32 kind = iota // value = code-16, code 0..31
	affine32             // value = code, code 0..31, and a term m*sum
	signed32             // value = int8(code)
	halves32             // value = int8(code), d for values 0-15, m for 16-31

	// Units of 256 values, d for each, scales for each 16.
	biased256 // value = code-bias, code 0..31; corr = bias*scale
	wide256   // the same with codes 0..63
	affine256 // value = code, code 0..31, and a term m*sum(corr*sums)
	signed256 // value = int8(code)
)

// values is the number of values in a unit.
func (k kind) values() int {
	if k < biased256 {
		return 32
	}
	return 256
}

// family is what the kernels need to know of a type of weights.
type family struct {
	format Format
	kind   kind
	block  int // bytes of a block of the type
	units  int // units in a block
	bias   int32
	// unpack fills row i of the tile from blocks of the type, whose first is
	// the tile's first.
	unpack func(t *tile, i int, src []byte)
}

// tile is a piece of 8 rows of weights in the one form that the kernels take.
//
//	codes   row 0, row 1, ... row 7, tileWidth apart
//	d, m    unit 0 of rows 0-7, unit 1 of rows 0-7, ...
//	scales  row by row, tileWidth/16 apart: the scale of each 16 values, twice
//	        in a word
//	corr    row by row, tileWidth/16 apart: the factor of each 16 activations' sum
type tile struct {
	codes  [lanes * tileWidth]byte
	d, m   [lanes * tileWidth / 32]float32
	scales [lanes * tileWidth / 16]uint32
	corr   [lanes * tileWidth / 16]int16
}

// row gives the codes of row i from value v on.
func (t *tile) row(i, v int) []byte { return t.codes[i*tileWidth+v : (i+1)*tileWidth] }

// scale sets the integer scale of block j of 16 values.
func (t *tile) scale(i, j int, s int32) {
	t.scales[i*tileWidth/16+j] = uint32(uint16(s)) * 0x10001
}

// biasedScale sets the scale of block j of 16 codes that are bias too high.
func (t *tile) biasedScale(i, j int, s, bias int32) {
	t.scale(i, j, s)
	t.corr[i*tileWidth/16+j] = int16(s * bias)
}

// families is indexed by type; types that are not in blocks have none.
var families = [...]*family{
	tensor.KMCUQ4: {format: Q8_0, kind: biased32, block: 18, units: 1, bias: 16, unpack: unpackKMCUQ4},

	tensor.Q1_0:   {format: Q8_0, kind: biased32, block: 18, units: 4, bias: 16, unpack: unpackQ1_0},
	tensor.Q2_0:   {format: Q8_0, kind: biased32, block: 18, units: 2, bias: 16, unpack: unpackQ2_0},
	tensor.Q4_0:   {format: Q8_0, kind: biased32, block: 18, units: 1, bias: 16, unpack: unpackQ4_0},
	tensor.Q4_1:   {format: Q8_0, kind: affine32, block: 20, units: 1, unpack: unpackQ4_1},
	tensor.Q5_0:   {format: Q8_0, kind: biased32, block: 22, units: 1, bias: 16, unpack: unpackQ5_0},
	tensor.Q5_1:   {format: Q8_0, kind: affine32, block: 24, units: 1, unpack: unpackQ5_1},
	tensor.Q8_0:   {format: Q8_0, kind: signed32, block: 34, units: 1, unpack: unpackQ8_0},
	tensor.IQ4_NL: {format: Q8_0, kind: signed32, block: 18, units: 1, unpack: unpackIQ4_NL},
	tensor.MXFP4:  {format: Q8_0, kind: biased32, block: 17, units: 1, bias: 16, unpack: unpackMXFP4},
	tensor.NVFP4:  {format: Q8_0, kind: halves32, block: 36, units: 2, unpack: unpackNVFP4},

	tensor.Q2_K:    {format: Q8_K, kind: affine256, block: 84, units: 1, unpack: unpackQ2_K},
	tensor.Q3_K:    {format: Q8_K, kind: biased256, block: 110, units: 1, bias: 4, unpack: unpackQ3_K},
	tensor.Q4_K:    {format: Q8_K, kind: affine256, block: 144, units: 1, unpack: unpackQ4_K},
	tensor.Q5_K:    {format: Q8_K, kind: affine256, block: 176, units: 1, unpack: unpackQ5_K},
	tensor.Q6_K:    {format: Q8_K, kind: wide256, block: 210, units: 1, bias: 32, unpack: unpackQ6_K},
	tensor.TQ1_0:   {format: Q8_K, kind: biased256, block: 54, units: 1, bias: 1, unpack: unpackTQ1_0},
	tensor.TQ2_0:   {format: Q8_K, kind: biased256, block: 66, units: 1, bias: 1, unpack: unpackTQ2_0},
	tensor.IQ1_S:   {format: Q8_K, kind: biased256, block: 50, units: 1, bias: 16, unpack: unpackIQ1_S},
	tensor.IQ1_M:   {format: Q8_K, kind: biased256, block: 56, units: 1, bias: 16, unpack: unpackIQ1_M},
	tensor.IQ2_XXS: {format: Q8_K, kind: signed256, block: 66, units: 1, unpack: unpackIQ2_XXS},
	tensor.IQ2_XS:  {format: Q8_K, kind: signed256, block: 74, units: 1, unpack: unpackIQ2_XS},
	tensor.IQ2_S:   {format: Q8_K, kind: signed256, block: 82, units: 1, unpack: unpackIQ2_S},
	tensor.IQ3_XXS: {format: Q8_K, kind: signed256, block: 98, units: 1, unpack: unpackIQ3_XXS},
	tensor.IQ3_S:   {format: Q8_K, kind: biased256, block: 110, units: 1, bias: 16, unpack: unpackIQ3_S},
	tensor.IQ4_XS:  {format: Q8_K, kind: signed256, block: 136, units: 1, unpack: unpackIQ4_XS},
}

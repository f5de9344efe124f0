package ggmldot

import (
	"quern/tensor"
	"quern/tensor/dot"
)

// Products of types in superblocks of 256 values with Q8_K activations. Weights are
// unpacked 8 rows at a time to codes and integer scales of each 16 values, and meet
// groups of 8 columns. An order says what is added up to float32 numbers:
//
//	lanes   8 sums of a superblock, each of every eighth run of 4 values (lanes.go)
//	totals  all of a superblock, or a quarter of it (totals.go)
//
// The fused sums take superblocks in row order.

// superValues and superUnits are how many values a superblock has, and how many
// superblocks of a row are unpacked at once.
const (
	superValues = 256
	superUnits  = dot.TileWidth / superValues
)

// order is an order of operations for types in superblocks.
type order struct {
	acc int // float32 sums that a product is made of
	// sum takes n units from first on, which the tile holds, into the sums of
	// rows weight rows with the columns of a group: for each row acc vectors of 8.
	sum func(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, n int)
	// finish gives the products of a row.
	finish func(f *superFamily, out *[columns]float32, acc []float32)
}

// superFamily is what the orders need to know of a type.
type superFamily struct {
	bytes int // of a superblock
	// bias is added to all codes; codes of types with none are signed.
	bias int32
	// times makes a tile's scales those of the type: package dot divides some by a
	// power of two. over is that factor, which comes last in lanes.
	times, over float32
	lanes       *order
}

// superFamilies is indexed by type.
var superFamilies = [...]*superFamily{
	tensor.Q2_K:    {bytes: 84, times: 1, over: 1, lanes: &lanesMins8},
	tensor.Q3_K:    {bytes: 110, bias: 4, times: 1, over: 1, lanes: &lanesPlain},
	tensor.Q4_K:    {bytes: 144, times: 1, over: 1, lanes: &lanesMins4},
	tensor.Q5_K:    {bytes: 176, times: 1, over: 1, lanes: &lanesMins1},
	tensor.Q6_K:    {bytes: 210, times: 1, over: 1, lanes: &lanesSums},
	tensor.TQ1_0:   {bytes: 54, times: 1, over: 1, lanes: &lanesSums},
	tensor.TQ2_0:   {bytes: 66, times: 1, over: 1, lanes: &lanesSums},
	tensor.IQ1_S:   {bytes: 50, bias: 16, times: 8, over: 0.125, lanes: &lanesIQ1_S},
	tensor.IQ1_M:   {bytes: 56, bias: 16, times: 8, over: 0.125, lanes: &lanesIQ1_M},
	tensor.IQ2_XXS: {bytes: 66, times: 8, over: 0.125, lanes: &lanesPlain},
	tensor.IQ2_XS:  {bytes: 74, times: 8, over: 0.125, lanes: &lanesPlain},
	tensor.IQ2_S:   {bytes: 82, times: 8, over: 0.125, lanes: &lanesPlain},
	tensor.IQ3_XXS: {bytes: 98, times: 4, over: 0.25, lanes: &lanesPlain},
	tensor.IQ3_S:   {bytes: 110, bias: 16, times: 1, over: 1, lanes: &lanesPlain},
	tensor.IQ4_XS:  {bytes: 136, times: 1, over: 1, lanes: &lanesPlain},
}

// plainPath multiplies with lanes.
var plainPath = &path{format: Q8_K, mul: func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
	k.mulSuper(superFamilies[k.typ].lanes, dst, stride, w, b, s, 0, b.rows)
}}

// plainSuper is the family of types that are multiplied in one way.
func plainSuper(_, _ int, repacked bool) *path {
	if repacked {
		return nil
	}
	return plainPath
}

// mulSuper multiplies rows with columns from first to last, in one order.
func (k *Kernel) mulSuper(o *order, dst []float32, stride int, w []byte, b *Batch, s *Scratch, first, last int) {
	if first == last {
		return
	}
	f, units := superFamilies[k.typ], b.blocks
	g0, g1 := first/columns, (last+columns-1)/columns
	size := columns * columns * o.acc // of a group's sums
	acc, t := s.floats(size*(g1-g0)), &s.tile
	rows := len(w) / k.rowBytes
	for r := 0; r < rows; r += columns {
		n := min(rows-r, columns)
		clear(acc)
		for u := 0; u < units; u += superUnits {
			count := min(units-u, superUnits)
			src := w[r*k.rowBytes+u*f.bytes : (r+n)*k.rowBytes]
			t.Unpack(k.typ, n, count, src, k.rowBytes)
			for g := g0; g < g1; g++ {
				o.sum(o, f, acc[size*(g-g0):][:size], t, n, b.super.group(g, units, u, count), count)
			}
		}
		for g := g0; g < g1; g++ {
			var out [columns * columns]float32
			for i := range n {
				o.finish(f, (*[columns]float32)(out[columns*i:]), acc[size*(g-g0)+columns*o.acc*i:][:columns*o.acc])
			}
			for lane := max(first-columns*g, 0); lane < min(last-columns*g, columns); lane++ {
				results := dst[(columns*g+lane)*stride+r:][:n]
				for i := range results {
					results[i] = number(out[columns*i+lane])
				}
			}
		}
	}
}

// superScale is the product of a tile's scale and that of the activations.
func superScale(d, times, da float32) float32 { return float32(float32(d*times) * da) }

package ggmldot

//go:generate go -C _gen run . -set super -out ../super_amd64.s -stubs ../super_stubs_amd64.go -pkg ggmldot

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
	// bias is added to all codes; codes of types with none are signed, and wide if they
	// go beyond 63.
	bias int32
	wide bool
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
	tensor.IQ4_XS:  {bytes: 136, wide: true, times: 1, over: 1, lanes: &lanesPlain},
}

// superScratch is memory of these products. sums are those that groups hold.
type superScratch struct {
	sums []float32
	// bases are what vector code adds to the lanes of rows, 8 of each unit, for its own
	// sake. totals are their sums, unit 0 of all rows first.
	bases  [columns * superUnits * columns]int32
	totals [superUnits * columns]int32
	out    [columns * columns]float32 // results of a group, which the heap would have otherwise
	// rests are the eighths of IQ1 types, laid out like the codes of a tile, restBases
	// their bases.
	rests     [columns * dot.TileWidth]byte
	restBases [columns * superUnits * columns]int32
}

// plainPath multiplies with lanes.
var plainPath = &path{format: Q8_K, mul: func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
	k.mulSuper(superFamilies[k.typ].lanes, dst, stride, w, b.super, 0, s, 0, b.rows)
}}

// plainSuper is the family of types that are multiplied in one way.
func plainSuper(int, bool) *path { return plainPath }

// mulSuper multiplies rows with columns from first to last-1, in one order. The columns'
// groups are those of b, whose first is group base.
func (k *Kernel) mulSuper(o *order, dst []float32, stride int, w []byte, b *superRows, base int, s *Scratch, first, last int) {
	switch {
	case first == last:
		return
	case b.alone && oneOrder(o):
		k.mulOne(o, dst, w, b, s)
		return
	}
	f, units := superFamilies[k.typ], k.width/superValues
	g0, g1 := first/columns, (last+columns-1)/columns
	// The sums of all groups are held only while a row has more than a tile has room for.
	size, held := columns*columns*o.acc, 1
	if units > superUnits {
		held = g1 - g0
	}
	if len(s.super.sums) < size*held {
		s.super.sums = make([]float32, size*held)
	}
	t := &s.tile
	rows := len(w) / k.rowBytes
	for r := 0; r < rows; r += columns {
		n := min(rows-r, columns)
		for u := 0; u < units; u += superUnits {
			count := min(units-u, superUnits)
			t.Unpack(k.typ, n, count, w[r*k.rowBytes+u*f.bytes:(r+n)*k.rowBytes], k.rowBytes)
			settle(o, f, t, n, count, &s.super)
			for g := g0; g < g1; g++ {
				acc := s.super.sums[size*((g-g0)%held):][:size]
				if u == 0 {
					clear(acc)
				}
				sumSuper(o, f, acc, t, n, b.group(g-base, units, u, count), count, &s.super)
				if u+count < units {
					continue
				}
				out := &s.super.out
				finishSuper(o, f, out, acc)
				dot.Turn(out)
				for lane := max(first-columns*g, 0); lane < min(last-columns*g, columns); lane++ {
					results := dst[(columns*g+lane)*stride+r:][:n]
					if n == columns {
						*(*[columns]float32)(results) = *(*[columns]float32)(out[columns*lane:])
						continue
					}
					copy(results, out[columns*lane:])
				}
			}
		}
	}
}

// settle makes a tile ready for an order.
func settle(o *order, f *superFamily, t *dot.Tile, rows, units int, s *superScratch) {
	scaleTile(o, f, t, units)
	settleVector(o, f, t, rows, units, s)
}

// scaleTile makes a tile's scales those of the type, but for panels.
func scaleTile(o *order, f *superFamily, t *dot.Tile, units int) {
	if o == &panel || f.times == 1 {
		return
	}
	d := t.D()[:columns*units]
	for i := range d {
		d[i] = float32(d[i] * f.times)
	}
}

// finishSuperScalar gives the products of 8 weight rows.
func finishSuperScalar(o *order, f *superFamily, out *[columns * columns]float32, acc []float32) {
	for i := range columns {
		o.finish(f, (*[columns]float32)(out[columns*i:]), acc[columns*o.acc*i:][:columns*o.acc])
	}
}

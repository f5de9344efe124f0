package quant

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"quern/tensor"
)

// gridEncoders are the encoders of grid types.
var gridEncoders = []laneEncoder{
	{tensor.IQ1_S, encodeIQ1_S},
	{tensor.IQ1_M, encodeIQ1_M},
	{tensor.IQ2_XXS, encodeIQ2_XXS},
	{tensor.IQ2_XS, encodeIQ2_XS},
	{tensor.IQ2_S, encodeIQ2_S},
	{tensor.IQ3_XXS, encodeIQ3_XXS},
	{tensor.IQ3_S, encodeIQ3_S},
}

// gridRow gives superblocks that are hard for a search over a grid.
func gridRow(rng *rand.Rand, blocks int) []float32 {
	var x []float32
	grids := allGrids()
	for range blocks {
		b := laneRow(rng, 1)
		switch rng.IntN(8) {
		case 0, 1: // entries as they are, or with a little noise, in groups of unlike scale
			names := []string{"iq2xxs", "iq2xs", "iq2s", "iq3xxs", "iq3s", "iq1s"}
			g := grids[names[rng.IntN(len(names))]]
			noise := []float64{0, 1e-7, 1e-3}[rng.IntN(3)]
			for i := range b {
				if i%g.dim == 0 {
					e := g.entry(rng.IntN(len(g.codes) / g.dim))
					scale := math.Ldexp(1+rng.Float64()*float64(rng.IntN(2)), i/16%5-7)
					for j, c := range e {
						b[i+j] = float32((float64(oddLevels[c]) + noise*rng.NormFloat64()) * scale)
						if rng.IntN(2) == 0 {
							b[i+j] = -b[i+j]
						}
					}
				}
			}
		case 2: // the middles between two codes of a candidate, to the last place
			for i := range b {
				v := float32(rng.IntN(9)) * 0.125
				b[i] = math.Float32frombits(math.Float32bits(v+1) + uint32(rng.IntN(5)) - 2)
				if i%16 > 0 {
					b[i]--
				}
			}
		case 3: // zeros between values
			for i := range b {
				if b[i] = 0; rng.IntN(3) == 0 && i/32%3 != 1 {
					b[i] = float32(rng.NormFloat64())
				}
			}
		case 4: // ordinary weights
			for i := range b {
				b[i] = float32(rng.NormFloat64()) * 0.02
			}
		}
		x = append(x, b...)
	}
	return x
}

func TestGridLanesEqualScalar(t *testing.T) {
	for _, x := range edgeBlocks() {
		for _, w := range edgeWeights() {
			compareEncoders(t, gridEncoders, x, w)
		}
	}
	rng := rand.New(rand.NewPCG(31, 32))
	for range 200 {
		compareEncoders(t, gridEncoders, gridRow(rng, 1), laneWeights(rng, 256))
	}
}

// TestLaneLists: a short list keeps the order of the long one, and whatever
// distances grow away from the key's codes, it has the first of the nearest.
func TestLaneLists(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	for name, g := range allGrids() {
		levels := 3
		if g.codeBits == 3 {
			levels = 8
		}
		for range 300 {
			codes := make([]uint8, g.dim)
			terms := make([][8]float32, g.dim)
			for i := range codes {
				codes[i] = uint8(rng.IntN(levels))
				for c := int(codes[i]) - 1; c >= 0; c-- {
					terms[i][c] = terms[i][c+1] + float32(rng.IntN(3))
				}
				for c := int(codes[i]) + 1; c < levels; c++ {
					terms[i][c] = terms[i][c-1] + float32(rng.IntN(3))
				}
			}
			key := g.key(codes)
			if g.index[key] >= 0 {
				continue
			}
			nearest := func(list []uint16) (first uint16) {
				best := float32(math.MaxFloat32)
				for _, e := range list {
					var d float32
					for i, c := range g.entry(int(e)) {
						d += terms[i][c]
					}
					if d < best {
						best, first = d, e
					}
				}
				return first
			}
			all := g.nearest(nil, key)
			short := g.undominated(slices.Clone(all), key)
			if a, b := nearest(all), nearest(short); a != b {
				t.Fatalf("%s key %#x: entry %d of %v, but %d of %v", name, key, a, all, b, short)
			}
			at := 0
			for _, e := range short {
				if k := slices.Index(all[at:], e); k < 0 {
					t.Fatalf("%s key %#x: %v is no part of %v in order", name, key, short, all)
				} else {
					at += k + 1
				}
			}
		}
	}
}

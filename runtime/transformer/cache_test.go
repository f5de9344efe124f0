package transformer

import (
	"math"
	"math/rand/v2"
	"testing"

	"quern/runtime/num"
	"quern/tensor/quant"
)

// TestCacheEqualsOnePiece: chunks change neither scores nor sums, wherever a
// range of positions begins and ends; halves are what rounding to F16 gives.
func TestCacheEqualsOnePiece(t *testing.T) {
	const heads, dim, positions = 3, 20, 70
	rng := rand.New(rand.NewPCG(1, 2))
	values := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	for _, half := range []bool{false, true} {
		for _, room := range []int{1, 16, positions - 1, positions} {
			c := newCache(half, heads, dim, room)
			keys, sums := values(positions*heads*dim), values(positions*heads*dim)
			for p := range positions {
				c.reserve(p + 1)
				c.set(p, keys[p*heads*dim:][:heads*dim], sums[p*heads*dim:][:heads*dim])
			}
			if half {
				for _, x := range [][]float32{keys, sums} {
					for i, v := range x {
						x[i] = quant.FromF16(quant.ToF16(v))
					}
				}
			}
			for range 100 {
				from, head, rows := rng.IntN(positions), rng.IntN(heads), 1+rng.IntN(3)
				to := from + 1 + rng.IntN(positions-from)
				q := num.Matrix{Data: values(rows * dim), Rows: rows, Stride: dim}
				got, want := make([]float32, rows*(to-from)), make([]float32, rows*(to-from))
				c.dots(got, head, from, to, q)
				num.Dots(want, to-from, num.Matrix{Data: keys[(from*heads+head)*dim:], Rows: to - from, Stride: heads * dim}, q, dim)
				sum, wantSum := values(dim), make([]float32, dim)
				weights := values(to - from)
				c.weigh(sum, head, from, weights)
				num.WeightedSum(wantSum, weights, num.Matrix{Data: sums[(from*heads+head)*dim:], Rows: to - from, Stride: heads * dim})
				for i, v := range append(got, sum...) {
					if w := append(want, wantSum...)[i]; math.Float32bits(v) != math.Float32bits(w) {
						t.Fatalf("half %v, room %d, positions %d to %d: value %d is %v, want %v", half, room, from, to, i, v, w)
					}
				}
			}
		}
	}
}

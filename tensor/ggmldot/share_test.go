package ggmldot

import (
	"sync"
	"testing"

	"quern/tensor"
)

// TestShared: rows of a batch set by several goroutines, and parts of a matrix multiplied by
// several, give what one gives.
func TestShared(t *testing.T) {
	for typ := range families {
		for repacked := range 2 {
			g := golden{Type: tensor.Type(typ).String(), Rows: 24, Columns: 13, Repacked: repacked, Profile: "special", Seed: uint64(typ)}
			g.Width = 2 * max(int(tensor.Type(typ).BlockValues()), 20)
			k, err := New(tensor.Type(typ), g.Width, g.Rows, repacked == 1)
			if err != nil {
				continue
			}
			want := testProduct(t, g, g.Rows)
			w, x := testWeights(k.Type(), g.Seed, g.Width, g.Rows), testFloats(g.Seed+1, g.Columns, g.Width, g.Profile)
			b, err := NewBatch(k.Activations(), g.Width, g.Columns+1)
			if err != nil {
				t.Fatal(err)
			}
			// What a batch held before does not matter.
			for _, n := range []int{g.Columns + 1, g.Columns} {
				if err := b.Reset(n); err != nil {
					t.Fatal(err)
				}
				var set sync.WaitGroup
				for c := range n {
					set.Go(func() {
						from := (c + n) % g.Columns // the rows' own the second time
						if err := b.SetRow(c, x[from*g.Width:][:g.Width]); err != nil {
							t.Error(err)
						}
					})
				}
				set.Wait()
			}
			dst := make([]float32, g.Columns*g.Rows)
			var work sync.WaitGroup
			for r := 0; r < g.Rows; r += 8 {
				work.Go(func() {
					if err := k.Mul(dst[r:], g.Rows, w[r*k.RowBytes():][:8*k.RowBytes()], b, new(Scratch)); err != nil {
						t.Error(err)
					}
				})
			}
			work.Wait()
			same(t, g.Type, dst, want)
		}
	}
}

// TestAllocations: a Scratch that has grown is enough.
func TestAllocations(t *testing.T) {
	for typ := range families {
		for repacked := range 2 {
			width := 2 * max(int(tensor.Type(typ).BlockValues()), 20)
			k, err := New(tensor.Type(typ), width, 8, repacked == 1)
			if err != nil {
				continue
			}
			w, x := testWeights(k.Type(), 1, width, 8), testFloats(2, 5, width, "plain")
			b := testBatch(t, k, x)
			dst := make([]float32, 5*8)
			var s Scratch
			n := testing.AllocsPerRun(3, func() {
				for c := range 5 {
					if err := b.SetRow(c, x[c*width:][:width]); err != nil {
						t.Error(err)
					}
				}
				if err := k.Mul(dst, 8, w, b, &s); err != nil {
					t.Error(err)
				}
			})
			if n != 0 {
				t.Errorf("%s, repacked %d: %g allocations", k.Type(), repacked, n)
			}
		}
	}
}

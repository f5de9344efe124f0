//go:build amd64 && !noasm

package ggmldot

import (
	"fmt"
	"math"
	"testing"

	"quern/tensor"
)

// scalar runs f with the scalar code.
func scalar(f func()) {
	fast := useFMA
	useFMA = false
	defer func() { useFMA = fast }()
	f()
}

// TestKernels: vector code gives the scalar code's bits, for all types and ways
// to hold them, at sizes that its steps do not divide, on activations of all kinds.
func TestKernels(t *testing.T) {
	if !useFMA {
		t.Skip("no vector code on this processor")
	}
	seed := uint64(1 << 40)
	for typ := range families {
		if families[typ] == nil {
			continue
		}
		typ := tensor.Type(typ)
		block := int(typ.BlockValues())
		for _, blocks := range []int{1, 2, 5, 2080/block + 1} {
			for _, rows := range []int{1, 7, 16} {
				for repacked := range 2 {
					if _, err := New(typ, blocks*block, rows, repacked == 1); err != nil {
						continue
					}
					for _, columns := range []int{1, 2, 3, 11} {
						if blocks > 5 && columns%3 == 2 {
							continue
						}
						seed += 2
						g := golden{
							Type: typ.String(), Width: blocks * block, Rows: rows, Columns: columns, Repacked: repacked, Seed: seed,
							Profile: []string{"plain", "mixed", "special"}[seed/2%3],
						}
						var want []float32
						scalar(func() { want = testProduct(t, g, rows) })
						same(t, fmt.Sprintf("%+v", g), testProduct(t, g, rows), want)
						same(t, fmt.Sprintf("%+v in parts", g), testProduct(t, g, 3), want)
					}
				}
			}
		}
	}
}

// TestQuantize: codes, scales and sums are the scalar code's.
func TestQuantize(t *testing.T) {
	if !useFMA {
		t.Skip("no vector code on this processor")
	}
	const blocks = 17
	for seed := range uint64(300) {
		x := testFloats(seed, 1, 32*blocks, []string{"plain", "mixed", "special"}[seed%3])
		switch seed {
		case 0:
			clear(x)
		case 1: // scales at F16's ends
			for i := range x {
				x[i] = float32(math.Ldexp(127, i/32-32)) * float32(1+i%32) / 32
			}
		case 2:
			for i := range x {
				x[i] = float32(math.Ldexp(127, i/32+7)) * float32(1+i%32) / 32
			}
		}
		type result struct {
			q    [32 * blocks]int8
			d, s [blocks]float32
			sums [blocks]int32
			odd  bool
		}
		var got, want result
		got.odd = quantize(got.q[:], got.d[:], got.s[:], got.sums[:], x)
		scalar(func() { want.odd = quantize(want.q[:], want.d[:], want.s[:], want.sums[:], x) })
		same(t, fmt.Sprintf("seed %d: d", seed), canonical(got.d[:]), canonical(want.d[:]))
		same(t, fmt.Sprintf("seed %d: s", seed), canonical(got.s[:]), canonical(want.s[:]))
		if got.q != want.q || got.sums != want.sums || got.odd != want.odd {
			t.Errorf("seed %d: codes %v, sums %v, %v\nwant %v, %v, %v", seed, got.q, got.sums, got.odd, want.q, want.sums, want.odd)
		}
	}
}

// canonical gives NaNs the bits of results; inside, they may differ.
func canonical(v []float32) []float32 {
	for i := range v {
		v[i] = number(v[i])
	}
	return v
}

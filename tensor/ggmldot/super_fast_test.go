//go:build amd64 && !noasm

package ggmldot

import (
	"math"
	"testing"
)

// TestSuperScalar: products of scalar code and of vector code are equal, also of blocks
// that no quantizer makes.
func TestSuperScalar(t *testing.T) {
	if !useFMA {
		t.Skip("no vector code here")
	}
	for _, typ := range superTypes() {
		for _, repacked := range []bool{false, Repacks(typ, 8)} {
			for _, c := range []struct{ width, rows, columns int }{{256, 8, 1}, {512, 7, 9}, {2304, 8, 12}, {4352, 3, 17}} {
				if repacked && c.rows != 8 {
					continue
				}
				k, err := New(typ, c.width, c.rows, repacked)
				if err != nil {
					t.Fatal(err)
				}
				w := testWeights(typ, uint64(c.width), c.width, c.rows)
				if c.width == 512 {
					// Scales that are not finite, too.
					for i := range w {
						w[i] |= byte(draw(1, i/64) >> 40)
					}
				}
				x := testFloats(9, c.columns, c.width, "special")
				fast := mulAll(t, k, w, x)
				var slow []float32
				scalar(func() { slow = mulAll(t, k, w, x) })
				for i, v := range slow {
					if math.Float32bits(v) != math.Float32bits(fast[i]) {
						t.Fatalf("%s, %+v, repacked %v: result %d is %v, in vector code %v", typ, c, repacked, i, v, fast[i])
					}
				}
			}
		}
	}
}

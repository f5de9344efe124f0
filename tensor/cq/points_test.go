package cq

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// TestPointsAreRowsBeforeTheTurn: turning the points back gives DecodeRow's bits.
func TestPointsAreRowsBeforeTheTurn(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	for _, w := range Widths() {
		for _, g := range []int{32, 128, 256} {
			c, err := New(w, g, nil)
			if err != nil {
				t.Fatal(err)
			}
			src := make([]float32, 3*g-5)
			for i := range src {
				src[i] = float32(rng.NormFloat64())
			}
			index, norms := make([]byte, c.IndexBytes(len(src))), make([]byte, c.NormBytes(len(src)))
			if err := c.EncodeRow(index, norms, src); err != nil {
				t.Fatal(err)
			}
			want, got := make([]float32, len(src)), make([]float32, c.Padded(len(src)))
			if err := c.DecodeRow(want, index, norms); err != nil {
				t.Fatal(err)
			}
			if err := c.PointsRow(got, index, norms); err != nil {
				t.Fatal(err)
			}
			for at := 0; at < len(got); at += g {
				Rotate(got[at : at+g])
			}
			for i, v := range want {
				if math.Float32bits(v) != math.Float32bits(got[i]) {
					t.Fatalf("%v bits, group %d: weight %d is %v, DecodeRow gives %v", w, g, i, got[i], v)
				}
			}
		}
	}
}

func TestPointsRowRefusesCrumbs(t *testing.T) {
	c, err := New(W158, 32, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.PointsRow(make([]float32, 32), []byte{0, 0, 0x20, 0, 0, 0, 0, 0}, []byte{0, 0x3c}); !errors.Is(err, ErrCrumb) {
		t.Errorf("crumb 2: %v", err)
	}
}

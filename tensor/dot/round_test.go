package dot_test

import (
	"math"
	"testing"

	"quern/tensor"
	"quern/tensor/dot"
	"quern/tensor/quant"
)

// TestRoundQ8_0: rounded values give the products that a kernel of exact weights
// gives with the values themselves.
func TestRoundQ8_0(t *testing.T) {
	const n = 75 // two blocks and eleven values
	x, padded := make([]float32, n), make([]float32, 96)
	for i := range x {
		x[i] = float32(math.Sin(float64(i*i))) * float32(int(1)<<(i/32*4))
	}
	copy(padded, x)
	b, err := dot.NewBatch(dot.Q8_0, len(padded), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Reset(1); err != nil {
		t.Fatal(err)
	}
	if err := b.SetRow(0, padded); err != nil {
		t.Fatal(err)
	}
	k, err := dot.New(tensor.Q8_0, len(padded), dot.Q8_0)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, n)
	dot.RoundQ8_0(got, x)
	codec, err := quant.For(tensor.Q8_0)
	if err != nil {
		t.Fatal(err)
	}
	var scratch dot.Scratch
	for i := range x {
		row := make([]float32, len(padded))
		row[i] = 127 // code 127, scale 1
		w := make([]byte, 34*3)
		codec.EncodeRow(w, row, nil)
		out := make([]float32, 1)
		if err := k.Mul(out, 1, w, b, &scratch); err != nil {
			t.Fatal(err)
		}
		if want := float64(127 * float64(got[i])); math.Abs(float64(out[0])-want) > math.Abs(want)/1e6 {
			t.Errorf("value %d: %v is rounded to %v, a kernel makes %v of it", i, x[i], got[i], out[0]/127)
		}
		if d := math.Abs(float64(got[i] - x[i])); d > float64(int(1)<<(i/32*4))/220 {
			t.Errorf("value %d: %v is rounded to %v", i, x[i], got[i])
		}
	}
	nan := []float32{1, float32(math.Inf(1))}
	dot.RoundQ8_0(nan, nan)
	if nan[0] == nan[0] || nan[1] == nan[1] {
		t.Errorf("%v of an infinity", nan)
	}
}

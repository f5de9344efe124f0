package ggmldot

import (
	"math"
	"testing"

	"quern/tensor"
)

// superTypes have products in superblocks.
func superTypes() (out []tensor.Type) {
	for typ, f := range superFamilies {
		if f != nil {
			out = append(out, tensor.Type(typ))
		}
	}
	return out
}

func mulAll(t *testing.T, k *Kernel, w []byte, x []float32) []float32 {
	t.Helper()
	b := testBatch(t, k, x)
	rows := len(w) / k.RowBytes()
	dst := make([]float32, b.Rows()*rows)
	if err := k.Mul(dst, rows, w, b, new(Scratch)); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestSuperReset: a batch that held more and other columns is as good as new.
func TestSuperReset(t *testing.T) {
	k, err := New(tensor.Q6_K, 512, 8, false)
	if err != nil {
		t.Fatal(err)
	}
	w, x := testWeights(tensor.Q6_K, 1, 512, 8), testFloats(2, 20, 512, "mixed")
	b := testBatch(t, k, x)
	want := mulAll(t, k, w, x[:3*512])
	if err := b.Reset(3); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := b.SetRow(i, x[i*512:][:512]); err != nil {
			t.Fatal(err)
		}
	}
	dst := make([]float32, 3*8)
	if err := k.Mul(dst, 8, w, b, new(Scratch)); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if math.Float32bits(dst[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%d: %v, want %v", i, dst[i], want[i])
		}
	}
}

// TestQuantizeQ8_K at the ends of what a scale can be. Signs of scale and codes are
// free together.
func TestQuantizeQ8_K(t *testing.T) {
	inf, nan := float32(math.Inf(1)), quietNaN
	for _, c := range []struct {
		most, d float32
		code    int8
	}{
		{0, 0, 0}, {math.SmallestNonzeroFloat32, 0, 0},
		// 127/x is infinite, and just not.
		{0x1.fcp-122, 0, 0}, {0x1.fc0002p-122, 1 / float32(127/float32(0x1.fc0002p-122)), 127}, {0x1p-121, 1 / float32(127*0x1p121), 127},
		{127, 1, 127}, {-127, 1, -127}, {math.MaxFloat32, 1 / float32(127/float32(math.MaxFloat32)), 127},
		{inf, inf, 0}, {-inf, inf, 0}, {nan, 0, 0},
	} {
		b, err := NewBatch(Q8_K, 256, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Reset(1); err != nil {
			t.Fatal(err)
		}
		x := make([]float32, 256)
		x[200] = c.most
		if err := b.SetRow(0, x); err != nil {
			t.Fatal(err)
		}
		d, code, sum := b.super.scales[0], b.super.codes[200*columns], b.super.sums16[6*2*columns]
		if d < 0 || code == -127 && c.code == 127 {
			d, code, sum = -d, -code, -sum
		}
		if d != c.d || code != c.code || sum != int16(code) || b.super.codes[0] != 0 {
			t.Errorf("%g: scale %g, code %d, sum %d; want %g, %d", c.most, d, code, sum, c.d, c.code)
		}
	}
}

// TestSuperRepacked: Q4_K alone has a repacked form, in whole groups of 8 rows.
func TestSuperRepacked(t *testing.T) {
	for _, typ := range superTypes() {
		for _, rows := range []int{8, 12} {
			if _, err := New(typ, 256, rows, true); (err == nil) != (typ == tensor.Q4_K && rows == 8) {
				t.Errorf("repacked %s, %d rows: %v", typ, rows, err)
			}
		}
		if _, err := New(typ, 128, 8, false); err == nil {
			t.Errorf("%s takes half a superblock", typ)
		}
	}
}

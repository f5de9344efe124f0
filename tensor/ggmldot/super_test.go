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

// TestSuperNotFinite: a value that is not finite makes all products of its
// column NaN, and no others.
func TestSuperNotFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, typ := range superTypes() {
		for _, repacked := range []bool{false, Repacks(typ, 16)} {
			for i, odd := range []float32{quietNaN, inf, -inf} {
				const width, rows, columns = 512, 16, 11
				k, err := New(typ, width, rows, repacked)
				if err != nil {
					t.Fatal(err)
				}
				x := testFloats(5, columns, width, "plain")
				w := testWeights(typ, 6, width, rows)
				want := mulAll(t, k, w, x)
				bad := []int{0, 7, 10}[i]
				x[bad*width+300] = odd
				for j, v := range mulAll(t, k, w, x) {
					switch {
					case j/rows == bad && math.Float32bits(v) != math.Float32bits(quietNaN):
						t.Fatalf("%s, %v in column %d: %v", typ, odd, bad, v)
					case j/rows != bad && math.Float32bits(v) != math.Float32bits(want[j]):
						t.Fatalf("%s, %v in column %d: column %d has %v, want %v", typ, odd, bad, j/rows, v, want[j])
					}
				}
			}
		}
	}
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

// TestQuantizeQ8_K at the ends of what a scale can be.
func TestQuantizeQ8_K(t *testing.T) {
	for _, c := range []struct {
		most, d float32
		code    int8
	}{
		{0, 0, 0}, {math.SmallestNonzeroFloat32, 0, 0},
		// 127/x is infinite, and just not.
		{0x1.fcp-122, 0, 0}, {0x1.fc0002p-122, 1 / float32(127/float32(0x1.fc0002p-122)), 127}, {0x1p-121, 1 / float32(127*0x1p121), 127},
		{127, 1, 127}, {-127, 1, -127}, {math.MaxFloat32, 1 / float32(127/float32(math.MaxFloat32)), 127},
	} {
		var x [256]float32
		x[200] = c.most
		var q [256]int8
		var sums [16]int16
		d := quantizeQ8_K(&q, &sums, &x)
		if d != c.d || q[200] != c.code || sums[12] != int16(c.code) || q[0] != 0 || sums[0] != 0 {
			t.Errorf("%g: scale %g, code %d, sum %d; want %g, %d", c.most, d, q[200], sums[12], c.d, c.code)
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

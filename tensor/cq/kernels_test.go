package cq

import (
	"bytes"
	"math"
	"testing"
)

// groups are the groups that all kernels are tried on.
func groups(n int) [][]float32 {
	r := newRandomState(uint32(n))
	var out [][]float32
	for k := range 40 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.normal())
		}
		switch k % 8 {
		case 1:
			x[k%n] = float32(x[k%n] * 100)
		case 2:
			clear(x)
		case 3:
			for i := range x {
				x[i] = float32(x[i] * 1e-42)
			}
		case 4:
			for i := range x {
				x[i] = float32(x[i] * 1e30)
			}
		case 5:
			x[k%n] = float32(math.Inf(1))
		case 6:
			for i := range x {
				x[i] = float32(i%3) - 1
			}
		}
		out = append(out, x)
	}
	return out
}

func same(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return false
		}
	}
	return true
}

// TestKernels: what runs on this machine gives what the scalar code gives.
func TestKernels(t *testing.T) {
	for _, n := range []int{32, 64, 128, 256} {
		for _, w := range Widths() {
			c, err := New(w, n, nil)
			if err != nil {
				t.Fatal(err)
			}
			for k, x := range groups(n) {
				a, b := make([]byte, n), make([]byte, n)
				u, v := append([]float32(nil), x...), append([]float32(nil), x...)
				transform(u)
				transformScalar(v)
				if !same(u, v) {
					t.Fatalf("group of %d, %d: the transforms differ", n, k)
				}
				s, z := scaledSquares(u, c.root), scaledSquaresScalar(v, c.root)
				if !same(u, v) || !same([]float32{s}, []float32{z}) {
					t.Fatalf("group of %d, %d: sums of squares %v, want %v", n, k, s, z)
				}
				norm := float32(math.Sqrt(float64(z)))
				if norm != norm || math.IsInf(float64(norm), 0) {
					continue
				}
				p, q := nearest(a, u, norm, &c.cuts), nearestScalar(b, v, norm, &c.cuts)
				if !bytes.Equal(a, b) || p != q {
					t.Fatalf("%s bits, group of %d, %d: indices or distance differ: %v, want %v\n%v\n%v", w, n, k, p, q, a, b)
				}
			}
		}
	}
}

func BenchmarkEncodeRow(b *testing.B) {
	c, err := New(W4, 128, nil)
	if err != nil {
		b.Fatal(err)
	}
	r := newRandomState(1)
	row := make([]float32, 1<<12)
	for i := range row {
		row[i] = float32(r.normal())
	}
	index, norms := make([]byte, c.IndexBytes(len(row))), make([]byte, c.NormBytes(len(row)))
	b.SetBytes(int64(len(row)))
	for b.Loop() {
		if err := c.EncodeRow(index, norms, row); err != nil {
			b.Fatal(err)
		}
	}
}

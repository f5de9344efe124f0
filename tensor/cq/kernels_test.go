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

// TestLookUp: every width, group and number gives its entry, with and without bytes
// behind the group.
func TestLookUp(t *testing.T) {
	var table [maxLevels]float32
	for i := range table {
		table[i] = float32(i*i) - 7.5
	}
	r := newRandomState(3)
	for _, w := range Widths() {
		for _, n := range []int{32, 64, 128, 256} {
			for _, behind := range []int{0, 1, 3, 4, 9} {
				src := make([]byte, n/8*w.IndexBits()+behind)
				for i := range src {
					src[i] = byte(int(r.normal() * 100))
				}
				got, want := make([]float32, n), make([]float32, n)
				lookUp(got, src, &table, 0.37, w)
				lookUpScalar(want, src, &table, 0.37, w)
				if !same(got, want) {
					t.Fatalf("%s bits, group of %d, %d bytes behind it:\n%v, want\n%v", w, n, behind, got, want)
				}
			}
		}
	}
}

func BenchmarkPointsRow(b *testing.B) {
	for _, w := range Widths() {
		b.Run(w.String(), func(b *testing.B) {
			c, err := New(w, 128, nil)
			if err != nil {
				b.Fatal(err)
			}
			row := make([]float32, 1<<12)
			index, norms := make([]byte, c.IndexBytes(len(row))), make([]byte, c.NormBytes(len(row)))
			b.SetBytes(int64(len(row)))
			for b.Loop() {
				if err := c.PointsRow(row, index, norms); err != nil {
					b.Fatal(err)
				}
			}
		})
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

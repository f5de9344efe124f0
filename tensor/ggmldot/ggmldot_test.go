package ggmldot

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"quern/tensor"
)

func TestSizes(t *testing.T) {
	if _, err := New(tensor.I32, 32, 8, false); !errors.Is(err, ErrNoKernel) {
		t.Errorf("I32: %v", err)
	}
	for _, c := range []struct {
		t    tensor.Type
		rows int
	}{{tensor.F32, 8}, {tensor.Q8_0, 8}, {tensor.Q6_K, 8}, {tensor.IQ3_S, 8}, {tensor.Q1_0, 8}, {tensor.Q4_0, 12}, {tensor.Q4_K, 4}} {
		if _, err := New(c.t, 256, c.rows, true); !errors.Is(err, ErrNoKernel) {
			t.Errorf("%d repacked rows of %s: %v", c.rows, c.t, err)
		}
	}
	if _, err := New(tensor.Q8_0, 31, 8, false); !errors.Is(err, tensor.ErrShape) {
		t.Errorf("31 values of Q8_0: %v", err)
	}
	for _, size := range [][2]int{{0, 8}, {32, 0}, {-32, 8}, {32, -1}, {math.MaxInt, 1}} {
		if _, err := New(tensor.F32, size[0], size[1], false); !errors.Is(err, ErrSize) && !errors.Is(err, tensor.ErrShape) {
			t.Errorf("%d rows of %d: %v", size[1], size[0], err)
		}
		if _, err := NewBatch(F32, size[0], size[1]); !errors.Is(err, ErrSize) {
			t.Errorf("batch of %d rows of %d: %v", size[1], size[0], err)
		}
	}
	k, err := New(tensor.F32, 4, 8, false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBatch(k.Activations(), 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Reset(3); !errors.Is(err, ErrSize) {
		t.Errorf("3 rows in room for 2: %v", err)
	}
	if err := b.Reset(2); err != nil {
		t.Fatal(err)
	}
	for _, row := range []int{-1, 2} {
		if err := b.SetRow(row, make([]float32, 4)); !errors.Is(err, ErrSize) {
			t.Errorf("row %d: %v", row, err)
		}
	}
	var s Scratch
	for _, c := range []struct{ dst, stride, bytes int }{
		{20, 8, 129}, {20, 8, 9 * 16}, {16, 7, 128}, {15, 8, 128}, {0, 1, 16}, {16, -8, 128},
	} {
		if err := k.Mul(make([]float32, c.dst), c.stride, make([]byte, c.bytes), b, &s); !errors.Is(err, ErrSize) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	other, err := NewBatch(F16, 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Mul(make([]float32, 16), 8, make([]byte, 128), other, &s); !errors.Is(err, ErrSize) {
		t.Errorf("F16 activations: %v", err)
	}
}

// TestRepacks: the matrices that ggml's repacked buffer takes, and no others.
func TestRepacks(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/ggmldot/repacks.json")
	if err != nil {
		t.Fatal(err)
	}
	var table map[string][]int
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	if len(table) < 20 {
		t.Fatalf("only %d types", len(table))
	}
	for name, repacked := range table {
		typ, err := tensor.ParseType(name)
		if err != nil {
			t.Fatal(err)
		}
		for rows := range 18 {
			want := slices.Contains(repacked, rows)
			if got := Repacks(typ, rows); got != want {
				t.Errorf("%s, %d rows: %v, want %v", name, rows, got, want)
			}
			if _, err := New(typ, 256, rows, true); (err == nil) != want {
				t.Errorf("%s, %d rows: %v, want a kernel: %v", name, rows, err, want)
			}
		}
	}
}

func TestFloats(t *testing.T) {
	k, err := New(tensor.F32, 5, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBatch(k.Activations(), 5, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Reset(1); err != nil {
		t.Fatal(err)
	}
	// 4 rounded products, then one by fma: 1+2^-23 squared is 1+2^-22+2^-46.
	x := float32(1 + 1.0/(1<<23))
	if err := b.SetRow(0, []float32{-1, 0, 0, 0, x}); err != nil {
		t.Fatal(err)
	}
	var w []byte
	for _, v := range []float32{1 + 1.0/(1<<22), 0, 0, 0, x} {
		w = binary.LittleEndian.AppendUint32(w, math.Float32bits(v))
	}
	var dst [1]float32
	if err := k.Mul(dst[:], 1, w, b, new(Scratch)); err != nil {
		t.Fatal(err)
	}
	if want := float32(1.0 / (1 << 46)); dst[0] != want {
		t.Errorf("%g, want %g", dst[0], want)
	}
}

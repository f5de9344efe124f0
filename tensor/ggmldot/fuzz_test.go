package ggmldot

import (
	"encoding/binary"
	"math"
	"testing"

	"quern/tensor"
)

// FuzzMul multiplies any bytes with any activations: no panic, one kind of NaN, and each
// result the same whether a row is multiplied with the others or alone.
func FuzzMul(f *testing.F) {
	for typ := range families {
		if families[typ] != nil {
			for repacked := range 2 {
				f.Add(uint16(typ), uint8(2), uint8(9), uint8(4+repacked), repacked == 1, anyBytes(uint64(typ), 4000))
			}
		}
	}
	f.Fuzz(func(t *testing.T, typ uint16, blocks, rows, columns uint8, repacked bool, raw []byte) {
		size := tensor.Type(typ)
		width := int(blocks%10) * int(size.BlockValues())
		k, err := New(size, width, int(rows), repacked)
		if err != nil {
			return
		}
		n := int(rows) * k.RowBytes()
		x := make([]float32, int(columns)*width)
		if n > 1<<16 || len(x) > 1<<16 || len(x) == 0 {
			return
		}
		// Weights and activations are what the bytes give, again and again.
		w := make([]byte, n)
		for i := 0; len(raw) > 0 && i < n; i += len(raw) {
			copy(w[i:], raw)
		}
		for i := range x {
			if at := 4 * i; len(raw) >= 4 {
				x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[at%(len(raw)-3):]))
			}
		}
		b := testBatch(t, k, x)
		var s Scratch
		stride := int(rows) + 1
		dst := make([]float32, int(columns)*stride)
		for i := range dst {
			dst[i] = 12345
		}
		if err := k.Mul(dst, stride, w, b, &s); err != nil {
			t.Fatal(err)
		}
		one := make([]float32, columns)
		r := len(raw) % int(rows)
		if err := k.Mul(one, 1, w[r*k.RowBytes():][:k.RowBytes()], b, &s); err != nil {
			t.Fatal(err)
		}
		for c := range int(columns) {
			if got, want := math.Float32bits(one[c]), math.Float32bits(dst[c*stride+r]); got != want {
				t.Errorf("row %d, column %d: %08x alone, %08x with the others", r, c, got, want)
			}
			if dst[c*stride+int(rows)] != 12345 {
				t.Errorf("column %d: a result behind the last row", c)
			}
			for _, v := range dst[c*stride:][:rows] {
				if bits := math.Float32bits(v); v != v && bits != 0x7fc00000 {
					t.Fatalf("column %d: NaN %08x", c, bits)
				}
			}
		}
	})
}

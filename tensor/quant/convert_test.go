package quant

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"quern/tensor"
)

func bytesOfFloats(x []float32) []byte {
	b := make([]byte, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return b
}

func mustConverter(t *testing.T, to, from tensor.Type) *Converter {
	t.Helper()
	c, err := NewConverter(to, from)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConverterEqualsCodec: rows cut in chunks and rows run together give the
// bytes of one encoder call a row, with and without weights.
func TestConverterEqualsCodec(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, rowLen := range []int{256, 512, 3 * chunk, chunk + 256} {
		x := make([]float32, 3*rowLen)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		w := make([]float32, rowLen)
		for i := range w {
			w[i] = rng.Float32()
		}
		for _, typ := range []tensor.Type{tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_0, tensor.Q5_1, tensor.Q6_K, tensor.KMCUQ4} {
			for _, weights := range [][]float32{nil, w} {
				want := encodeRows(t, typ, x, rowLen, weights)
				got := make([]byte, len(want))
				c := mustConverter(t, typ, tensor.F32)
				if err := c.Rows(got, bytesOfFloats(x), int64(rowLen), weights); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s, rows of %d, weights %t: first difference at %d", typ, rowLen, weights != nil, firstDiff(got, want))
				}
				if l := c.Loss(); l != (Loss{}) {
					t.Errorf("%s: loss %+v", typ, l)
				}
			}
		}
	}
}

// TestConverterPositions: the index counts values over rows and calls, from
// where Reset says.
func TestConverterPositions(t *testing.T) {
	c := mustConverter(t, tensor.F16, tensor.BF16)
	row := make([]byte, 2*5000)
	dst := make([]byte, len(row))
	binary.LittleEndian.PutUint16(row[2*4500:], ToBF16(1e5))
	c.Reset(1000)
	for range 2 {
		if err := c.Rows(dst, row, 100, nil); err != nil {
			t.Fatal(err)
		}
	}
	got := c.Loss()
	if got.Overflow.N != 2 || got.Overflow.First != 5500 || got.Overflow.Value != 99840 || got.NaN.N+got.Inf.N+got.Flush.N != 0 {
		t.Errorf("%+v", got)
	}
	if got.Finite() {
		t.Error("an overflow is not finite")
	}
	c.Reset(0)
	if c.Loss() != (Loss{}) {
		t.Error("Reset keeps counts")
	}
}

// TestConverterBadValues: one NaN and one Inf, whatever the target.
func TestConverterBadValues(t *testing.T) {
	x := spread(2048, 0.25, at{700: nan32, 1025: ninf32})
	for _, typ := range append(writable(), tensor.F32) {
		c := mustConverter(t, typ, tensor.F32)
		n, err := tensor.RowBytes(typ, 2048)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Rows(make([]byte, n), bytesOfFloats(x), 2048, nil); err != nil {
			t.Fatal(err)
		}
		l := c.Loss()
		if l.NaN.N != 1 || l.NaN.First != 700 || l.Inf.N != 1 || l.Inf.First != 1025 || l.Finite() {
			t.Errorf("%s: %+v", typ, l)
		}
	}
}

func TestConverterF64(t *testing.T) {
	values := []float64{1, 1e39, 1e300, 1e-60, math.Inf(1), 1e5, 1e-9, math.NaN()}
	src := make([]byte, 8*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint64(src[8*i:], math.Float64bits(v))
	}
	c := mustConverter(t, tensor.F16, tensor.F64)
	dst := make([]byte, 2*len(values))
	if err := c.Rows(dst, src, int64(len(values)), nil); err != nil {
		t.Fatal(err)
	}
	if want := expand(t, "003c 007c 007c 0000 007c 007c 0000 007e"); !bytes.Equal(dst, want) {
		t.Errorf("%x, want %x", dst, want)
	}
	got := c.Loss()
	got.NaN.Value = 0
	want := Loss{NaN: Count{1, 7, 0}, Inf: Count{1, 4, math.Inf(1)}, Overflow: Count{3, 1, 1e39}, Flush: Count{2, 3, 1e-60}}
	if got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	// A copy loses nothing.
	c = mustConverter(t, tensor.F64, tensor.F64)
	dst = make([]byte, len(src))
	if err := c.Rows(dst, src, int64(len(values)), nil); err != nil {
		t.Fatal(err)
	}
	if l := c.Loss(); !bytes.Equal(dst, src) || l.Overflow.N+l.Flush.N != 0 || l.NaN.N != 1 || l.Inf.N != 1 {
		t.Errorf("copy: %x, %+v", dst, l)
	}
}

// TestConverterCopiesBlocks: requantizing to the same type is a copy that
// counts bad scales.
func TestConverterCopiesBlocks(t *testing.T) {
	src := make([]byte, 4*34)
	for i := range src {
		src[i] = byte(i*7 + 1)
	}
	copy(src[34:], expand(t, "007c"))
	dst := make([]byte, len(src))
	c := mustConverter(t, tensor.Q8_0, tensor.Q8_0)
	if err := c.Rows(dst, src, 64, nil); err != nil {
		t.Fatal(err)
	}
	if l := c.Loss(); !bytes.Equal(dst, src) || l.BadBlock != (Count{1, 32, 0}) {
		t.Errorf("%x\n%+v", dst, l)
	}
	c = mustConverter(t, tensor.F32, tensor.Q8_0)
	if err := c.Rows(make([]byte, 4*128), src, 64, nil); err != nil {
		t.Fatal(err)
	}
	if l := c.Loss(); l.Finite() {
		t.Errorf("an infinite scale decodes to finite values: %+v", l)
	}
}

func TestConverterErrors(t *testing.T) {
	if _, err := NewConverter(tensor.F32, tensor.I32); !errors.Is(err, tensor.ErrUnknownType) {
		t.Errorf("I32: %v", err)
	}
	for _, typ := range []tensor.Type{tensor.F64, tensor.F8E4M3, tensor.F8E5M2} {
		if _, err := NewConverter(typ, tensor.F32); !errors.Is(err, ErrDecodeOnly) {
			t.Errorf("to %s: %v", typ, err)
		}
		if _, err := For(typ); !errors.Is(err, ErrDecodeOnly) {
			t.Errorf("For(%s): %v", typ, err)
		}
		if d, err := DecoderFor(typ); err != nil || d.Type() != typ {
			t.Errorf("DecoderFor(%s): %v", typ, err)
		}
	}
	for _, typ := range []tensor.Type{tensor.Invalid, tensor.I64, tensor.Bool, 999} {
		if _, err := DecoderFor(typ); !errors.Is(err, tensor.ErrUnknownType) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	c := mustConverter(t, tensor.Q8_0, tensor.F32)
	for name, f := range map[string]func() error{
		"row length": func() error { return c.Rows(make([]byte, 34), make([]byte, 4*172), 172, nil) },
		"negative":   func() error { return c.Rows(nil, nil, -32, nil) },
	} {
		if err := f(); !errors.Is(err, tensor.ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, f := range map[string]func() error{
		"short result": func() error { return c.Rows(make([]byte, 33), make([]byte, 128), 32, nil) },
		"part of row":  func() error { return c.Rows(make([]byte, 34), make([]byte, 100), 32, nil) },
		"weights":      func() error { return c.Rows(make([]byte, 34), make([]byte, 128), 32, make([]float32, 31)) },
		"no row":       func() error { return c.Rows(nil, make([]byte, 128), 0, nil) },
	} {
		if err := f(); !errors.Is(err, ErrSize) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Rows(nil, nil, 0, nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

package view

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"quern/tensor"
	"quern/tensor/quant"
)

// f32 makes a float32 tensor of the values.
func f32(name string, shape tensor.Shape, values ...float32) *tensor.Tensor {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	row := shape.RowLen() * 4
	return &tensor.Tensor{Name: name, Type: tensor.F32, Shape: shape, Key: tensor.Derive("test", name),
		Src: &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: row}}
}

// values reads a float32 tensor in steps of rows.
func values(t *testing.T, x *tensor.Tensor, step int64) []float32 {
	t.Helper()
	b := make([]byte, x.Bytes())
	for i := range b {
		b[i] = 0xee
	}
	for first := int64(0); first < x.Rows(); first += step {
		n := step
		if n > x.Rows()-first {
			n = x.Rows() - first
		}
		if err := x.ReadRows(context.Background(), b[first*x.RowBytes():(first+n)*x.RowBytes()], first, n); err != nil {
			t.Fatal(err)
		}
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func equal(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

func TestPad(t *testing.T) {
	m := f32("m", tensor.Shape{2, 3}, 1, 2, 3, 4, 5, 6)
	stack := f32("s", tensor.Shape{2, 1, 2}, 1, 2, 3, 4)
	for _, c := range []struct {
		name       string
		in         *tensor.Tensor
		rows, cols int64
		want       []float32
	}{
		{"columns", m, 2, 5, []float32{1, 2, 3, 0, 0, 4, 5, 6, 0, 0}},
		{"rows", m, 4, 3, []float32{1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0}},
		{"both", m, 3, 4, []float32{1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0, 0}},
		{"each slice of a stack", stack, 3, 3, []float32{1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0}},
		{"nothing", m, 2, 3, []float32{1, 2, 3, 4, 5, 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Pad(c.in, c.rows, c.cols)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []int64{1, 2, 3, 100} {
				if got := values(t, p, step); !equal(got, c.want) {
					t.Errorf("steps of %d rows: %v, want %v", step, got, c.want)
				}
			}
			if same := p.Key == c.in.Key; same != (c.name == "nothing") {
				t.Errorf("the key is that of the input: %v", same)
			}
		})
	}
	for _, c := range []struct {
		in         *tensor.Tensor
		rows, cols int64
	}{{m, 1, 3}, {m, 2, 2}, {m, 2, math.MaxInt64}, {f32("v", tensor.Shape{3}, 1, 2, 3), 2, 3}} {
		if _, err := Pad(c.in, c.rows, c.cols); !errors.Is(err, tensor.ErrShape) {
			t.Errorf("%v to %d x %d: %v", c.in.Shape, c.rows, c.cols, err)
		}
	}
}

func TestFlat(t *testing.T) {
	m := f32("m", tensor.Shape{3, 3}, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	for _, c := range []struct {
		width int64
		want  []float32
	}{
		{2, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 0}},
		{4, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0}},
		{9, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{10, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 0}},
	} {
		f, err := Flat(m, c.width)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []int64{1, 2, 100} {
			if got := values(t, f, step); !equal(got, c.want) {
				t.Errorf("width %d, steps of %d: %v, want %v", c.width, step, got, c.want)
			}
		}
	}
	if _, err := Flat(m, 0); !errors.Is(err, tensor.ErrShape) {
		t.Errorf("width 0: %v", err)
	}
}

func TestCastNames(t *testing.T) {
	m := f32("m", tensor.Shape{2, 2}, 1, 2, 3, 4)
	same, err := Cast(m, tensor.F32, CastOptions{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if same.Name != "n" || same.Key != m.Key {
		t.Errorf("a cast to the same type is %s with key %v", same.Name, same.Key)
	}
	half, err := Cast(m, tensor.F16, CastOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if half.Name != "m" || half.Type != tensor.F16 || half.Key == m.Key || half.Key.IsZero() {
		t.Errorf("%s %s %v", half.Name, half.Type, half.Key)
	}
}

// TestCastRefuses: the error has the first place among the rows asked for and
// the count of the whole tensor.
func TestCastRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		name   string
		in     *tensor.Tensor
		to     tensor.Type
		first  int64
		row    int64
		column int64
		count  int64
		words  string
	}{
		{"NaN", f32("m", tensor.Shape{3, 2}, 1, nan, 2, nan, nan, 3), tensor.F16, 1, 1, 1, 3, "not a number"},
		{"infinite", f32("m", tensor.Shape{3, 2}, 1, 2, inf, 3, 4, 5), tensor.BF16, 0, 1, 0, 1, "not finite"},
		{"too large for fp16", f32("m", tensor.Shape{2, 2}, 1, 2, 3, 65520), tensor.F16, 0, 1, 1, 1, "range of F16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := Cast(c.in, c.to, CastOptions{Name: "out"})
			if err != nil {
				t.Fatal(err)
			}
			n := x.Rows() - c.first
			err = x.ReadRows(context.Background(), make([]byte, n*x.RowBytes()), c.first, n)
			var v *ValueError
			if !errors.As(err, &v) || !errors.Is(err, ErrValue) {
				t.Fatalf("got %v", err)
			}
			if v.Row != c.row || v.Column != c.column || v.Count != c.count || v.Tensor != "out" || v.From != "m" {
				t.Errorf("%+v", v)
			}
			if !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v does not say %q", err, c.words)
			}
			allowed, err := Cast(c.in, c.to, CastOptions{Allow: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := allowed.ReadRows(context.Background(), make([]byte, allowed.Bytes()), 0, allowed.Rows()); err != nil {
				t.Errorf("allowed: %v", err)
			}
		})
	}
	// Checked copies refuse what unchecked ones pass on.
	bad := f32("m", tensor.Shape{1, 1}, nan)
	checked, err := Cast(bad, tensor.F32, CastOptions{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := checked.ReadRows(context.Background(), make([]byte, 4), 0, 1); !errors.Is(err, ErrValue) {
		t.Errorf("a checked copy of NaN: %v", err)
	}
	if checked.Key != bad.Key {
		t.Error("a checked copy has another key")
	}
}

func TestCastCountsFlushes(t *testing.T) {
	m := f32("m", tensor.Shape{2, 2}, 1, 1e-30, 1e-30, 0)
	x, err := Cast(m, tensor.F16, CastOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wide, err := Cast(x, tensor.F32, CastOptions{})
	if err != nil {
		t.Fatal(err)
	}
	values(t, wide, 1)
	if n := wide.Src.(Lossy).Loss().Flush.N; n != 2 {
		t.Errorf("%d values flushed, want 2", n)
	}
}

// TestCastWeights: each slice of a stack is encoded with its own weights, as if
// it stood alone.
func TestCastWeights(t *testing.T) {
	const row, rows, slices = 32, 3, 2
	var data, weights []float32
	state := uint32(7)
	next := func() float32 {
		state = state*1664525 + 1013904223
		return float32(int32(state)>>8) / (1 << 23)
	}
	for range row * rows * slices {
		data = append(data, next())
	}
	for range row * slices {
		v := next()
		weights = append(weights, float32(v*v)+0.01)
	}
	m := f32("m", tensor.Shape{slices, rows, row}, data...)
	x, err := Cast(m, tensor.Q4_0, CastOptions{Weights: weights, WeightsKey: tensor.Derive("weights", "")})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, x.Bytes())
	for r := int64(0); r < x.Rows(); r += 4 { // runs across the slices
		n := x.Rows() - r
		if n > 4 {
			n = 4
		}
		if err := x.ReadRows(context.Background(), got[r*x.RowBytes():(r+n)*x.RowBytes()], r, n); err != nil {
			t.Fatal(err)
		}
	}
	codec, err := quant.For(tensor.Q4_0)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, len(got))
	for r := range rows * slices {
		s := r / rows
		codec.EncodeRow(want[r*18:(r+1)*18], data[r*row:(r+1)*row], weights[s*row:(s+1)*row])
	}
	if !bytes.Equal(got, want) {
		t.Error("rows differ from rows encoded alone with their slice's weights")
	}
	plain, err := Cast(m, tensor.Q4_0, CastOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if plain.Key == x.Key {
		t.Error("weights are not part of the key")
	}
	if _, err := Cast(m, tensor.Q4_0, CastOptions{Weights: weights[:5]}); !errors.Is(err, tensor.ErrShape) {
		t.Errorf("five weights: %v", err)
	}
}

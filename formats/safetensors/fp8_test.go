package safetensors

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"quern/tensor"
)

// e4m3 decodes by the definition: sign, 4 bits of exponent with bias 7, 3 of
// mantissa, no infinities.
func e4m3(b byte) float32 {
	if b&0x7f == 0x7f {
		return float32(math.NaN())
	}
	sign, e, m := 1.0, int(b>>3&15), float64(b&7)
	if b >= 0x80 {
		sign = -1
	}
	if e == 0 {
		return float32(sign * math.Ldexp(m, -9))
	}
	return float32(sign * math.Ldexp(8+m, e-10))
}

func f32s(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func bf16s(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(x)>>16))
	}
	return b
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func sameFloats(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && !(a[i] != a[i] && b[i] != b[i]) {
			return i
		}
	}
	return -1
}

var blocks128 = ScaleOptions{BlockRows: 128, BlockCols: 128}

// Case 17: 130x200 E4M3 with 2x2 scales, ragged at both edges.
func TestBlockScales(t *testing.T) {
	const r, c = 130, 200
	data := make([]byte, r*c)
	for i := range data {
		data[i] = byte(i*7 + i/256)
	}
	data[0], data[1], data[2], data[3] = 0x7e, 0x01, 0x7f, 0xff
	scales := []float32{0.5, 3, -1.25, 0.001953125}
	w := section("x.weight", tensor.F8E4M3, tensor.Shape{r, c}, data)
	w.Key = tensor.Derive("w", "")
	w.Origin = []tensor.Extent{{File: "b", Offset: 8, Bytes: r * c}}
	want := make([]float32, r*c)
	for i := range r {
		for j := range c {
			want[i*c+j] = float32(e4m3(data[i*c+j]) * scales[i/128*2+j/128])
		}
	}
	// 448 * 0.5, 2^-9 * 0.5, NaN, NaN
	if want[0] != 224 || want[1] != 0.0009765625 || want[2] == want[2] || want[3] == want[3] {
		t.Fatalf("the test's own decoder: %v", want[:4])
	}
	for _, s := range []*tensor.Tensor{
		section("x.weight_scale_inv", tensor.F32, tensor.Shape{2, 2}, f32s(scales...)),
		section("x.weight_scale_inv", tensor.BF16, tensor.Shape{2, 2}, bf16s(scales...)),
		section("x.weight_scale", tensor.F32, tensor.Shape{2, 2}, f32s(scales...)),
	} {
		s.Key = tensor.Derive("s", "")
		s.Origin = []tensor.Extent{{File: "a", Offset: 8, Bytes: 16}}
		other := section("y.weight", tensor.BF16, tensor.Shape{1}, []byte{1, 2})
		got, err := Rescale([]*tensor.Tensor{other, w, s}, blocks128)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Tensors) != 2 || got.Tensors[0] != other || len(got.Ignored) != 0 {
			t.Fatalf("tensors %v, ignored %v", got.Tensors, got.Ignored)
		}
		x := got.Tensors[1]
		if x.Name != "x.weight" || x.Type != tensor.F32 || !x.Shape.Equal(w.Shape) || x.Key.IsZero() || x.Key == w.Key {
			t.Errorf("view %+v", x)
		}
		if len(x.Origin) != 2 || x.Origin[0].File != "a" || x.Origin[1].File != "b" {
			t.Errorf("origin %v", x.Origin)
		}
		whole := floats(rows(t, x))
		if i := sameFloats(whole, want); i >= 0 {
			t.Fatalf("%s: value %d is %v, want %v", s.Name, i, whole[i], want[i])
		}
		// Any piece gives the same values.
		for _, p := range [][2]int64{{0, 1}, {127, 2}, {128, 2}, {129, 1}, {5, 124}} {
			b := make([]byte, p[1]*c*4)
			if err := x.ReadRows(context.Background(), b, p[0], p[1]); err != nil {
				t.Fatal(err)
			}
			if i := sameFloats(floats(b), want[p[0]*c:]); i >= 0 {
				t.Errorf("rows %v: value %d differs", p, i)
			}
		}
	}
}

// TestOtherScales: one scale, a scale a row, other blocks, a stack of
// matrices, E5M2.
func TestOtherScales(t *testing.T) {
	data := []byte{0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f, 0x40, 0x41, 0x42, 0x43} // 1, 1.125, ... 1.875, 2, 2.25, 2.5, 2.75
	vals := make([]float32, len(data))
	for i, b := range data {
		vals[i] = e4m3(b)
	}
	for _, x := range []struct {
		name   string
		shape  tensor.Shape
		scales []float32
		sshape tensor.Shape
		opt    ScaleOptions
		which  func(i int) int // of value i
	}{
		{"scalar", tensor.Shape{3, 4}, []float32{3}, tensor.Shape{}, ScaleOptions{}, func(int) int { return 0 }},
		{"one", tensor.Shape{3, 4}, []float32{3}, tensor.Shape{1}, ScaleOptions{}, func(int) int { return 0 }},
		{"rows", tensor.Shape{3, 4}, []float32{3, 5, 7}, tensor.Shape{3}, ScaleOptions{}, func(i int) int { return i / 4 }},
		{"rows as column", tensor.Shape{3, 4}, []float32{3, 5, 7}, tensor.Shape{3, 1}, ScaleOptions{}, func(i int) int { return i / 4 }},
		{"blocks 2x3", tensor.Shape{3, 4}, []float32{3, 5, 7, 9}, tensor.Shape{2, 2}, ScaleOptions{BlockRows: 2, BlockCols: 3}, func(i int) int { return i/8*2 + i%4/3 }},
		{"stack", tensor.Shape{2, 3, 2}, []float32{3, 5, 7, 9}, tensor.Shape{2, 2, 1}, ScaleOptions{BlockRows: 2, BlockCols: 2}, func(i int) int { return i/6*2 + i%6/4 }},
		{"stack, one", tensor.Shape{2, 3, 2}, []float32{3}, tensor.Shape{1}, ScaleOptions{}, func(int) int { return 0 }},
		{"vector, one", tensor.Shape{12}, []float32{3}, tensor.Shape{}, ScaleOptions{}, func(int) int { return 0 }},
	} {
		w := section("x.weight", tensor.F8E4M3, x.shape, data)
		s := section("x.weight_scale", tensor.F32, x.sshape, f32s(x.scales...))
		got, err := Rescale([]*tensor.Tensor{w, s}, x.opt)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		whole := floats(rows(t, got.Tensors[0]))
		for i, v := range whole {
			if want := float32(vals[i] * x.scales[x.which(i)]); v != want {
				t.Errorf("%s: value %d is %v, want %v", x.name, i, v, want)
			}
		}
		// Row by row.
		var pieces []byte
		for r := range got.Tensors[0].Rows() {
			b := make([]byte, got.Tensors[0].RowBytes())
			if err := got.Tensors[0].ReadRows(context.Background(), b, r, 1); err != nil {
				t.Fatal(err)
			}
			pieces = append(pieces, b...)
		}
		if i := sameFloats(floats(pieces), whole); i >= 0 {
			t.Errorf("%s: by rows value %d differs", x.name, i)
		}
	}
	w := section("x.weight", tensor.F8E5M2, tensor.Shape{1, 2}, []byte{0x3c, 0xc1}) // 1, -2.5
	s := section("x.weight_scale_inv", tensor.F16, tensor.Shape{}, []byte{0x00, 0x42})
	got, err := Rescale([]*tensor.Tensor{w, s}, ScaleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v := floats(rows(t, got.Tensors[0])); v[0] != 3 || v[1] != -7.5 {
		t.Errorf("E5M2: %v", v)
	}
	empty := section("x.weight", tensor.F8E4M3, tensor.Shape{0, 4}, nil)
	got, err = Rescale([]*tensor.Tensor{empty, section("x.weight_scale_inv", tensor.F32, tensor.Shape{0, 1}, nil)}, blocks128)
	if err != nil || got.Tensors[0].Bytes() != 0 {
		t.Errorf("empty: %v", err)
	}
}

func TestScaleErrors(t *testing.T) {
	w := section("x.weight", tensor.F8E4M3, tensor.Shape{130, 200}, make([]byte, 130*200))
	s := section("x.weight_scale_inv", tensor.F32, tensor.Shape{2, 2}, f32s(1, 1, 1, 1))
	re := func(x *tensor.Tensor, f func(*tensor.Tensor)) *tensor.Tensor { return x.With(f) }
	for _, x := range []struct {
		ts    []*tensor.Tensor
		parts []string
	}{
		{[]*tensor.Tensor{w}, []string{"x.weight", "x.weight_scale_inv is missing"}},
		{[]*tensor.Tensor{w, re(s, func(t *tensor.Tensor) { t.Shape = tensor.Shape{2, 1} })}, []string{"[2, 1]", "[130, 200]", "[2, 2]"}},
		{[]*tensor.Tensor{w, re(s, func(t *tensor.Tensor) { t.Shape = tensor.Shape{4} })}, []string{"[4]"}},
		{[]*tensor.Tensor{w, re(s, func(t *tensor.Tensor) { t.Type = tensor.I32 })}, []string{"I32"}},
		{[]*tensor.Tensor{w, s, re(s, func(t *tensor.Tensor) { t.Name = "x.weight_scale" })}, []string{"two scales"}},
		{[]*tensor.Tensor{w, s, re(s, func(t *tensor.Tensor) { t.Name = "y.weight_scale_inv" })}, []string{"y.weight_scale_inv belongs to y.weight, which is not there"}},
		{[]*tensor.Tensor{w, s, re(s, func(t *tensor.Tensor) { t.Name = "y.weight_scale" }), re(s, func(t *tensor.Tensor) { t.Name = "y.weight" })}, []string{"which is F32"}},
	} {
		_, err := Rescale(x.ts, blocks128)
		wantErr(t, err, ErrScale, x.parts...)
	}
	// 65x100 fits the grid as well as 128x128 does.
	_, err := Rescale([]*tensor.Tensor{w, s}, ScaleOptions{})
	wantErr(t, err, ErrScale, "[2, 2]", "size of blocks is not known")
}

// Case 18: activation scales are left out by rule and listed.
func TestActivationScales(t *testing.T) {
	w := section("x.weight", tensor.F8E4M3, tensor.Shape{1, 1}, []byte{0x38})
	s := section("x.weight_scale_inv", tensor.F32, tensor.Shape{1, 1}, f32s(2))
	in := section("x.input_scale", tensor.F32, tensor.Shape{}, f32s(9))
	k := section("y.k_scale", tensor.BF16, tensor.Shape{1}, bf16s(9))
	matrix := section("z.input_scale", tensor.F32, tensor.Shape{2}, f32s(1, 2))
	got, err := Rescale([]*tensor.Tensor{in, w, k, s, matrix}, ScaleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Ignored, []string{"x.input_scale", "y.k_scale"}) {
		t.Errorf("ignored %v", got.Ignored)
	}
	if len(got.Tensors) != 2 || got.Tensors[0].Name != "x.weight" || got.Tensors[1] != matrix {
		t.Errorf("tensors %v", got.Tensors)
	}
	if v := floats(rows(t, got.Tensors[0])); v[0] != 2 {
		t.Errorf("value %v", v)
	}
	// Without FP8 nothing is touched: the names mean nothing there.
	plain := []*tensor.Tensor{in, section("x.weight", tensor.BF16, tensor.Shape{1}, []byte{0, 0})}
	got, err = Rescale(plain, ScaleOptions{})
	if err != nil || len(got.Tensors) != 2 || got.Ignored != nil {
		t.Errorf("without FP8: %v %v", got, err)
	}
}

// TestScalesAreReadOnce: the parts of a weight share one reading of its scales,
// also from several goroutines; the next pass reads them again.
func TestScalesAreReadOnce(t *testing.T) {
	const r, c = 300, 200
	w := section("x.weight", tensor.F8E4M3, tensor.Shape{r, c}, bytes.Repeat([]byte{0x38}, r*c)) // 1
	var scales []float32
	for i := range 6 {
		scales = append(scales, float32(i+1))
	}
	s := section("x.weight_scale_inv", tensor.F32, tensor.Shape{3, 2}, f32s(scales...))
	var reads atomic.Int64
	from := s.Src
	s.Src = tensor.SourceFunc(func(ctx context.Context, dst []byte, first, n int64) error {
		reads.Add(1)
		return from.ReadRows(ctx, dst, first, n)
	})
	got, err := Rescale([]*tensor.Tensor{w, s}, blocks128)
	if err != nil {
		t.Fatal(err)
	}
	x := got.Tensors[0]
	for pass := int64(1); pass <= 2; pass++ {
		var wg sync.WaitGroup
		for k := range int64(4) {
			wg.Go(func() {
				for i := k; i < r; i += 4 {
					b := make([]byte, x.RowBytes())
					if err := x.ReadRows(context.Background(), b, i, 1); err != nil {
						t.Error(err)
					}
					if v := floats(b); v[0] != scales[i/128*2] || v[c-1] != scales[i/128*2+1] {
						t.Errorf("row %d: %v and %v", i, v[0], v[c-1])
					}
				}
			})
		}
		wg.Wait()
		if n := reads.Load(); n != pass {
			t.Errorf("pass %d: the scales were read %d times", pass, n)
		}
	}
	// A failed reading is tried again.
	fail := errors.New("broken")
	s.Src = tensor.SourceFunc(func(context.Context, []byte, int64, int64) error { return fail })
	b := make([]byte, x.RowBytes())
	if err := x.ReadRows(context.Background(), b, 0, 1); !errors.Is(err, fail) {
		t.Errorf("%v", err)
	}
	s.Src = from
	if err := x.ReadRows(context.Background(), b, 0, 1); err != nil {
		t.Error(err)
	}
}

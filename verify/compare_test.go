package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"quern/tensor"
	"quern/tensor/quant"
)

func floats(name string, shape tensor.Shape, values ...float32) *tensor.Tensor {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return &tensor.Tensor{Name: name, Type: tensor.F32, Shape: shape, Src: &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: 4 * shape.RowLen()}}
}

func compareOne(t *testing.T, got, want *tensor.Tensor) Row {
	t.Helper()
	r, err := Compare(context.Background(), []*tensor.Tensor{got}, []*tensor.Tensor{want}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Rows[0]
}

// TestFigures holds every figure against values worked out by hand.
func TestFigures(t *testing.T) {
	// Errors 0, 0.5, 0, -1: energy 1.25; reference 1+4+9+16 = 30.
	r := compareOne(t, floats("w", tensor.Shape{2, 2}, 1, 2.5, 3, 3), floats("w", tensor.Shape{2, 2}, 1, 2, 3, 4))
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 1e-12*math.Abs(want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	near("largest error", r.MaxAbs, 1)
	near("RMS error", r.RMS, math.Sqrt(1.25/4))
	near("SNR", float64(r.SNRdB), 10*math.Log10(30/1.25))
	// dot 1+5+9+12 = 27; file 1+6.25+9+9 = 25.25.
	near("cosine", r.Cosine, 27/math.Sqrt(30*25.25))
	if r.MaxAt != 3 || r.Equal || r.NaN != 0 || r.Inf != 0 || r.Values != 4 || r.Bytes != 16 {
		t.Errorf("%+v", r)
	}
}

func TestEqual(t *testing.T) {
	r := compareOne(t, floats("w", tensor.Shape{3}, 1, 0, -2), floats("w", tensor.Shape{3}, 1, 0, -2))
	if !r.Equal || !math.IsInf(float64(r.SNRdB), 1) || r.Cosine != 1 || r.MaxAbs != 0 {
		t.Errorf("%+v", r)
	}
	b, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(b), `"snr_db":null`) {
		t.Errorf("%s %v", b, err)
	}
	zero := compareOne(t, floats("w", tensor.Shape{2}, 1, 1), floats("w", tensor.Shape{2}, 0, 0))
	if !math.IsInf(float64(zero.SNRdB), -1) || zero.Cosine != 0 {
		t.Errorf("against zero: %+v", zero)
	}
}

func TestNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	r := compareOne(t, floats("w", tensor.Shape{4}, nan, inf, 1, 2), floats("w", tensor.Shape{4}, 1, 1, 1, 2))
	if r.NaN != 1 || r.Inf != 1 || r.Equal || r.MaxAbs != 0 {
		t.Errorf("%+v", r)
	}
}

// TestFlushedBlocks: a block of zeros in the file counts only where the
// reference is not zero too.
func TestFlushedBlocks(t *testing.T) {
	var ref []float32
	for i := range 96 {
		v := float32(0)
		switch {
		case i < 32:
			v = 1e-9 // flushed: the scale is zero in fp16
		case i >= 64:
			v = 1
		}
		ref = append(ref, v)
	}
	codec, err := quant.For(tensor.Q8_0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 3*34)
	codec.EncodeRow(b, ref, nil)
	got := &tensor.Tensor{Name: "w", Type: tensor.Q8_0, Shape: tensor.Shape{96}, Src: &tensor.Section{Blob: tensor.BytesBlob("w", b), RowBytes: int64(len(b))}}
	if r := compareOne(t, got, floats("w", tensor.Shape{96}, ref...)); r.Flushed != 1 {
		t.Errorf("%d blocks flushed, want 1", r.Flushed)
	}
}

// TestJobs: the result is the same to the last bit however many workers sum it.
func TestJobs(t *testing.T) {
	state := uint32(1)
	random := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			state = state*1664525 + 1013904223
			out[i] = float32(int32(state)>>8) / (1 << 23)
		}
		return out
	}
	shape := tensor.Shape{700, 500}
	got, want := floats("a", shape, random(350000)...), floats("a", shape, random(350000)...)
	var first *Report
	for _, jobs := range []int{1, 2, 7} {
		r, err := Compare(context.Background(), []*tensor.Tensor{got}, []*tensor.Tensor{want}, Options{Jobs: jobs})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = r
		}
		if !reflect.DeepEqual(r, first) {
			t.Errorf("%d jobs give another report", jobs)
		}
	}
}

func TestCorrespondence(t *testing.T) {
	a, b := floats("a", tensor.Shape{2}, 1, 2), floats("b", tensor.Shape{2}, 1, 2)
	for _, c := range []struct {
		got, want []*tensor.Tensor
		words     string
	}{
		{[]*tensor.Tensor{a}, []*tensor.Tensor{b}, "a of the file"},
		{[]*tensor.Tensor{a}, []*tensor.Tensor{a, b}, "b of the source"},
		{[]*tensor.Tensor{a}, []*tensor.Tensor{floats("a", tensor.Shape{3}, 1, 2, 3)}, "[2] in the file"},
	} {
		_, err := Compare(context.Background(), c.got, c.want, Options{})
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("got %v, want ErrMissing with %q", err, c.words)
		}
	}
	// Outer axes of 1 make no difference.
	if _, err := Compare(context.Background(), []*tensor.Tensor{a}, []*tensor.Tensor{floats("a", tensor.Shape{1, 2}, 1, 2)}, Options{}); err != nil {
		t.Error(err)
	}
}

func TestFirstDifference(t *testing.T) {
	a := floats("a", tensor.Shape{3, 2}, 1, 2, 3, 4, 5, 6)
	for _, c := range []struct {
		want  *tensor.Tensor
		words string
	}{
		{floats("a", tensor.Shape{3, 2}, 1, 2, 3, 4, 5, 7), "row 2 of 3"},
		{floats("b", tensor.Shape{3, 2}, 1, 2, 3, 4, 5, 6), "tensor 0 is a"},
		{floats("a", tensor.Shape{3, 2}, 1, 2, 3, 4, 5, 6), "metadata"},
	} {
		s, err := FirstDifference(context.Background(), []*tensor.Tensor{a}, []*tensor.Tensor{c.want})
		if err != nil || !strings.Contains(s, c.words) {
			t.Errorf("%q, %v; want %q", s, err, c.words)
		}
	}
}

func TestReports(t *testing.T) {
	got := []*tensor.Tensor{floats("<script>", tensor.Shape{2}, 1, 2)}
	rep, err := Compare(context.Background(), got, []*tensor.Tensor{floats("<script>", tensor.Shape{2}, 1, 3)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	rep.File, rep.Against = "file.gguf", "source"
	page, err := HTML(rep)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(page, []byte("<script>")) || !bytes.Contains(page, []byte("&lt;script&gt;")) {
		t.Error("the page does not escape names")
	}
	var table bytes.Buffer
	if err := Table(&table, rep); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"file.gguf against source", "worst: <script>", "10.00"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	if w := rep.Worst(); w == nil || w.Name != "<script>" {
		t.Errorf("worst is %+v", w)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("enough")
	cancel(cause)
	a := []*tensor.Tensor{floats("a", tensor.Shape{2}, 1, 2)}
	if _, err := Compare(ctx, a, a, Options{}); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// TestSniff: what is no model file at all is named.
func TestSniff(t *testing.T) {
	for text, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:4db9\nsize 154880\n": "git lfs pull",
		"<!DOCTYPE html><html></html>": "login",
		"something else":               "are read",
	} {
		_, err := Sniff(context.Background(), "f", tensor.BytesBlob("f", []byte(text)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// TestIntegers: lists of ids are compared too, beyond what float32 tells apart.
func TestIntegers(t *testing.T) {
	for _, c := range []struct {
		typ  tensor.Type
		size int
		vals [2]int64
	}{{tensor.I8, 1, [2]int64{-5, 100}}, {tensor.I16, 2, [2]int64{-5, 30000}}, {tensor.I32, 4, [2]int64{-5, 1 << 30}}, {tensor.I64, 8, [2]int64{-5, 1 << 30}}} {
		made := func(add int64) *tensor.Tensor {
			var b []byte
			for _, v := range []int64{c.vals[0], c.vals[1] + add} {
				b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(v))[:c.size]...)
			}
			return &tensor.Tensor{Name: "ids", Type: c.typ, Shape: tensor.Shape{2}, Src: &tensor.Section{Blob: tensor.BytesBlob("ids", b), RowBytes: int64(len(b))}}
		}
		if r := compareOne(t, made(0), made(0)); !r.Equal || r.MaxAbs != 0 || r.Type != c.typ.String() {
			t.Errorf("%s: %+v", c.typ, r)
		}
		if r := compareOne(t, made(1), made(0)); r.Equal {
			t.Errorf("%s: another last bit is equal", c.typ)
		}
		if r := compareOne(t, made(-64), made(0)); r.Equal || r.MaxAbs != 64 || r.MaxAt != 1 {
			t.Errorf("%s: %+v", c.typ, r)
		}
	}
}

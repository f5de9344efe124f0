package cq

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestStandardCodebooks: the fits for groups of 128 equal the float32 values of
// every archive's header to the bit. In float64 a last place may differ: the C
// library that NumPy took its logarithms from rounds a few of them the other way.
func TestStandardCodebooks(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "cact", "codebook128.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]struct {
		Bits     []string
		Gaussian []string `json:"gaussian_float64"`
	}
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	for _, w := range []Width{W2, W3, W4} {
		g := golden[w.String()]
		levels, err := Levels(w)
		if err != nil {
			t.Fatal(err)
		}
		fitted, err := Gaussian(context.Background(), w.Levels(), FitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(fitted, levels) {
			t.Errorf("%s bits: the fit gives %x, the table has %x", w, fitted, levels)
		}
		book, err := Codebook(w, 128)
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Gaussian) != w.Levels() || len(levels) != w.Levels() || len(book) != w.Levels() {
			t.Fatalf("%s bits: %d golden levels, %d levels, %d entries", w, len(g.Gaussian), len(levels), len(book))
		}
		for i := range levels {
			want, err := strconv.ParseFloat(g.Gaussian[i], 64)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(levels[i]-want) > 2.3e-16*math.Abs(want) {
				t.Errorf("%s bits, level %d: %x, want %x", w, i, levels[i], want)
			}
			bits, err := strconv.ParseUint(g.Bits[i], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			if got := math.Float32bits(book[i]); got != uint32(bits) {
				t.Errorf("%s bits, entry %d: %08x, want %08x", w, i, got, bits)
			}
		}
	}
}

// numpyGolden is testdata/cq/numpy.json.
type numpyGolden struct {
	Randn       map[string]hexBytes
	Permutation map[string][]int32
	Fit         []struct {
		Name    string
		Samples hexBytes
		Levels  int
		Rounds  int
		Want    hexBytes
	}
	Encode []struct {
		Bits                        string
		Group, Rows                 int
		Weights, Book, Index, Norms hexBytes
	}
}

type hexBytes []byte

func (h *hexBytes) UnmarshalText(b []byte) (err error) {
	*h, err = hex.DecodeString(string(b))
	return err
}

func (h hexBytes) float64s() []float64 {
	out := make([]float64, len(h)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(h[8*i:]))
	}
	return out
}

func (h hexBytes) float32s() []float32 {
	out := make([]float32, len(h)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(h[4*i:]))
	}
	return out
}

func numpy(t testing.TB) *numpyGolden {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "cq", "numpy.json"))
	if err != nil {
		t.Fatal(err)
	}
	g := new(numpyGolden)
	if err := json.Unmarshal(b, g); err != nil {
		t.Fatal(err)
	}
	if len(g.Encode) != 20 || len(g.Fit) != 3 || len(g.Randn) != 3 || len(g.Permutation) != 5 {
		t.Fatal("goldens are missing")
	}
	return g
}

func TestRandomState(t *testing.T) {
	g := numpy(t)
	for name, want := range g.Randn {
		seed, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		r := newRandomState(uint32(seed))
		for i, w := range want.float64s() {
			if v := r.normal(); v != w {
				t.Errorf("seed %s, draw %d: %v, want %v", name, i, v, w)
			}
		}
	}
	for name, want := range g.Permutation {
		var seed uint32
		var n int
		if _, err := fmt.Sscanf(name, "%d/%d", &seed, &n); err != nil {
			t.Fatal(err)
		}
		if got := Permutation(seed, n); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, f := range numpy(t).Fit {
		rounds, last := 0, math.Inf(1)
		got, err := Fit(context.Background(), f.Samples.float64s(), f.Levels, FitOptions{Rounds: f.Rounds, Progress: func(done, of int, rms float64) {
			if done != rounds+1 || of != f.Rounds || rms > last*(1+1e-12) {
				t.Errorf("%s: round %d of %d after round %d: distance %v after %v", f.Name, done, of, rounds, rms, last)
			}
			rounds, last = done, rms
		}})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, f.Want.float64s()) {
			t.Errorf("%s: %v, want %v", f.Name, got, f.Want.float64s())
		}
		if rounds == 0 {
			t.Errorf("%s: no progress was reported", f.Name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name    string
		ctx     context.Context
		samples []float64
		levels  int
		want    error
	}{
		{"no samples", context.Background(), nil, 2, ErrFit},
		{"no levels", context.Background(), []float64{1}, 0, ErrFit},
		{"too many levels", context.Background(), make([]float64, 300), 257, ErrFit},
		{"NaN", context.Background(), []float64{1, math.NaN()}, 1, ErrFit},
		{"infinity", context.Background(), []float64{1, math.Inf(-1)}, 1, ErrFit},
		{"cancelled", ctx, []float64{1, 2}, 1, context.Canceled},
	} {
		if _, err := Fit(c.ctx, c.samples, c.levels, FitOptions{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestBooks(t *testing.T) {
	b := &Books{Group: 128, Samples: 5, Books: []Book{{Bits: "2", Levels: []float64{-1.5, -0.1, 0.3, 1.0 / 3 * 5}, RMS: 0.25, StandardRMS: 0.5}}}
	text, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseBooks(text)
	if err != nil || fmt.Sprint(back) != fmt.Sprint(b) {
		t.Errorf("%v, %v", back, err)
	}
	for _, c := range []struct{ name, old, new string }{
		{"another format", "v1", "v2"}, {"another group", `"group": 128`, `"group": 100`}, {"width 1", `"bits": "2"`, `"bits": "1"`}, {"width 3", `"bits": "2"`, `"bits": "3"`},
		{"descending", "-1.5", "1.5"}, {"unknown key", `"samples"`, `"sample"`}, {"cut", "}", ""},
	} {
		if _, err := ParseBooks([]byte(strings.Replace(string(text), c.old, c.new, 1))); !errors.Is(err, ErrCodebook) && !errors.Is(err, ErrGroup) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

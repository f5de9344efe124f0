package ggmlnum

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"quern/internal/testmodel"
)

// libmGolden is a function of testdata/ggml/libm.json, see interop/make_libm.py.
type libmGolden struct {
	Name   string     `json:"name"`
	Range  float64    `json:"range"`
	Count  int        `json:"count"`
	SHA256 string     `json:"sha256"`
	Values [][]uint32 `json:"values"`
}

// argument is value number i of a range.
func argument(i uint64, limit float64) float32 {
	z := (i + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	if i%2 == 0 {
		return math.Float32frombits(uint32(z >> 32))
	}
	return float32(float64((float64(z>>40) - 1<<23) * 0x1p-23 * limit))
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// resultBits are those of a result, of all that are no numbers the same.
func resultBits(y float32) uint32 {
	if y != y {
		return 0x7fc00000
	}
	return math.Float32bits(y)
}

// TestLibm: the functions of the C library that ggml calls give the bits of glibc.
func TestLibm(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(testmodel.Root(), "ggml/libm.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []libmGolden
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	of := map[string]func(x ...float32) float32{
		"expf": func(x ...float32) float32 { return Exp(x[0]) }, "logf": func(x ...float32) float32 { return Log(x[0]) },
		"sinf": func(x ...float32) float32 { return Sin(x[0]) }, "cosf": func(x ...float32) float32 { return Cos(x[0]) },
		"tanhf": func(x ...float32) float32 { return Tanh(x[0]) }, "powf": func(x ...float32) float32 { return Pow(x[0], x[1]) },
	}
	if len(all) != len(of) {
		t.Fatalf("%d functions, want %d", len(all), len(of))
	}
	for _, g := range all {
		f, h := of[g.Name], sha256.New()
		for _, v := range g.Values {
			n := len(v) - 1
			x := make([]float32, n)
			for i := range x {
				x[i] = math.Float32frombits(v[i])
			}
			if got := resultBits(f(x...)); got != v[n] {
				t.Errorf("%s of %x is %08x, want %08x", g.Name, x, got, v[n])
			}
		}
		var word [4]byte
		for i := range uint64(g.Count) {
			x := argument(i, g.Range)
			y := float32(0)
			if g.Name == "powf" {
				y = f(abs(x), argument(i+1<<32, 4))
			} else {
				y = f(x)
			}
			binary.LittleEndian.PutUint32(word[:], resultBits(y))
			h.Write(word[:])
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != g.SHA256 {
			t.Errorf("%s: the digest of %d results is %s, want %s", g.Name, g.Count, got, g.SHA256)
		}
	}
}

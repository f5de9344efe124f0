package ggmldot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/tensor"
	"quern/tensor/quant"
)

// golden is a product that ggml's CPU backend computed: interop/make_ggmldot.py
// says how, and by which rules weights and activations come from a seed.
type golden struct {
	Type                 string
	Width, Rows, Columns int
	Repacked             int
	Profile              string
	Seed                 uint64
	SHA256               string
	First, Last          []string // the first results of the first and the last column
}

// goldens reads the products of a type.
func goldens(t *testing.T, typ string) []golden {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../testdata/ggmldot", typ+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var out []golden
	for line := range bytes.Lines(raw) {
		var g golden
		if err := json.Unmarshal(line, &g); err != nil {
			t.Fatal(err)
		}
		out = append(out, g)
	}
	if len(out) < 10 {
		t.Fatalf("only %d goldens of %s", len(out), typ)
	}
	return out
}

// scaleOffsets are where a block has F16 scales, e8m0Offsets where an exponent.
var (
	scaleOffsets = map[tensor.Type][]int{
		tensor.Q4_0: {0}, tensor.Q4_1: {0, 2}, tensor.Q5_0: {0}, tensor.Q5_1: {0, 2}, tensor.Q8_0: {0}, tensor.IQ4_NL: {0}, tensor.Q1_0: {0}, tensor.Q2_0: {0},
		tensor.Q2_K: {80, 82}, tensor.Q3_K: {108}, tensor.Q4_K: {0, 2}, tensor.Q5_K: {0, 2}, tensor.Q6_K: {208},
		tensor.TQ1_0: {52}, tensor.TQ2_0: {64}, tensor.IQ1_S: {0}, tensor.IQ2_XXS: {0}, tensor.IQ2_XS: {0}, tensor.IQ2_S: {0},
		tensor.IQ3_XXS: {0}, tensor.IQ3_S: {0}, tensor.IQ4_XS: {0},
	}
	e8m0Offsets = map[tensor.Type][]int{tensor.MXFP4: {0}}
)

// draw is number i of SplitMix64.
func draw(seed uint64, i int) uint64 {
	z := seed + uint64(i+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// anyBytes makes a number of weights' bytes without regard to what they say.
func anyBytes(seed uint64, n int) []byte {
	var out []byte
	for i := 0; len(out) < n; i++ {
		out = binary.LittleEndian.AppendUint64(out, draw(seed, i))
	}
	return out[:n:n]
}

// testWeights makes the rows of a golden's matrix.
func testWeights(typ tensor.Type, seed uint64, width, rows int) []byte {
	block, size := int(typ.BlockValues()), int(typ.BlockBytes())
	if block == 1 {
		var out []byte
		for _, v := range testFloats(seed, 1, width*rows, "plain") {
			switch typ {
			case tensor.F32:
				out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
			case tensor.BF16:
				out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(v)>>16))
			default:
				out = binary.LittleEndian.AppendUint16(out, quant.ToF16(v))
			}
		}
		return out
	}
	out := anyBytes(seed, rows*width/block*size)
	for b := out; len(b) > 0; b = b[size:] {
		for _, at := range scaleOffsets[typ] {
			h := binary.LittleEndian.Uint16(b[at:])
			binary.LittleEndian.PutUint16(b[at:], h&0x83ff|(5+h>>10%8)<<10)
		}
		for _, at := range e8m0Offsets[typ] {
			b[at] = 116 + b[at]%12
		}
		if typ == tensor.IQ1_M {
			b[55] = b[55]&0x8f | (1+b[55]>>6%2)<<4
		}
	}
	return out
}

// testFloats makes rows of activations, whose blocks of 32 have a character each.
func testFloats(seed uint64, rows, width int, profile string) []float32 {
	out := make([]float32, 0, rows*width)
	blocks := (width + 31) / 32
	for t := range rows {
		for j := range width {
			r, b := draw(seed, t*width+j), draw(seed^0x5DEECE66D, t*blocks+j/32)
			exponent := 118 + r>>40%10
			at := uint64(j % 32)
			zero := false
			if profile != "plain" {
				switch b % 8 {
				case 0:
					zero = true
				case 1:
					if at == b>>8%32 {
						exponent += 10
					}
				case 2:
					exponent -= 100
				case 3:
					exponent = r >> 40 % 3
				case 4:
					exponent += 20
				}
			}
			bits := uint32(r&0x807fffff | exponent<<23)
			if zero {
				bits = 0
			}
			if (profile == "special" || profile == "hostile") && at == b>>16%32 && b>>24%4 == 0 {
				bits = [4]uint32{0x7fc00000, 0x7f800000, 0xff800000, 0xffc00000}[b>>32%4]
			}
			out = append(out, math.Float32frombits(bits))
		}
	}
	return out
}

// testBatch brings a golden's activations to the kernel's format.
func testBatch(t testing.TB, k *Kernel, x []float32) *Batch {
	t.Helper()
	n := len(x) / k.Width()
	b, err := NewBatch(k.Activations(), k.Width(), n)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Reset(n); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := b.SetRow(i, x[i*k.Width():][:k.Width()]); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// testProduct is the product of a golden, in calls of at most step rows.
func testProduct(t testing.TB, g golden, step int) []float32 {
	t.Helper()
	typ, err := tensor.ParseType(g.Type)
	if err != nil {
		t.Fatal(err)
	}
	k, err := New(typ, g.Width, g.Rows, g.Repacked == 1)
	if err != nil {
		t.Fatal(err)
	}
	w := testWeights(typ, g.Seed, g.Width, g.Rows)
	if g.Profile == "hostile" {
		w = anyBytes(g.Seed, len(w))
	}
	b := testBatch(t, k, testFloats(g.Seed+1, g.Columns, g.Width, g.Profile))
	dst := make([]float32, g.Columns*g.Rows)
	var s Scratch
	for r := 0; r < g.Rows; r += step {
		n := min(step, g.Rows-r)
		if err := k.Mul(dst[r:], g.Rows, w[r*k.RowBytes():][:n*k.RowBytes()], b, &s); err != nil {
			t.Fatal(err)
		}
	}
	return dst
}

// same compares results bit by bit.
func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w {
			t.Errorf("%s: result %d is %08x, want %08x", what, i, g, w)
			return
		}
	}
}

// checkGolden compares a product with ggml's.
func checkGolden(t *testing.T, g golden, dst []float32) {
	t.Helper()
	raw := make([]byte, 0, 4*len(dst))
	for _, v := range dst {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) == g.SHA256 {
		return
	}
	show := func(v []float32) string {
		var s []string
		for _, x := range v[:min(len(v), 4)] {
			s = append(s, fmt.Sprintf("%08x", math.Float32bits(x)))
		}
		return strings.Join(s, " ")
	}
	t.Errorf("%+v:\nfirst column %s\nlast column %s", g, show(dst[:g.Rows]), show(dst[len(dst)-g.Rows:]))
}

// TestGolden compares products of all types with ggml's, to the last bit.
func TestGolden(t *testing.T) {
	for typ := range families {
		if families[typ] == nil {
			continue
		}
		name := tensor.Type(typ).String()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, g := range goldens(t, name) {
				checkGolden(t, g, testProduct(t, g, g.Rows))
				// However a matrix is cut.
				if g.Columns < 10 {
					checkGolden(t, g, testProduct(t, g, 3))
				}
			}
		})
	}
}

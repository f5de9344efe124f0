package quant

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/tensor"
)

const goldenDir = "../../testdata/ggml"

type goldenIndex struct {
	Rows, Cols int
	Types      map[string]struct {
		ID           int32
		Block, Bytes int64
		NeedsImatrix bool `json:"needs_imatrix"`
	}
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readFloats(t testing.TB, name string) []float32 {
	t.Helper()
	b := readFile(t, name)
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}

func readIndex(t testing.TB) goldenIndex {
	t.Helper()
	var x goldenIndex
	if err := json.Unmarshal(readFile(t, filepath.Join(goldenDir, "index.json")), &x); err != nil {
		t.Fatal(err)
	}
	return x
}

// encodeRows runs the type's encoder row by row.
func encodeRows(t testing.TB, typ tensor.Type, src []float32, cols int, weights []float32) []byte {
	t.Helper()
	c, err := For(typ)
	if err != nil {
		t.Fatal(err)
	}
	rb, err := tensor.RowBytes(typ, int64(cols))
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, len(src)/cols*int(rb))
	for r := 0; r*cols < len(src); r++ {
		c.EncodeRow(out[r*int(rb):(r+1)*int(rb)], src[r*cols:(r+1)*cols], weights)
	}
	return out
}

func firstDiff(a, b []byte) int {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// TestGolden compares every row that libggml made with the encoder's, and ties
// the type table to ggml's ids and sizes.
func TestGolden(t *testing.T) {
	index := readIndex(t)
	input := readFloats(t, filepath.Join(goldenDir, "input.f32"))
	imatrix := readFloats(t, filepath.Join(goldenDir, "imatrix.f32"))
	if len(input) != index.Rows*index.Cols || len(imatrix) != index.Cols || len(index.Types) != 51 {
		t.Fatalf("golden index: %d values, %d weights, %d entries", len(input), len(imatrix), len(index.Types))
	}
	for name, g := range index.Types {
		t.Run(name, func(t *testing.T) {
			base, weighted := strings.CutSuffix(name, ".im")
			typ, err := tensor.ParseType(base)
			if err != nil {
				t.Fatal(err)
			}
			if id, ok := typ.GGML(); !ok || id != g.ID || typ.BlockValues() != g.Block || typ.BlockBytes() != g.Bytes {
				t.Fatalf("%s: id %d block %d bytes %d, ggml has %+v", typ, id, typ.BlockValues(), typ.BlockBytes(), g)
			}
			if NeedsWeights(typ) != g.NeedsImatrix {
				t.Errorf("NeedsWeights(%s) = %t", typ, NeedsWeights(typ))
			}
			var w []float32
			if weighted {
				w = imatrix
			}
			want := readFile(t, filepath.Join(goldenDir, name+".bin"))
			got := encodeRows(t, typ, input, index.Cols, w)
			if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, want %d; first difference at %d", len(got), len(want), firstDiff(got, want))
			}
		})
	}
}

// TestPublishedHashes quantizes the generated input of the ggml notes, 64 rows
// of 1024 with one row of weights, and compares 64 bits of each SHA-256.
func TestPublishedHashes(t *testing.T) {
	x, w := lcgInput()
	if x[0] != 6.7943984e-05 || x[1] != 3.6250225e-05 || x[2] != -0.76277131 {
		t.Fatalf("generator: %v", x[:3])
	}
	for _, tc := range []struct {
		typ             tensor.Type
		plain, weighted string
	}{
		{tensor.Q4_0, "fc9a10905bd8c611", "5a2640530987c296"},
		{tensor.Q4_1, "2ba8747a737c96cc", "e43f8fb223cc49fc"},
		{tensor.Q5_0, "318484d88ee5d9f3", "9c72605d4d00c5fb"},
		{tensor.Q5_1, "bfac978739b88e10", "1dfdb1928b815d36"},
		{tensor.Q8_0, "35e0f6a5134f58a3", "35e0f6a5134f58a3"},
		{tensor.Q2_K, "72bafb5abc03673f", "29d1ecf5b7fd4d26"},
		{tensor.Q3_K, "4cc9491aeaec7791", "445ae11c38057eb7"},
		{tensor.Q4_K, "e5ed7d9df067af36", "0f4e6efaf1e09a6e"},
		{tensor.Q5_K, "cc8d7d6a3304a7eb", "498b204b79a5e114"},
		{tensor.Q6_K, "1f15040eadec862e", "bcee7c55c70ccf50"},
		{tensor.IQ4_NL, "ada65289d5c2bcb1", "95622a6ca0b4ecd2"},
		{tensor.IQ4_XS, "e45a9a82aafadc37", "3bde922dd8160033"},
		{tensor.TQ1_0, "8c17b336c6f45734", "8c17b336c6f45734"},
		{tensor.TQ2_0, "af77aabef450b09a", "af77aabef450b09a"},
		{tensor.MXFP4, "a01ed1a20df4272d", "a01ed1a20df4272d"},
		{tensor.NVFP4, "14db76a79d7c085d", "14db76a79d7c085d"},
		{tensor.Q1_0, "470cbee7bcf771d9", "470cbee7bcf771d9"},
		{tensor.Q2_0, "8f66395607c72723", "8f66395607c72723"},
		{tensor.F16, "b041c368435d0034", "b041c368435d0034"},
		{tensor.BF16, "daf8b5583034a176", "daf8b5583034a176"},
		{tensor.F32, "adf58f17c8e4e36b", "adf58f17c8e4e36b"},
	} {
		t.Run(tc.typ.String(), func(t *testing.T) {
			if got := hash16(encodeRows(t, tc.typ, x, 1024, nil)); got != tc.plain {
				t.Errorf("plain: %s, want %s", got, tc.plain)
			}
			if got := hash16(encodeRows(t, tc.typ, x, 1024, w)); got != tc.weighted {
				t.Errorf("weighted: %s, want %s", got, tc.weighted)
			}
		})
	}
	if got := hash16(encodeRows(t, tensor.F32, w, 1024, nil)); got != "3485069580a8de6f" {
		t.Errorf("weights: %s", got)
	}
}

func hash16(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:8])
}

// lcgInput is 64 rows of 1024 values, many small and few large, and 1024
// weights.
func lcgInput() (x, w []float32) {
	s := uint32(12345)
	next := func() uint32 {
		s = s*1664525 + 1013904223
		return s
	}
	x = make([]float32, 64*1024)
	for i := range x {
		v := float32(int32(next())>>8) * (1.0 / (1 << 23))
		x[i] = float32(v*v) * v
	}
	w = make([]float32, 1024)
	for i := range w {
		w[i] = float32(next()>>8) * (1.0 / (1 << 24))
	}
	return x, w
}

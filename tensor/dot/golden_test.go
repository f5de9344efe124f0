package dot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/tensor"
	"quern/tensor/quant"
)

const goldenDir = "../../testdata/ggml"

// goldens are what ggml's kernels give, see the README there.
type goldens struct {
	cols  int
	input []float32
	types map[string]tensor.Type
	Rows  int
	// Activations is how many of the last rows of the input are multiplied.
	Activations int
	Packed      map[string][]string
	Dots        map[string]struct {
		Activations string
		Sums        []float32
	}
}

func readGoldens(t *testing.T) (g goldens) {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(goldenDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var index struct {
		Cols  int
		Types map[string]struct{ ID int32 }
	}
	if err := json.Unmarshal(read("index.json"), &index); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(read("dots.json"), &g); err != nil {
		t.Fatal(err)
	}
	g.cols, g.types = index.Cols, map[string]tensor.Type{}
	for name, row := range index.Types {
		typ, ok := tensor.FromGGML(row.ID)
		if !ok {
			t.Fatalf("%s: no type %d", name, row.ID)
		}
		g.types[name] = typ
	}
	b := read("input.f32")
	for i := 0; i < len(b); i += 4 {
		g.input = append(g.input, math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
	}
	return g
}

func (g *goldens) batch(t *testing.T, f Format) *Batch {
	t.Helper()
	var x [][]float32
	for a := range g.Activations {
		at := len(g.input) + (a-g.Activations)*g.cols
		x = append(x, g.input[at:at+g.cols])
	}
	return batchOf(t, f, g.cols, x...)
}

// TestGoldenActivations: codes and scales are ggml's. Of Q8_K, whose scale has
// a sign there, both together.
func TestGoldenActivations(t *testing.T) {
	g := readGoldens(t)
	for kind, want := range g.Packed {
		f, block, codes := Q8_0, 34, 2
		switch kind {
		case "q8_1":
			block, codes = 36, 4
		case "q8_K":
			f, block, codes = Q8_K, 292, 4
		}
		b := g.batch(t, f)
		for a := range g.Activations {
			row, err := hex.DecodeString(want[a])
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range b.unpacked(a) {
				at := row[i/f.block()*block:]
				d := float64(quant.FromF16(binary.LittleEndian.Uint16(at)))
				if f == Q8_K {
					d = float64(math.Float32frombits(binary.LittleEndian.Uint32(at)))
				}
				if want := d * float64(int8(at[codes+i%f.block()])); got != want {
					t.Fatalf("%s, row %d, value %d: %v, ggml has %v", kind, a, i, got, want)
				}
			}
		}
	}
}

// TestGoldenDots compares with ggml's kernels. Both are right to a few roundings
// of the greatest partial sums; ggml keeps the sums of Q8_1 in F16.
func TestGoldenDots(t *testing.T) {
	g := readGoldens(t)
	for name, golden := range g.Dots {
		typ := g.types[name]
		f := FormatOf(typ)
		if f.String() != strings.ToUpper(strings.Replace(golden.Activations, "q8_1", "q8_0", 1)) {
			t.Errorf("%s: %s activations, ggml has %s", name, f, golden.Activations)
			continue
		}
		k := kernel(t, typ, g.cols, f)
		w, err := os.ReadFile(filepath.Join(goldenDir, name+".bin"))
		if err != nil {
			t.Fatal(err)
		}
		w = w[:g.Rows*k.RowBytes()]
		b := g.batch(t, f)
		got := mul(t, k, g.Rows, w, b, new(Scratch))
		values := make([]float32, g.cols)
		decoder, err := quant.DecoderFor(typ)
		if err != nil {
			t.Fatal(err)
		}
		for r := range g.Rows {
			decoder.Decode(values, w[r*k.RowBytes():(r+1)*k.RowBytes()])
			for a := range g.Activations {
				var within float64
				x := b.unpacked(a)
				for i := 0; i < g.cols; i += 32 {
					var most, total, sum float64
					for j := i; j < i+32; j++ {
						most = math.Max(most, math.Abs(float64(values[j])))
						total += math.Abs(x[j])
						sum += x[j]
					}
					within += float64(most*total) / (1 << 20)
					if golden.Activations == "q8_1" {
						within += float64(most*math.Abs(sum)) / (1 << 11)
					}
				}
				if v, want := got[a*g.Rows+r], golden.Sums[r*g.Activations+a]; !(math.Abs(float64(v)-float64(want)) <= within) {
					t.Errorf("%s, row %d, activations %d: %v, ggml has %v, more than %v apart", name, r, a, v, want, within)
				}
			}
		}
	}
}

// TestDigest holds the results of all types to one digest, on every machine.
func TestDigest(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	number := func() float32 { return float32(int32(rng.Uint32())) / (1 << 28) }
	h := sha256.New()
	for _, typ := range append(blockTypes(), tensor.F32, tensor.F16, tensor.BF16) {
		for _, width := range []int{256, 2304} {
			for _, f := range []Format{FormatOf(typ), F32} {
				k := kernel(t, typ, width, f)
				w := make([]byte, 5*k.RowBytes())
				for i := range w {
					// No infinite F16 or E8M0 scales.
					w[i] = byte(rng.Uint32()) & 0x9f
				}
				var x [][]float32
				for range 11 {
					row := make([]float32, width)
					for i := range row {
						row[i] = number()
					}
					x = append(x, row)
				}
				if err := binary.Write(h, binary.LittleEndian, mul(t, k, 5, w, batchOf(t, f, width, x...), new(Scratch))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	const want = "19d0ba439952a4c97c8cd166b9a2ddff7e106ce347df2b0107e8a5d52da403aa"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

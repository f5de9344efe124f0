package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"quern/tensor"
)

type laneEncoder struct {
	typ    tensor.Type
	encode func(dst []byte, src, weights []float32, fast bool)
}

// laneEncoders are the encoders with a search in lanes. In a noasm build, or
// with QUERN_NOASM=1, both forms are the scalar one.
var laneEncoders = []laneEncoder{
	{tensor.Q2_K, encodeQ2_K},
	{tensor.Q3_K, encodeQ3_K},
	{tensor.Q4_K, encodeQ4_K},
	{tensor.Q5_K, encodeQ5_K},
	{tensor.Q6_K, encodeQ6_K},
	{tensor.IQ4_NL, encodeIQ4_NL},
	{tensor.Q4_0, fitted(fittedCodes{-8, 7}, encodeQ4_0Scalar)},
	{tensor.Q4_1, fitted(fittedCodes{0, 15}, func(dst []byte, src []float32) { q4_1{}.EncodeRow(dst, src, nil) })},
	{tensor.Q5_0, fitted(fittedCodes{-16, 15}, func(dst []byte, src []float32) { q5_0{}.EncodeRow(dst, src, nil) })},
	{tensor.Q5_1, fitted(fittedCodes{0, 31}, func(dst []byte, src []float32) { q5_1{}.EncodeRow(dst, src, nil) })},
	{tensor.IQ4_XS, encodeIQ4_XS},
}

// fitted is a type's encoder whose search has weights only.
func fitted(f fittedCodes, plain func(dst []byte, src []float32)) func(dst []byte, src, weights []float32, fast bool) {
	return func(dst []byte, src, weights []float32, fast bool) {
		if weights == nil {
			plain(dst, src)
			return
		}
		f.encode(dst, src, weights, fast)
	}
}

// compareLanes encodes both ways over different old bytes.
func compareLanes(t *testing.T, x, w []float32) {
	t.Helper()
	compareEncoders(t, laneEncoders, x, w)
}

func compareEncoders(t *testing.T, encoders []laneEncoder, x, w []float32) {
	t.Helper()
	for _, e := range encoders {
		n, err := tensor.RowBytes(e.typ, int64(len(x)))
		if err != nil {
			t.Fatal(err)
		}
		got, want := bytes.Repeat([]byte{0x5a}, int(n)), bytes.Repeat([]byte{0xa5}, int(n))
		e.encode(got, x, w, useSIMD)
		e.encode(want, x, w, false)
		if !bytes.Equal(got, want) {
			i := firstDiff(got, want)
			t.Fatalf("%s: byte %d is %#x, scalar %#x; values %x, weights %x", e.typ, i, got[i], want[i], x, w)
		}
	}
}

// laneRow gives superblocks that are hard in one of several ways.
func laneRow(rng *rand.Rand, blocks int) []float32 {
	var x []float32
	for range blocks {
		b := kernelInput(rng, 256)
		switch rng.IntN(8) {
		case 0: // groups of very different size
			for i := range b {
				b[i] = float32(math.Ldexp(rng.NormFloat64(), (i/16*7)%40-30))
			}
		case 1: // one outlier
			for i := range b {
				b[i] = float32(rng.NormFloat64()) * 0.02
			}
			b[rng.IntN(256)] = edgeFloats[rng.IntN(len(edgeFloats))]
		case 2: // groups without a range, some of one sign
			for i := range b {
				b[i] = float32(i/32%5-2) * 0.25
			}
		case 3: // far from zero: the range is a few last places
			base := float32(rng.NormFloat64())
			for i := range b {
				b[i] = base + float32(rng.IntN(5))*1e-7*base
			}
		case 4: // few levels, so that candidates tie
			for i := range b {
				b[i] = float32(rng.IntN(4)-rng.IntN(2)) * 0.125
			}
		}
		x = append(x, b...)
	}
	return x
}

// laneWeights gives weights, or none.
func laneWeights(rng *rand.Rand, n int) []float32 {
	w := make([]float32, n)
	switch rng.IntN(8) {
	case 0, 1, 2:
		return nil
	case 3:
		for i := range w {
			w[i] = rng.Float32()
		}
	case 4: // any magnitude
		for i, v := range kernelInput(rng, n) {
			w[i] = abs32(v)
			if v != v {
				// Of two NaNs with different payloads machines keep either, in
				// scalar code too.
				w[i] = float32(math.NaN())
			}
		}
	case 5: // holes, single values and whole groups
		for i := range w {
			if rng.IntN(4) > 0 && i/32%3 != 1 {
				w[i] = rng.Float32()
			}
		}
	case 6:
		for i := range w {
			w[i] = float32(math.Ldexp(rng.Float64(), rng.IntN(60)-40))
		}
	case 7:
		for i := range w {
			w[i] = 1
		}
	}
	return w
}

func TestLanesEqualScalar(t *testing.T) {
	for _, x := range edgeBlocks() {
		for _, w := range edgeWeights() {
			compareLanes(t, x, w)
		}
	}
	rng := rand.New(rand.NewPCG(21, 22))
	for range 1500 {
		n := 1 + rng.IntN(3)
		compareLanes(t, laneRow(rng, n), laneWeights(rng, 256*n))
	}
}

// TestLanesGolden compares both forms with libggml's rows.
func TestLanesGolden(t *testing.T) {
	cols := readIndex(t).Cols
	input := readFloats(t, filepath.Join(goldenDir, "input.f32"))
	for _, e := range slices.Concat(laneEncoders, gridEncoders) {
		for name, w := range map[string][]float32{"": nil, ".im": readFloats(t, filepath.Join(goldenDir, "imatrix.f32"))} {
			base := strings.TrimSuffix(strings.ToLower(e.typ.String()), "_k") // the files say q4_K
			if base != strings.ToLower(e.typ.String()) {
				base += "_K"
			}
			if w == nil && NeedsWeights(e.typ) {
				continue
			}
			want := readFile(t, filepath.Join(goldenDir, base+name+".bin"))
			rb := len(want) / (len(input) / cols)
			for _, fast := range []bool{false, useSIMD} {
				for r := 0; r*cols < len(input); r++ {
					got := make([]byte, rb)
					e.encode(got, input[r*cols:(r+1)*cols], w, fast)
					if !bytes.Equal(got, want[r*rb:(r+1)*rb]) {
						t.Fatalf("%s%s, fast %t: row %d differs", e.typ, name, fast, r)
					}
				}
			}
		}
	}
}

func FuzzLanesEqualScalar(f *testing.F) {
	rng := rand.New(rand.NewPCG(23, 24))
	for range 20 {
		f.Add(bytesOfFloats(laneRow(rng, 1)), bytesOfFloats(laneWeights(rng, 256)))
		f.Add(bytesOfFloats(gridRow(rng, 1)), bytesOfFloats(laneWeights(rng, 256)))
	}
	f.Fuzz(func(t *testing.T, values, weights []byte) {
		x, w := make([]float32, 256), make([]float32, 256)
		(f32{}).Decode(x[:min(len(values)/4, 256)], values)
		(f32{}).Decode(w[:min(len(weights)/4, 256)], weights)
		for i, v := range w {
			if w[i] = abs32(v); !(w[i] <= maxFloat) {
				w[i] = 0
			}
		}
		for _, w := range [][]float32{nil, w} {
			compareLanes(t, x, w)
			compareEncoders(t, gridEncoders, x, w)
		}
	})
}

// BenchmarkLanes runs both forms in turns, so that a busy machine slows both,
// and reports how many times faster the lanes are.
func BenchmarkLanes(b *testing.B) {
	x := benchFloats(1 << 16) // more than a branch predictor learns by heart
	w := make([]float32, len(x))
	for i := range w {
		w[i] = 1 + float32(i%7)
	}
	for _, e := range slices.Concat(laneEncoders, gridEncoders) {
		n, err := tensor.RowBytes(e.typ, int64(len(x)))
		if err != nil {
			b.Fatal(err)
		}
		dst := make([]byte, n)
		for _, weights := range [][]float32{nil, w} {
			name := e.typ.String() + "/plain"
			if weights != nil {
				name = e.typ.String() + "/weighted"
			} else if e.typ < tensor.Q8_0 {
				continue // Q4_0 to Q5_1 search with weights only
			}
			b.Run(name, func(b *testing.B) {
				b.SetBytes(int64(4 * len(x)))
				var scalar time.Duration
				for b.Loop() {
					e.encode(dst, x, weights, useSIMD)
					b.StopTimer()
					start := time.Now()
					e.encode(dst, x, weights, false)
					scalar += time.Since(start)
					b.StartTimer()
				}
				b.ReportMetric(float64(scalar)/float64(b.Elapsed()), "x-scalar")
			})
		}
	}
}

// TestLanesBelowNormal: where products of values and weights are among the
// smallest numbers, rounding is coarse, signs of sums turn and comparisons tie.
// Such superblocks came out differently once.
func TestLanesBelowNormal(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	for range 400 {
		small, tiny := math.Ldexp(1, -20-rng.IntN(8)), math.Ldexp(1, -118-rng.IntN(32))
		x, w := make([]float32, 256), make([]float32, 256)
		for i := range x {
			x[i] = float32(rng.NormFloat64() * small)
			if rng.IntN(2) > 0 { // as widened from F16
				x[i] = float32(math.Round(float64(x[i])*(1<<24)) / (1 << 24))
			}
			w[i] = float32(rng.Float64() * tiny)
		}
		compareLanes(t, x, w)
		compareEncoders(t, gridEncoders, x, w)
	}
}

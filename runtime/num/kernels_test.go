package num

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The kernels that a build selects must equal the scalar functions in every
// bit. In a noasm build, or with QUERN_NOASM=1, both are the same.

// vector gives n values; those of kind 3 hold zeros, infinities and the like.
func vector(rng *rand.Rand, n, kind int) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch kind {
		case 0:
			x[i] = rng.Float32()*2 - 1
		case 1:
			x[i] = float32(math.Ldexp(rng.Float64()*2-1, rng.IntN(60)-30))
		case 2:
			x[i] = math.Float32frombits(rng.Uint32() &^ 0x40000000)
		case 3:
			x[i] = []float32{0, float32(math.Copysign(0, -1)), 1, -1, 1e-45, 3e38, -3e38, float32(math.Inf(1)), float32(math.NaN())}[rng.IntN(9)]
		}
	}
	return x
}

func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func compare(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("%s: value %d is %v (%#08x), scalar code gives %v (%#08x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

func TestDotsEqualScalar(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range 4000 {
		rows, cols, n := 1+rng.IntN(9), 1+rng.IntN(5), rng.IntN(70)
		ws, xs, ld := n+rng.IntN(4), n+rng.IntN(4), rows+rng.IntN(3)
		w := Matrix{vector(rng, rows*ws+1, i%4), rows, ws}
		x := Matrix{vector(rng, cols*xs+1, i%4), cols, xs}
		got, want := make([]float32, cols*ld), make([]float32, cols*ld)
		for j := range got {
			got[j], want[j] = 9, 9
		}
		Dots(got, ld, w, x, n)
		dotsScalar(want, ld, w, x, n)
		compare(t, "Dots", got, want)
	}
}

func TestDotHasTheWrittenOrder(t *testing.T) {
	// 2^24 in lane 0 swallows ones that meet it singly; the ones of lane 4 join
	// it as 3, those of lane 2 after that.
	a := make([]float32, 24)
	a[0] = 1 << 24
	for _, i := range []int{4, 12, 20, 2, 10} {
		a[i] = 1
	}
	b := slices.Repeat([]float32{1}, 24)
	if got := Dot(a, b); got != 1<<24+4+2 {
		t.Errorf("got %.0f, want %d", got, 1<<24+6)
	}
	if got := Sum(a); got != 1<<24+6 {
		t.Errorf("Sum gives %.0f", got)
	}
}

func TestWeightedSumEqualsScalar(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for i := range 2000 {
		rows, n := rng.IntN(9), rng.IntN(100)
		stride := n + rng.IntN(4)
		p, v := vector(rng, rows, i%4), Matrix{vector(rng, rows*stride+1, i%4), rows, stride}
		got, want := vector(rng, n, 3), make([]float32, n)
		WeightedSum(got, p, v)
		clear(want)
		addWeightedScalar(want, p, v)
		compare(t, "WeightedSum", got, want)
		// The same by single additions.
		clear(got)
		for r := range rows {
			AddScaled(got, v.Row(r, n), p[r])
		}
		compare(t, "AddScaled", got, want)
	}
}

// halves gives n values as F16, some of them infinite or no numbers.
func halves(rng *rand.Rand, n int) []byte {
	b := make([]byte, 2*n)
	for i := range b {
		b[i] = byte(rng.Uint32())
		if i%2 == 1 && rng.IntN(30) > 0 {
			b[i] &= 0xbb // finite
		}
	}
	return b
}

func TestHalvesEqualScalar(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	for i := range 3000 {
		rows, cols, n := 1+rng.IntN(9), 1+rng.IntN(5), rng.IntN(80)
		if i%2 == 0 {
			n = n / 8 * 8
		}
		ws, xs, ld := n+rng.IntN(4), n+rng.IntN(4), rows+rng.IntN(3)
		w := HalfMatrix{halves(rng, rows*ws+1), rows, ws}
		x := Matrix{vector(rng, cols*xs+1, i%4), cols, xs}
		got, want := make([]float32, cols*ld), make([]float32, cols*ld)
		DotsHalf(got, ld, w, x, n)
		dotsHalfScalar(want, ld, w, x, n)
		compare(t, "DotsHalf", got, want)
		// What Dots gives for the same values.
		floats := Matrix{make([]float32, rows*ws), rows, ws}
		for r := range rows {
			for j := range n {
				floats.Data[r*ws+j] = w.value(r, j)
			}
		}
		dotsScalar(got, ld, floats, x, n)
		compare(t, "Dots of halves", got, want)

		p := vector(rng, rows, i%4)
		sum, wantSum := vector(rng, n, i%3), make([]float32, n)
		copy(wantSum, sum)
		other := slices.Clone(sum)
		AddWeightedHalf(sum, p, w)
		addWeightedHalfScalar(wantSum, p, w)
		compare(t, "AddWeightedHalf", sum, wantSum)
		AddWeighted(other, p, floats)
		compare(t, "AddWeighted of halves", other, wantSum)
	}
}

// TestPlainEqualScalar compares the elementwise functions, and the lanes of
// greatest values and sums.
func TestPlainEqualScalar(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for i := range 4000 {
		n := 1 + rng.IntN(40)
		x, y, w := vector(rng, n, i%4), vector(rng, n, i/4%4), vector(rng, n, i/16%4)
		a := vector(rng, 1, i%4)[0]
		for _, f := range []struct {
			name         string
			fast, scalar func(dst []float32)
		}{
			{"Scale", func(d []float32) { Scale(d, a) }, func(d []float32) { scaleScalar(d, a) }},
			{"Add", func(d []float32) { Add(d, y) }, func(d []float32) { addScalar(d, y) }},
			{"SiLUMul", func(d []float32) { SiLUMul(d, y) }, func(d []float32) { siluMulScalar(d, y) }},
			{"GELUMul", func(d []float32) { GELUMul(d, y) }, func(d []float32) { geluMulScalar(d, y) }},
			{"scaled and multiplied", func(d []float32) { k := scaleMul(d, d, w, a); scaleMulScalar(d[k:], d[k:], w[k:], a) }, func(d []float32) { scaleMulScalar(d, d, w, a) }},
			{"Max", func(d []float32) { d[0] = Max(d) }, func(d []float32) {
				m := d[0]
				for _, v := range d {
					if v > m {
						m = v
					}
				}
				if d[0] = m; m == 0 { // either zero will do
					d[0] = Max(d)
				}
			}},
			{"Sum", func(d []float32) { d[0] = Sum(d) }, func(d []float32) {
				var l [8]float32
				sumLanesScalar(&l, d)
				d[0] = tree(&l)
			}},
		} {
			got, want := slices.Clone(x), slices.Clone(x)
			f.fast(got)
			f.scalar(want)
			compare(t, f.name, got, want)
		}
	}
}

func TestExpMinusEqualsScalar(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for i := range 4000 {
		x := vector(rng, rng.IntN(40), i%4)
		if i%4 == 0 {
			for j := range x {
				x[j] = float32(x[j] * 60)
			}
		}
		m := []float32{0, 1, -50, 103}[rng.IntN(4)]
		want := slices.Clone(x)
		expMinusScalar(want, m)
		ExpMinus(x, m)
		compare(t, "ExpMinus", x, want)
	}
}

func TestSoftmax(t *testing.T) {
	x := []float32{1, 2, 3, float32(math.Inf(-1)), 1000}
	Softmax(x)
	compare(t, "a far maximum", x, []float32{0, 0, 0, 0, 1})
	x = []float32{0, 0, 0, 0}
	Softmax(x)
	compare(t, "equal values", x, []float32{0.25, 0.25, 0.25, 0.25})
	Softmax(nil)
}

func TestRMSNorm(t *testing.T) {
	x := []float32{3, -4, 0, 0}
	got := make([]float32, 4)
	RMSNorm(got, x, nil, 0)
	compare(t, "no weight", got, []float32{1.2, -1.6, 0, 0})
	RMSNorm(got, x, []float32{2, 0.5, 1, 1}, 0)
	compare(t, "weight", got, []float32{2.4, -0.8, 0, 0})
	RMSNorm(x, x, nil, 1e6)
	if x[0] >= 0.01 || x[0] <= 0 {
		t.Errorf("eps has no weight: %v", x)
	}
}

// TestBitsAreThoseOfEveryMachine holds a digest of many results. It is the same
// on amd64, with GOAMD64=v3, without assembly, and on arm64.
func TestBitsAreThoseOfEveryMachine(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	h := sha256.New()
	put := func(x ...float32) {
		for _, v := range x {
			if v != v {
				v = 0
			}
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
	}
	put64 := func(x float64) { h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))) }
	for i := range 3000 {
		x := vector(rng, 41, i%3)
		put(Dot(x[:20], x[20:40]), Exp(x[0]), Sigmoid(x[1]), SiLU(x[2]), GELU(x[3]), Tanh(x[4]), Sqrt(x[5]), Sum(x))
		v := float64(x[6]) * float64(x[7])
		put64(Exp64(float64(x[8])))
		if v > 0 {
			put64(Log64(v))
			put64(Pow64(v, 0.3))
		}
		if v < 1e12 && v > -1e12 {
			s, c := SinCos64(v)
			put64(s)
			put64(c)
		}
		if i%3 == 0 {
			RMSNorm(x, x, nil, 1e-5)
			put(x...)
			Softmax(x)
			put(x...)
		}
	}
	const want = "218e27ef8034433f7e61684906db7da605138ee129667f487be57300df9ad083"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// BenchmarkDots counts a product and its addition as a byte.
func BenchmarkDots(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	const n, rows, cols = 1024, 64, 16
	w, x := Matrix{vector(rng, n*rows, 0), rows, n}, Matrix{vector(rng, n*cols, 0), cols, n}
	dst := make([]float32, rows*cols)
	b.SetBytes(n * rows * cols)
	for b.Loop() {
		Dots(dst, rows, w, x, n)
	}
}

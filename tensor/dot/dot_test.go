package dot

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"quern/tensor"
	"quern/tensor/quant"
)

// blockTypes are the types with int8 kernels.
func blockTypes() (out []tensor.Type) {
	for _, t := range tensor.Types() {
		if FormatOf(t) != F32 {
			out = append(out, t)
		}
	}
	return out
}

// widths are row lengths of real models and around the kernels' steps; those
// that do not fit a type are left out.
var widths = []int{32, 64, 128, 256, 288, 512, 576, 768, 2048, 2304, 2880, 4096}

func gauss(rng *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * scale)
	}
	return x
}

// weights gives rows of a type: encoded values, or any bytes whose values are
// finite.
func weights(t testing.TB, rng *rand.Rand, typ tensor.Type, rows, width int, any bool) []byte {
	t.Helper()
	c, err := quant.For(typ)
	if err != nil {
		t.Fatal(err)
	}
	rb, err := tensor.RowBytes(typ, int64(width))
	if err != nil {
		t.Fatal(err)
	}
	w := make([]byte, rows*int(rb))
	// Slow encoders need not see every row: repeats of a few will do.
	for r := range min(rows, 3) {
		c.EncodeRow(w[r*int(rb):(r+1)*int(rb)], gauss(rng, width, 0.05), nil)
	}
	for r := 3; r < rows; r++ {
		copy(w[r*int(rb):(r+1)*int(rb)], w[r%3*int(rb):])
	}
	if !any {
		return w
	}
	block, values := int(typ.BlockBytes()), make([]float32, typ.BlockValues())
	for i := 0; i < len(w); i += block {
		b := w[i : i+block]
		for again := true; again; {
			for j := range b {
				b[j] = byte(rng.Uint32())
			}
			c.Decode(values, b)
			again = false
			for _, v := range values {
				if !(v > -1e30 && v < 1e30) {
					again = true
				}
			}
		}
	}
	return w
}

// batchOf packs rows.
func batchOf(t testing.TB, f Format, width int, x ...[]float32) *Batch {
	t.Helper()
	b, err := NewBatch(f, width, len(x))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Reset(len(x)); err != nil {
		t.Fatal(err)
	}
	for i, r := range x {
		if err := b.SetRow(i, r); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// unpacked gives activation row t as the numbers it stands for.
func (b *Batch) unpacked(t int) []float64 {
	out := make([]float64, b.width)
	if b.format == F32 {
		for i, v := range b.floats[t*b.width : (t+1)*b.width] {
			out[i] = float64(v)
		}
		return out
	}
	group, lane, apart := t/8, t%8, 8
	if group == b.groups {
		apart = 1
	}
	for i := range out {
		u := i / b.format.block()
		code := b.codes[group*8*b.width+i/4*4*apart+4*lane+i%4]
		out[i] = float64(code) * float64(b.scales[group*8*b.units+u*apart+lane])
	}
	return out
}

func mul(t testing.TB, k *Kernel, rows int, w []byte, b *Batch, s *Scratch) []float32 {
	t.Helper()
	dst := make([]float32, rows*b.Rows())
	if err := k.Mul(dst, rows, w, b, s); err != nil {
		t.Fatal(err)
	}
	return dst
}

func kernel(t testing.TB, typ tensor.Type, width int, f Format) *Kernel {
	t.Helper()
	k, err := New(typ, width, f)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sameBits(a, b []float32) error {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return fmt.Errorf("place %d: %v (%#x), want %v (%#x)", i, a[i], math.Float32bits(a[i]), b[i], math.Float32bits(b[i]))
		}
	}
	return nil
}

// TestProducts compares every type with sums in float64 of what package quant
// decodes. Nothing but the roundings of the written order may differ: one
// rounding of half a unit in the last place for each of the accumulator's
// steps, and a few for each term and decoded weight.
func TestProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, typ := range tensor.Types() {
		decoder, err := quant.DecoderFor(typ)
		if err != nil {
			continue
		}
		formats := []Format{F32}
		if f := FormatOf(typ); f != F32 {
			formats = append(formats, f)
		}
		for _, width := range widths {
			if width%int(typ.BlockValues()) != 0 {
				continue
			}
			for _, f := range formats {
				for _, any := range []bool{false, true} {
					if _, err := quant.For(typ); err != nil || any && !typ.IsBlock() {
						continue
					}
					const rows = 11
					w := weights(t, rng, typ, rows, width, any)
					x := [][]float32{gauss(rng, width, 1), gauss(rng, width, 100), gauss(rng, width, 0.01)}
					b := batchOf(t, f, width, x...)
					k := kernel(t, typ, width, f)
					got := mul(t, k, rows, w, b, new(Scratch))
					values := make([]float32, width)
					for r := range rows {
						decoder.Decode(values, w[r*k.RowBytes():(r+1)*k.RowBytes()])
						for tok := range x {
							checkSum(t, fmt.Sprintf("%s x %s, width %d, row %d, token %d", typ, f, width, r, tok), got[tok*rows+r], values, b.unpacked(tok))
						}
					}
				}
			}
		}
	}
}

func checkSum(t *testing.T, what string, got float32, w []float32, x []float64) {
	t.Helper()
	var sum, bound float64
	for i := 0; i < len(w); i += 256 {
		// A value with a minimum may be the difference of greater numbers, but
		// hardly greater than all of its neighbours.
		var most float64
		end := min(i+256, len(w))
		for _, v := range w[i:end] {
			most = math.Max(most, 2*math.Abs(float64(v)))
		}
		for j := i; j < end; j++ {
			sum += float64(float64(w[j]) * x[j])
			bound += float64(most * math.Abs(x[j]))
		}
	}
	steps := float64(len(w)/32 + 8)
	if diff := math.Abs(float64(got) - sum); !(diff <= float64(bound*steps)/(1<<24)) {
		t.Fatalf("%s: %v, want %v within %v", what, got, sum, bound*steps/(1<<24))
	}
}

// TestActivations: codes are within half a step of what they stand for.
func TestActivations(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, f := range []Format{Q8_0, Q8_K} {
		for n := 1; n <= 19; n++ {
			var x [][]float32
			for range n {
				x = append(x, gauss(rng, 768, math.Exp(rng.NormFloat64())))
			}
			b := batchOf(t, f, 768, x...)
			for tok := range x {
				for i, v := range b.unpacked(tok) {
					var most float64
					at := i / f.block() * f.block()
					for _, o := range x[tok][at : at+f.block()] {
						most = math.Max(most, math.Abs(float64(o)))
					}
					// Half a step, and for Q8_0 what rounding the scale moves
					// the greatest code.
					if step := most / 127; math.Abs(v-float64(x[tok][i])) > 0.5001*step+most/2048 {
						t.Fatalf("%s, %d rows, row %d, value %d: %v, want %v, step %v", f, n, tok, i, v, x[tok][i], step)
					}
				}
			}
		}
	}
}

// TestActivationsByHand has one block of each format.
func TestActivationsByHand(t *testing.T) {
	x := make([]float32, 256)
	x[0], x[1], x[2], x[3], x[31] = 254, -127, 1, 3, -254
	var q, k [256]int8
	var d [8]float32
	var sum [8]int32
	quantizeQ8_0(q[:], d[:], sum[:], x)
	// -63.5, 0.5 and 1.5 are ties: they go to even.
	if d != [8]float32{2} || q != [256]int8{0: 127, 1: -64, 3: 2, 31: -127} || sum != [8]int32{-62} {
		t.Errorf("Q8_0: %v %v %v", d, q, sum)
	}
	x[16], x[255] = -200, 10
	var sums [16]int16
	if d := quantizeQ8_K(&k, &sums, (*[256]float32)(x)); d != 2 ||
		k != [256]int8{0: 127, 1: -64, 3: 2, 16: -100, 31: -127, 255: 5} || sums != [16]int16{65, -227, 15: 5} {
		t.Errorf("Q8_K: %v %v %v", d, k, sums)
	}
}

// TestBatchesAndCuts: a result does not depend on what else is computed in the
// call, nor on what a Scratch or a Batch held before.
func TestBatchesAndCuts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	s := new(Scratch)
	for _, typ := range append(blockTypes(), tensor.F32, tensor.F16, tensor.BF16) {
		for _, width := range []int{256, 2304, 4096} {
			const rows = 19
			w := weights(t, rng, typ, rows, width, false)
			for _, f := range []Format{F32, FormatOf(typ)} {
				k := kernel(t, typ, width, f)
				rb := k.RowBytes()
				var x [][]float32
				for range 18 {
					x = append(x, gauss(rng, width, 1))
				}
				var want [][]float32 // row by row, alone
				for _, row := range x {
					b := batchOf(t, f, width, row)
					for r := range rows {
						want = append(want, mul(t, k, 1, w[r*rb:(r+1)*rb], b, s))
					}
				}
				b, err := NewBatch(f, width, len(x))
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range []int{18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 17} {
					if err := b.Reset(n); err != nil {
						t.Fatal(err)
					}
					for i := range n {
						if err := b.SetRow(n-1-i, x[n-1-i]); err != nil {
							t.Fatal(err)
						}
					}
					cut := 1 + rng.IntN(rows-1)
					dst := make([]float32, n*rows)
					if err := k.Mul(dst, rows, w[:cut*rb], b, s); err != nil {
						t.Fatal(err)
					}
					if err := k.Mul(dst[cut:], rows, w[cut*rb:], b, s); err != nil {
						t.Fatal(err)
					}
					for i := range dst {
						if err := sameBits(dst[i:i+1], want[i]); err != nil {
							t.Fatalf("%s x %s, width %d, %d rows at once, cut at %d, result %d: %v", typ, f, width, n, cut, i, err)
						}
					}
				}
			}
		}
	}
}

// TestGoroutines shares the packing of activations and the rows of a matrix.
func TestGoroutines(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 26))
	for _, typ := range []tensor.Type{tensor.Q4_K, tensor.Q5_1, tensor.IQ2_S, tensor.F16} {
		for _, f := range []Format{FormatOf(typ), F32} {
			const rows, width, tokens = 45, 768, 11
			w := weights(t, rng, typ, rows, width, false)
			k := kernel(t, typ, width, f)
			var x [][]float32
			for range tokens {
				x = append(x, gauss(rng, width, 1))
			}
			want := mul(t, k, rows, w, batchOf(t, f, width, x...), new(Scratch))
			for _, jobs := range []int{2, 7} {
				b, err := NewBatch(f, width, tokens)
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Reset(tokens); err != nil {
					t.Fatal(err)
				}
				each := func(n int, do func(from, to int) error) {
					var wg sync.WaitGroup
					for j := range jobs {
						wg.Go(func() {
							if err := do(j*n/jobs, (j+1)*n/jobs); err != nil {
								t.Error(err)
							}
						})
					}
					wg.Wait()
				}
				each(tokens, func(from, to int) error {
					for i := from; i < to; i++ {
						if err := b.SetRow(i, x[i]); err != nil {
							return err
						}
					}
					return nil
				})
				got := make([]float32, rows*tokens)
				each(rows, func(from, to int) error {
					return k.Mul(got[from:], rows, w[from*k.RowBytes():to*k.RowBytes()], b, new(Scratch))
				})
				if err := sameBits(got, want); err != nil {
					t.Errorf("%s x %s, %d jobs: %v", typ, f, jobs, err)
				}
			}
		}
	}
}

func TestNotANumber(t *testing.T) {
	for _, typ := range blockTypes() {
		f := FormatOf(typ)
		width := 256
		w := weights(t, rand.New(rand.NewPCG(7, 8)), typ, 3, width, false)
		k := kernel(t, typ, width, f)
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.Float32frombits(0xff812345)} {
			x := make([]float32, width)
			x[77] = bad
			for _, v := range mul(t, k, 3, w, batchOf(t, f, width, x), new(Scratch)) {
				if math.Float32bits(v) != 0x7fc00000 {
					t.Errorf("%s with %v: %v (%#x)", typ, bad, v, math.Float32bits(v))
				}
			}
		}
	}
}

func TestSizes(t *testing.T) {
	if _, err := New(tensor.Q4_K, 32, Q8_K); !errors.Is(err, tensor.ErrShape) {
		t.Errorf("a row of an eighth of a block: %v", err)
	}
	if _, err := New(tensor.Q4_K, 256, Q8_0); !errors.Is(err, ErrSize) {
		t.Errorf("another type's activations: %v", err)
	}
	if _, err := New(tensor.I32, 256, F32); !errors.Is(err, tensor.ErrUnknownType) {
		t.Errorf("integers: %v", err)
	}
	if _, err := New(tensor.Type(999), 256, F32); err == nil {
		t.Error("a type that does not exist")
	}
	for _, width := range []int{0, -256, 100} {
		if _, err := NewBatch(Q8_K, width, 1); !errors.Is(err, ErrSize) {
			t.Errorf("batch of width %d: %v", width, err)
		}
	}
	if _, err := NewBatch(F32, 1<<20, 1<<20); !errors.Is(err, ErrSize) {
		t.Errorf("a huge batch: %v", err)
	}
	k := kernel(t, tensor.Q4_K, 512, Q8_K)
	b, err := NewBatch(Q8_K, 512, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Reset(4); !errors.Is(err, ErrSize) {
		t.Errorf("4 rows in 3: %v", err)
	}
	if err := b.Reset(3); err != nil {
		t.Fatal(err)
	}
	if err := b.SetRow(3, make([]float32, 512)); !errors.Is(err, ErrSize) {
		t.Errorf("row 3 of 3: %v", err)
	}
	if err := b.SetRow(0, make([]float32, 511)); !errors.Is(err, ErrSize) {
		t.Errorf("a short row: %v", err)
	}
	w := make([]byte, 4*k.RowBytes())
	for _, c := range []struct {
		dst, stride, w int
		ok             bool
	}{
		{12, 4, len(w), true},
		{11, 4, len(w), false},
		{14, 5, len(w), true},
		{13, 5, len(w), false},
		{100, 3, len(w), false},
		{100, -1, len(w), false},
		{12, 4, len(w) - 1, false},
		{0, 0, 0, true},
	} {
		if err := k.Mul(make([]float32, c.dst), c.stride, w[:c.w], b, new(Scratch)); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrSize) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	other, err := NewBatch(Q8_K, 256, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Mul(nil, 1, w, other, new(Scratch)); !errors.Is(err, ErrSize) {
		t.Errorf("a narrow batch: %v", err)
	}
}

// TestNoAllocation: a call with a used Scratch allocates nothing.
func TestNoAllocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, f := range []Format{F32, Q8_K} {
		k := kernel(t, tensor.Q4_K, 512, f)
		w := weights(t, rng, tensor.Q4_K, 9, 512, false)
		x := [][]float32{gauss(rng, 512, 1), gauss(rng, 512, 1), gauss(rng, 512, 1)}
		b := batchOf(t, f, 512, x...)
		dst := make([]float32, 27)
		s := new(Scratch)
		if n := testing.AllocsPerRun(5, func() {
			if b.Reset(3) != nil || b.SetRow(1, x[0]) != nil || k.Mul(dst, 9, w, b, s) != nil {
				t.Error("failed")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", f, n)
		}
	}
}

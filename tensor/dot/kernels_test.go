package dot

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"quern/tensor"
	"quern/tensor/quant"
)

// The kernels that a build selects must equal the scalar functions in every
// bit. In a noasm build, or with QUERN_NOASM=1, both are the same.

// extremeFloats are activations and scales at which a kernel may differ.
var extremeFloats = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 127, -127, 0.5, 1e-30, -1e-38, math.SmallestNonzeroFloat32, -1e-44,
	4.7e-38, 3.7e-37, 8.3e6, 8.4e6, -65504 * 127, 1e30, math.MaxFloat32, -math.MaxFloat32, 6e-8, 3.7e-6, 3.8e-6,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.Float32frombits(0xff812345),
}

// activations gives a row of one of several kinds.
func activations(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	kind := rng.IntN(6)
	for i := range x {
		switch kind {
		case 0, 1:
			x[i] = float32(rng.NormFloat64())
		case 2: // the ends of the codes
			x[i] = float32(rng.IntN(2)*254 - 127)
		case 3: // one sign
			x[i] = 127
		case 4: // any bits
			x[i] = math.Float32frombits(rng.Uint32())
		case 5: // mostly zero
			if rng.IntN(20) == 0 {
				x[i] = extremeFloats[rng.IntN(len(extremeFloats))]
			}
		}
	}
	return x
}

// anyBytes fills rows of weights with bytes of one of several kinds.
func anyBytes(rng *rand.Rand, w []byte) {
	kind := rng.IntN(5)
	for i := range w {
		switch kind {
		case 0, 1:
			w[i] = byte(rng.Uint32())
		case 2: // the ends of the codes
			w[i] = 0xff
		case 3:
			w[i] = []byte{0, 0xff, 0x80, 0x7f, 0x88, 0x0f, 0xf0}[rng.IntN(7)]
		case 4: // scales that are finite for most types
			w[i] = byte(rng.Uint32()) & 0x3b
		}
	}
}

// scalarMul does what Kernel.Mul does with the scalar functions alone.
func scalarMul(k *Kernel, w []byte, b *Batch) []float32 {
	rows := len(w) / k.RowBytes()
	dst := make([]float32, rows*b.rows)
	if k.format == F32 {
		values := make([]float32, k.width)
		for r := range rows {
			k.decoder.Decode(values, w[r*k.rowBytes:(r+1)*k.rowBytes])
			for t := range b.rows {
				dst[t*rows+r] = number(dotFloat(values, b.floats[t*k.width:(t+1)*k.width]))
			}
		}
		return dst
	}
	t, f := new(tile), k.family
	perUnit := f.kind.values()
	for r := range rows {
		for tok := range b.rows {
			var acc float32
			for u := 0; u < b.units; u += tileWidth / perUnit {
				units := min(b.units-u, tileWidth/perUnit)
				src := w[r*k.rowBytes+u/f.units*f.block:]
				f.unpack(t, 5, src[:units/f.units*f.block])
				group, lane, apart := tok/lanes, tok%lanes, lanes
				if group == b.groups {
					apart = 1
				}
				sum := sum32
				if f.kind >= biased256 {
					sum = sum256
				}
				sum(f.kind, &acc, t, 5, b.piece(b.at(group, u, apart), units, apart), units, lane, apart)
			}
			dst[tok*rows+r] = number(acc)
		}
	}
	return dst
}

func compareMul(t *testing.T, what string, k *Kernel, w []byte, b *Batch, s *Scratch) {
	t.Helper()
	got := mul(t, k, len(w)/k.RowBytes(), w, b, s)
	if err := sameBits(got, scalarMul(k, w, b)); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestKernelsEqualScalar(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	s := new(Scratch)
	for _, typ := range append(blockTypes(), tensor.F32, tensor.F16, tensor.BF16) {
		for _, width := range append(widths, 1, 7, 9, 31) {
			if width%int(typ.BlockValues()) != 0 {
				continue
			}
			for _, f := range []Format{FormatOf(typ), F32}[:] {
				k := kernel(t, typ, width, f)
				for range 3 {
					rows := 1 + rng.IntN(10)
					w := make([]byte, rows*k.RowBytes())
					anyBytes(rng, w)
					var x [][]float32
					for range 1 + rng.IntN(10) {
						x = append(x, activations(rng, width))
					}
					what := fmt.Sprintf("%s x %s, width %d, %d rows, %d tokens", typ, f, width, rows, len(x))
					compareMul(t, what, k, w, batchOf(t, f, width, x...), s)
				}
			}
		}
	}
}

// TestOneRowEqualsScalar: a single row of activations meets 8 rows of weights at
// a time where they lie, and those that are left over in a tile.
func TestOneRowEqualsScalar(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	s := new(Scratch)
	for _, typ := range blockTypes() {
		for _, width := range widths {
			if width%int(typ.BlockValues()) != 0 {
				continue
			}
			k := kernel(t, typ, width, FormatOf(typ))
			for _, rows := range []int{8, 9, 16, 23} {
				for range 3 {
					w := make([]byte, rows*k.RowBytes())
					anyBytes(rng, w)
					what := fmt.Sprintf("%s, width %d, %d rows", typ, width, rows)
					compareMul(t, what, k, w, batchOf(t, k.Format(), width, activations(rng, width)), s)
				}
			}
		}
	}
}

// TestUnpackers compares whole tiles.
func TestUnpackers(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, typ := range blockTypes() {
		f := families[typ]
		for blocks := 1; blocks*int(typ.BlockValues()) <= tileWidth; blocks += 1 + blocks/4 {
			for _, rows := range []int{1, 3, 8} {
				rowBytes := blocks*f.block + rng.IntN(50)
				src := make([]byte, (rows-1)*rowBytes+blocks*f.block)
				anyBytes(rng, src)
				got, want := new(tile), new(tile)
				unpackRows(typ, got, rows, blocks, src, rowBytes, rng.IntN(1000))
				unpackRowsScalar(typ, want, rows, blocks, src, rowBytes)
				compareTiles(t, fmt.Sprintf("%s, %d blocks, %d rows", typ, blocks, rows), got, want)
			}
		}
	}
}

func compareTiles(t *testing.T, what string, got, want *tile) {
	t.Helper()
	for i := range want.codes {
		if got.codes[i] != want.codes[i] {
			t.Fatalf("%s: code %d of row %d is %#x, want %#x", what, i%tileWidth, i/tileWidth, got.codes[i], want.codes[i])
		}
	}
	for i := range want.scales {
		if got.scales[i] != want.scales[i] {
			t.Fatalf("%s: scale %d is %#x, want %#x", what, i, got.scales[i], want.scales[i])
		}
		if got.corr[i] != want.corr[i] {
			t.Fatalf("%s: corr %d is %d, want %d", what, i, got.corr[i], want.corr[i])
		}
	}
	if err := sameBits(got.d[:], want.d[:]); err != nil {
		t.Fatalf("%s: d: %v", what, err)
	}
	if err := sameBits(got.m[:], want.m[:]); err != nil {
		t.Fatalf("%s: m: %v", what, err)
	}
}

// TestDecode compares with package quant's decoders.
func TestDecode(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	s := new(Scratch)
	for _, typ := range tensor.Types() {
		decoder, err := quant.DecoderFor(typ)
		if err != nil {
			if err := Decode(typ, nil, nil, s); !errors.Is(err, tensor.ErrUnknownType) {
				t.Errorf("%s: %v", typ, err)
			}
			continue
		}
		for blocks := 0; blocks <= 70; blocks += 1 + blocks/3 {
			src := make([]byte, blocks*int(typ.BlockBytes()))
			got, want := make([]float32, blocks*int(typ.BlockValues())), make([]float32, blocks*int(typ.BlockValues()))
			for range 3 {
				anyBytes(rng, src)
				if err := Decode(typ, got, src, s); err != nil {
					t.Fatal(err)
				}
				decoder.Decode(want, src)
				for i := range got {
					got[i], want[i] = number(got[i]), number(want[i])
				}
				if err := sameBits(got, want); err != nil {
					t.Fatalf("%s, %d blocks: %v", typ, blocks, err)
				}
			}
			if err := Decode(typ, got, append(src, 0), s); !errors.Is(err, ErrSize) {
				t.Errorf("%s: a byte more: %v", typ, err)
			}
		}
	}
}

func TestTurn(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	for range 100 {
		got := [64]float32(activations(rng, 64))
		want := got
		turn(&got)
		turnScalar(&want)
		if err := sameBits(got[:], want[:]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestQuantizers(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for range 5000 {
		x := activations(rng, 256)
		compareQuantizers(t, (*[256]float32)(x))
	}
}

func compareQuantizers(t *testing.T, x *[256]float32) {
	t.Helper()
	type q8_0 struct {
		q    [256]int8
		d    [8]float32
		sums [8]int32
	}
	var got, want q8_0
	n := 1 + int(math.Float32bits(x[0])%8)
	quantizeQ8_0(got.q[:32*n], got.d[:n], got.sums[:n], x[:32*n])
	quantizeQ8_0Scalar(want.q[:32*n], want.d[:n], want.sums[:n], x[:32*n])
	if err := sameBits(got.d[:], want.d[:]); err != nil || got.q != want.q || got.sums != want.sums {
		t.Fatalf("Q8_0: %v, want %v; %v; input %x", got, want, err, *x)
	}
	type q8_K struct {
		q    [256]int8
		d    [1]float32
		sums [16]int16
	}
	var g, w q8_K
	g.d[0], w.d[0] = quantizeQ8_K(&g.q, &g.sums, x), quantizeQ8_KScalar(&w.q, &w.sums, x)
	if err := sameBits(g.d[:], w.d[:]); err != nil || g.q != w.q || g.sums != w.sums {
		t.Fatalf("Q8_K: %v, want %v; %v; input %x", g, w, err, *x)
	}
}

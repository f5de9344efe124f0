package dot

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"quern/tensor"
	"quern/tensor/repack"
)

// packable gives rows of any bytes that a layout holds exactly, plain and packed.
func packable(t testing.TB, rng *rand.Rand, l *repack.Layout, rows, width int) (plain, packed []byte) {
	t.Helper()
	s := tensor.Shape{int64(rows), int64(width)}
	n, err := tensor.Bytes(l.Type(), s)
	if err != nil {
		t.Fatal(err)
	}
	size, err := l.Bytes(s)
	if err != nil {
		t.Fatal(err)
	}
	plain, packed = make([]byte, n), make([]byte, size)
	anyBytes(rng, plain)
	if l.Type() == tensor.Q2_0 {
		for at := 0; at < len(plain); at += 18 {
			plain[at+1] = plain[at+1]&0x83 | 0x20
			for i := at + 2; i < at+18; i++ {
				plain[i] &^= plain[i] & 0x55 << 1
			}
		}
	}
	if err := l.Pack(packed, plain, s.RowLen()); err != nil {
		t.Fatal(err)
	}
	if err := l.Unpack(plain, packed, s.RowLen()); err != nil {
		t.Fatal(err)
	}
	return plain, packed
}

// step is the number of values that a layout takes at least of a row.
func step(l *repack.Layout) int { return int(l.Type().BlockValues()) * l.BundleBlocks() }

func packedKernel(t testing.TB, l *repack.Layout, width int, f Format) *Kernel {
	t.Helper()
	k, err := NewPacked(l, width, f)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestPackedEqualsPlain: in every layout, products are those of the plain rows to
// the last bit, NaNs included, and a matrix may be cut between groups.
func TestPackedEqualsPlain(t *testing.T) {
	rng := rand.New(rand.NewPCG(101, 102))
	var s Scratch
	for _, l := range repack.Layouts() {
		group := int(l.GroupRows())
		for _, width := range []int{32, 96, 128, 256, 288, 384, 576, 768, 2304, 2880, 4352} {
			if width%step(l) != 0 {
				if _, err := NewPacked(l, width, F32); !errors.Is(err, tensor.ErrShape) {
					t.Errorf("%s: rows of %d: %v", l, width, err)
				}
				continue
			}
			for _, rows := range []int{group, 3 * group} {
				plain, packed := packable(t, rng, l, rows, width)
				for _, f := range []Format{FormatOf(l.Type()), F32} {
					for _, tokens := range []int{1, 2, 9} {
						x := make([][]float32, tokens)
						for i := range x {
							x[i] = activations(rng, width)
						}
						b := batchOf(t, f, width, x...)
						want := mul(t, kernel(t, l.Type(), width, f), rows, plain, b, &s)
						k := packedKernel(t, l, width, f)
						what := fmt.Sprintf("%s x %s, width %d, %d rows, %d tokens", l, f, width, rows, tokens)
						if err := sameBits(mul(t, k, rows, packed, b, &s), want); err != nil {
							t.Fatalf("%s: %v", what, err)
						}
						cut := make([]float32, len(want))
						for r := 0; r < rows; r += group {
							if err := k.Mul(cut[r:], rows, packed[r*k.RowBytes():][:group*k.RowBytes()], b, &s); err != nil {
								t.Fatal(err)
							}
						}
						if err := sameBits(cut, want); err != nil {
							t.Fatalf("%s, cut: %v", what, err)
						}
					}
				}
			}
		}
	}
}

// TestUnbundlers holds the scalar unpacking of every row of a bundle, which vector
// code may stand in for, to that of the plain row.
func TestUnbundlers(t *testing.T) {
	rng := rand.New(rand.NewPCG(103, 104))
	for _, l := range repack.Layouts() {
		if len(bundles) != len(repack.Layouts()) || bundles[l.String()] == nil {
			t.Fatalf("%d of %d layouts have products", len(bundles), len(repack.Layouts()))
		}
		group, width := int(l.GroupRows()), 3*step(l)
		plain, packed := packable(t, rng, l, group, width)
		f, row := families[l.Type()], len(plain)/group
		for r := range group {
			var got, want tile
			for x := range 3 {
				bundles[l.String()](&got, r%lanes, x*l.BundleBlocks()*f.units, packed[x*l.BundleBytes():][:l.BundleBytes()], r)
			}
			f.unpack(&want, r%lanes, plain[r*row:][:row])
			compareTiles(t, fmt.Sprintf("%s: row %d", l, r), &got, &want)
		}
	}
}

func TestPackedSizes(t *testing.T) {
	l, err := repack.Parse("q4_0_8x8")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPacked(l, 64, Q8_K); !errors.Is(err, ErrSize) {
		t.Errorf("another format: %v", err)
	}
	k := packedKernel(t, l, 64, Q8_0)
	b := batchOf(t, Q8_0, 64, make([]float32, 64))
	for _, n := range []int{4 * 36, 8*36 + 1, 12 * 36} {
		if err := k.Mul(make([]float32, 16), 16, make([]byte, n), b, new(Scratch)); !errors.Is(err, ErrSize) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if k.Rows() != 8 || k.RowBytes() != 36 || kernel(t, tensor.Q4_0, 64, F32).Rows() != 1 {
		t.Errorf("rows in groups of %d, %d bytes each", k.Rows(), k.RowBytes())
	}
}

// FuzzPackedEqualsPlain multiplies any bytes in any layout with any floats.
func FuzzPackedEqualsPlain(f *testing.F) {
	all := repack.Layouts()
	rng := rand.New(rand.NewPCG(105, 106))
	for i, l := range all {
		_, packed := packable(f, rng, l, int(l.GroupRows()), step(l))
		f.Add(uint8(i), uint8(i), packed, uint32(i))
	}
	f.Fuzz(func(t *testing.T, which, tokens uint8, packed []byte, seed uint32) {
		l := all[int(which)%len(all)]
		bundles, group := len(packed)/l.BundleBytes(), int(l.GroupRows())
		if bundles == 0 || bundles > 40 {
			return
		}
		width := bundles * step(l)
		packed = packed[:bundles*l.BundleBytes()]
		row, err := tensor.RowBytes(l.Type(), int64(width))
		if err != nil {
			t.Fatal(err)
		}
		plain := make([]byte, group*int(row))
		if err := l.Unpack(plain, packed, int64(width)); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		x := make([][]float32, 1+tokens%10)
		for i := range x {
			x[i] = make([]float32, width)
			for j := range x[i] {
				x[i][j] = math.Float32frombits(rng.Uint32())
			}
		}
		for _, format := range []Format{FormatOf(l.Type()), F32} {
			b := batchOf(t, format, width, x...)
			want := mul(t, kernel(t, l.Type(), width, format), group, plain, b, new(Scratch))
			if err := sameBits(mul(t, packedKernel(t, l, width, format), group, packed, b, new(Scratch)), want); err != nil {
				t.Fatalf("%s x %s: %v", l, format, err)
			}
		}
	})
}

// TestLookup: vector and scalar code look up the same sums, and a batch that has new
// rows has new tables.
func TestLookup(t *testing.T) {
	rng := rand.New(rand.NewPCG(107, 108))
	l, err := repack.Parse("q1_0_32_lut")
	if err != nil {
		t.Fatal(err)
	}
	const width = 384
	plain, packed := packable(t, rng, l, 64, width)
	k, p := packedKernel(t, l, width, Q8_0), kernel(t, tensor.Q1_0, width, Q8_0)
	var s Scratch
	b := batchOf(t, Q8_0, width, activations(rng, width))
	for range 20 {
		if err := b.SetRow(0, activations(rng, width)); err != nil {
			t.Fatal(err)
		}
		want := mul(t, p, 64, plain, b, new(Scratch))
		if err := sameBits(mul(t, k, 64, packed, b, &s), want); err != nil {
			t.Fatal(err)
		}
		var scalar [32]float32
		lookUpQ1_0Scalar(&scalar, packed[:32*k.RowBytes()], s.sums4(b, true), b.scales, width/128)
		if err := sameBits(scalar[:], want[:32]); err != nil {
			t.Fatalf("scalar: %v", err)
		}
	}
	// The other kind of table in between.
	if other := s.sums4(b, false); other[0] != 0 || other[16] != 0 {
		t.Error("no weights have a sum")
	}
	if err := sameBits(mul(t, k, 64, packed, b, &s), mul(t, p, 64, plain, b, new(Scratch))); err != nil {
		t.Fatal(err)
	}
}

// TestPackedExtremes: the largest codes meet the largest activations, where sums of
// products in few bits would overflow first.
func TestPackedExtremes(t *testing.T) {
	scales := map[tensor.Type][]int{ // where blocks have F16
		tensor.Q1_0: {0}, tensor.Q2_0: {0}, tensor.Q4_0: {0}, tensor.Q8_0: {0}, tensor.IQ4_NL: {0}, tensor.MXFP4: nil,
		tensor.Q2_K: {80, 82}, tensor.Q4_K: {0, 2}, tensor.Q5_K: {0, 2}, tensor.Q6_K: {208}, tensor.TQ1_0: {52}, tensor.TQ2_0: {64},
	}
	for _, l := range repack.Layouts() {
		at, ok := scales[l.Type()]
		if !ok {
			t.Fatalf("%s: no scales of %s", l, l.Type())
		}
		group, width, block := int(l.GroupRows()), 2*step(l), int(l.Type().BlockBytes())
		row, err := tensor.RowBytes(l.Type(), int64(width))
		if err != nil {
			t.Fatal(err)
		}
		for _, fill := range []byte{0xff, 0x80, 0x7f, 0, 0xaa, 0xf0} {
			if l.String() == "q2_0_8x4_base3" && fill != 0xaa && fill != 0 {
				continue // code 3
			}
			plain := make([]byte, group*int(row))
			for i := range plain {
				plain[i] = fill
			}
			for b := 0; b < len(plain); b += block {
				for _, s := range at {
					plain[b+s], plain[b+s+1] = 0, 0x3c
				}
				if l.Type() == tensor.MXFP4 {
					plain[b] = 127
				}
			}
			packed := make([]byte, width/step(l)*l.BundleBytes())
			if err := l.Pack(packed, plain, int64(width)); err != nil {
				t.Fatal(err)
			}
			for _, sign := range []float32{1, -1} {
				x := make([]float32, width)
				for i := range x {
					x[i] = sign
				}
				f := FormatOf(l.Type())
				b := batchOf(t, f, width, x)
				got := mul(t, packedKernel(t, l, width, f), group, packed, b, new(Scratch))
				if err := sameBits(got, scalarMul(kernel(t, l.Type(), width, f), plain, b)); err != nil {
					t.Fatalf("%s, bytes %#x, activations of %v: %v", l, fill, sign, err)
				}
			}
		}
	}
}

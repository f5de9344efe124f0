package quant

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"quern/tensor"
)

// at puts values at positions of a block that is filled with one value.
type at map[int]float32

// handBlocks are worked out on paper from the drawing above each codec: input,
// bytes and decoded values.
var handBlocks = []struct {
	name    string
	typ     tensor.Type
	fill    float32
	in      at
	bytes   string // hex; (xx*n) repeats
	outFill float32
	out     at
}{
	{
		// d = 127/127. Halves go away from zero, 0.49999997 to zero.
		name: "scale 1", typ: tensor.Q8_0,
		in:    at{0: 127, 1: 0.5, 2: -0.5, 3: 1.5, 4: -127, 5: 0.49999997},
		bytes: "003c 7f 01 ff 02 81 (00*27)",
		out:   at{0: 127, 1: 1, 2: -1, 3: 2, 4: -127},
	},
	{
		// The first of -8 and 8 gives d = -8/-8; 8 is cut to code 15.
		name: "scale 1", typ: tensor.Q4_0,
		in:    at{0: -8, 1: 7, 2: 0.5, 3: 8, 16: -0.5, 17: -0.51},
		bytes: "003c 80 7f 89 8f (88*12)",
		out:   at{0: -8, 1: 7, 2: 1, 3: 7, 17: -1},
	},
	{
		// A positive extreme makes d negative: 8/-8.
		name: "scale -1", typ: tensor.Q4_0,
		in:    at{0: 8, 1: -7, 31: 1},
		bytes: "00bc 80 8f (88*13) 78",
		out:   at{0: 8, 1: -7, 31: 1},
	},
	{
		// m = 1, d = (16-1)/15. 2.5 is 1.5 steps up: trunc(2.0).
		name: "scale 1", typ: tensor.Q4_1, fill: 1,
		in:    at{1: 16, 2: 2.5, 16: 1.49},
		bytes: "003c 003c 00 0f 02 (00*13)", outFill: 1,
		out: at{1: 16, 2: 3},
	},
	{
		// Zero is code 16: fifth bit 1, nibble 0.
		name: "scale 1", typ: tensor.Q5_0,
		in:    at{0: -16, 1: 15, 30: -1},
		bytes: "003c feffffbf 00 0f (00*12) f0 00",
		out:   at{0: -16, 1: 15, 30: -1},
	},
	{
		name: "scale 1", typ: tensor.Q5_1,
		in:    at{0: 31, 2: 0.5, 17: 16},
		bytes: "003c 0000 01000200 0f 00 01 (00*13)",
		out:   at{0: 31, 2: 1, 17: 16},
	},
	{
		// d = 8/8. Halves go to even, 8 is cut to 7; neighbours share a byte.
		name: "scale 1", typ: tensor.KMCUQ4,
		in:    at{0: 8, 1: -8, 2: 0.5, 3: 1.5, 4: -0.5, 5: 2.5},
		bytes: "003c 0f a8 a8 (88*13)",
		out:   at{0: 7, 1: -8, 3: 2, 5: 2},
	},
	{
		// The quotient uses d = 0.1/8 in float32: 0.1 and -0.1 are codes 7
		// (cut) and -8. F16 of it is 0x2266.
		name: "scale not exact in F16", typ: tensor.KMCUQ4,
		in:    at{0: 0.1, 1: -0.1},
		bytes: "6622 0f (88*15)",
		out:   at{0: 0x666p-17 * 7, 1: -0x666p-17 * 8},
	},
	{
		// One value of 32: its block's scale is 32/-32, d = 2^-7 with
		// sc = -128, the value code 0. The rest of the block is code 32,
		// blocks of zeros keep code 0.
		name: "one value", typ: tensor.Q6_K,
		in:    at{0: 32},
		bytes: "(00*128) 00 (02*15) (00*48) 80 (00*15) 0020",
		out:   at{0: 32},
	},
}

// expand reads hex with repeats.
func expand(t *testing.T, s string) []byte {
	t.Helper()
	var out []byte
	for _, f := range strings.Fields(s) {
		n := 1
		if rest, ok := strings.CutPrefix(f, "("); ok {
			digits, count, _ := strings.Cut(strings.TrimSuffix(rest, ")"), "*")
			f, n = digits, 0
			for _, c := range count {
				n = 10*n + int(c-'0')
			}
		}
		b, err := hex.DecodeString(f)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			out = append(out, b...)
		}
	}
	return out
}

func spread(n int64, fill float32, set at) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = fill
	}
	for i, v := range set {
		x[i] = v
	}
	return x
}

func TestHandBlocks(t *testing.T) {
	for _, tc := range handBlocks {
		t.Run(tc.typ.String()+"/"+tc.name, func(t *testing.T) {
			c, err := For(tc.typ)
			if err != nil {
				t.Fatal(err)
			}
			n := tc.typ.BlockValues()
			want := expand(t, tc.bytes)
			if int64(len(want)) != tc.typ.BlockBytes() {
				t.Fatalf("the test's block has %d bytes, the type %d", len(want), tc.typ.BlockBytes())
			}
			got := make([]byte, len(want))
			c.EncodeRow(got, spread(n, tc.fill, tc.in), nil)
			if hex.EncodeToString(got) != hex.EncodeToString(want) {
				t.Errorf("encoded %x\nwant    %x", got, want)
			}
			out := make([]float32, n)
			c.Decode(out, want)
			for i, v := range spread(n, tc.outFill, tc.out) {
				if out[i] != v {
					t.Errorf("value %d decodes to %v, want %v", i, out[i], v)
				}
			}
		})
	}
}

// zeroBlocks are the bytes of a block of zeros. They are ggml's, noted from its
// library; signs of zero scales included.
var zeroBlocks = map[tensor.Type]string{
	tensor.F32:    "(00*4)",
	tensor.F16:    "0000",
	tensor.BF16:   "0000",
	tensor.Q4_0:   "0080 (88*16)",
	tensor.Q4_1:   "(00*20)",
	tensor.Q5_0:   "0080 ffffffff (00*16)",
	tensor.Q5_1:   "(00*24)",
	tensor.Q8_0:   "(00*34)",
	tensor.Q6_K:   "(00*210)",
	tensor.KMCUQ4: "003c (88*16)",
}

func TestZeroBlocks(t *testing.T) {
	for _, typ := range writable() {
		t.Run(typ.String(), func(t *testing.T) {
			c, _ := For(typ)
			want, ok := zeroBlocks[typ]
			if !ok {
				t.Fatal("the table has no block of zeros for this type")
			}
			n := typ.BlockValues()
			weights := make([]float32, n)
			for name, w := range map[string][]float32{"plain": nil, "weighted": spread(n, 1, nil), "zero weights": weights} {
				got := make([]byte, typ.BlockBytes())
				for i := range got {
					got[i] = 0xa5 // what lay there before must not show
				}
				c.EncodeRow(got, make([]float32, n), w)
				// Searches by weights give scale +0 and code 0.
				if hex.EncodeToString(got) != hex.EncodeToString(expand(t, want)) && w == nil {
					t.Errorf("%s: %x", name, got)
				}
				if i := FirstBadBlock(typ, got); i >= 0 {
					t.Errorf("%s: scale is not finite: %x", name, got)
				}
				out := spread(n, 1, nil)
				c.Decode(out, got)
				for i, v := range out {
					if v != 0 {
						t.Fatalf("%s: value %d decodes to %v", name, i, v)
					}
				}
			}
		})
	}
}

// writable lists the types that For accepts.
func writable() []tensor.Type {
	var out []tensor.Type
	for _, typ := range tensor.Types() {
		if _, err := For(typ); err == nil {
			out = append(out, typ)
		}
	}
	return out
}

// TestRoundings pins the helpers at the points where they differ from Go's.
func TestRoundings(t *testing.T) {
	for _, tc := range []struct {
		x                   float32
		nearest, away, zero int32
	}{
		{0.5, 0, 1, 0}, {1.5, 2, 2, 1}, {2.5, 2, 3, 2}, {-0.5, 0, -1, 0}, {-1.5, -2, -2, -1},
		{0.49999997, 0, 0, 0}, {-0.49999997, 0, 0, 0}, {0.50000006, 1, 1, 0},
		{126.49999, 126, 126, 126}, {126.5, 126, 127, 126}, {-127.5, -128, -128, -127},
		{4194303, 4194303, 4194303, 4194303},
		{4194304, -4194304, 4194304, 4194304}, // nearest wraps from 2^22 on
		{float32(math.Inf(1)), -4194304, math.MinInt32, math.MinInt32},
		{float32(math.NaN()), 0, math.MinInt32, math.MinInt32},
	} {
		if got := nearest(tc.x); got != tc.nearest {
			t.Errorf("nearest(%v) = %d, want %d", tc.x, got, tc.nearest)
		}
		if got := roundAway(tc.x); got != tc.away {
			t.Errorf("roundAway(%v) = %d, want %d", tc.x, got, tc.away)
		}
		if got := truncate(tc.x); got != tc.zero {
			t.Errorf("truncate(%v) = %d, want %d", tc.x, got, tc.zero)
		}
	}
	// Against the exact definition at and around every half up to 128.
	for n := -128; n <= 128; n++ {
		for d := -3; d <= 3; d++ {
			h := float32(n) + 0.5
			x := math.Float32frombits(uint32(int64(math.Float32bits(h)) + int64(d)))
			if got, want := roundAway(x), int32(math.Round(float64(x))); got != want {
				t.Errorf("roundAway(%v) = %d, want %d", x, got, want)
			}
			if got, want := nearest(x), int32(math.RoundToEven(float64(x))); got != want {
				t.Errorf("nearest(%v) = %d, want %d", x, got, want)
			}
		}
	}
}

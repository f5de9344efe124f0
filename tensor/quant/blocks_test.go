package quant

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"quern/tensor"
)

var negZero = float32(math.Copysign(0, -1))

// sixtyThirds is 63 steps of 1/63 rounded to F16.
const sixtyThirds = 63 * 0x410p-16

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
	inFunc  func(v int) float32 // instead of fill and in
	outFunc func(v int) float32 // instead of outFill and out
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
	{
		// The mean of 126 ones, a zero and a two; -0 counts as positive.
		name: "mean 1", typ: tensor.Q1_0, fill: 1,
		in:    at{0: -1, 9: negZero, 10: 2},
		bytes: "003c fe (ff*15)", outFill: 1,
		out: at{0: -1},
	},
	{
		// Half of d goes away from zero, to code 2; zero is code 1.
		name: "scale 2", typ: tensor.Q2_0,
		in:    at{0: 2, 1: -2, 2: 1, 3: 0.9},
		bytes: "0040 62 (55*15)",
		out:   at{0: 2, 1: -2, 2: 2},
	},
	{
		name: "scale 2", typ: tensor.TQ2_0,
		in:    at{0: 2, 32: -2, 64: 1, 96: 0.9},
		bytes: "62 (55*63) 0040",
		out:   at{0: 2, 32: -2, 64: 2},
	},
	{
		// Trits 20211 are 184; 184*256/243 rounded up is 0xc2. 11111 is 121
		// or 0x80, 11110 is 120 or 0x7f.
		name: "scale 2", typ: tensor.TQ1_0,
		in:    at{0: 2, 32: -2, 64: 1, 96: 0.9},
		bytes: "c2 (80*47) (7f*4) 0040",
		out:   at{0: 2, 32: -2, 64: 2},
	},
	{
		// 6 = 1.5*2^2 gives e = 127, level steps of a half. 5 and 0.25 are
		// ties and take the lower code.
		name: "extreme 6", typ: tensor.MXFP4,
		in:    at{0: 6, 1: -6, 2: 5, 3: 0.25, 16: 0.3, 17: -1},
		bytes: "7f 17 af 06 (00*13)",
		out:   at{0: 6, 1: -6, 2: 4, 16: 0.5, 17: -1},
	},
	{
		// Scales 1, 2, 0 and, for 0.01/6, the subnormal 1*2^-9.
		name: "four scales", typ: tensor.NVFP4,
		in:    at{0: 6, 8: -1, 16: 12, 48: 0.01},
		bytes: "38400001 a7 (00*7) 07 (00*15) 07 (00*7)",
		out:   at{0: 6, 8: -1, 16: 12, 48: 12.0 / 1024},
	},
	{
		// The levels themselves, twice: the scale is 1.
		name: "levels", typ: tensor.IQ4_NL,
		inFunc:  func(v int) float32 { return iq4Values[v%16] },
		bytes:   "003c 00112233445566778899aabbccddeeff",
		outFunc: func(v int) float32 { return iq4Values[v%16] },
	},
	{
		// Block 0 at scale 32, the others at 1: d = -32/32, scales -32 (code
		// 0) and -1 (code 31).
		name: "levels", typ: tensor.IQ4_XS,
		inFunc:  iq4Levels,
		bytes:   "00bc 5455 f0ffffff (00112233445566778899aabbccddeeff*8)",
		outFunc: iq4Levels,
	},
	{
		// Each block has 0..3, block 1 a minimum of -1. Scale and min are
		// 15*F16(1/15) = 15*0x444*2^-14.
		name: "ramps", typ: tensor.Q2_K,
		inFunc: func(v int) float32 {
			if v/16 == 1 {
				return float32(v%4) - 1
			}
			return float32(v % 4)
		},
		bytes: "0f ff (0f*14) (0055aaff*16) 442c 442c",
		outFunc: func(v int) float32 {
			const step = 15 * 0x444p-14
			if v/16 == 1 {
				return step * (float32(v%4) - 1)
			}
			return step * float32(v%4)
		},
	},
	{
		// Blocks of -4..3 at scale 1 (code 0 of d = -1/32), the last of zeros
		// with scale 0 (code 32).
		name: "ramps", typ: tensor.Q3_K,
		inFunc:  q3Ramp,
		bytes:   "(00000000ffffffff*2) (000000007f7f7f7f*2) (0055aaff*12) (00152a3f*4) (00*11) 80 00a8",
		outFunc: q3Ramp,
	},
	{
		// Blocks of 0..15, block 1 of -8..7: scales 63*F16(1/63), min 8 times
		// that.
		name: "ramps", typ: tensor.Q4_K,
		inFunc: func(v int) float32 {
			if v/32 == 1 {
				return float32(v%16) - 8
			}
			return float32(v % 16)
		},
		bytes: "1024 1030 ffffffff 003f0000 0f0f0f0f (00112233445566778899aabbccddeeff*8)",
		outFunc: func(v int) float32 {
			if v/32 == 1 {
				return sixtyThirds * (float32(v%16) - 8)
			}
			return sixtyThirds * float32(v%16)
		},
	},
	{
		name: "ramps", typ: tensor.Q5_K,
		inFunc:  func(v int) float32 { return float32(v % 32) },
		bytes:   "1024 0000 ffffffff 00000000 0f0f0f0f (00*16) (ff*16) (00112233445566778899aabbccddeeff*8)",
		outFunc: func(v int) float32 { return sixtyThirds * float32(v%32) },
	},
	// For the grid types the bytes are made and decoded; entries are read off
	// grids.txt. That their encoders give ggml's bytes the goldens show.
	{
		// d = 8: scale 0 is 8*0.5/4 = 1, scale 1 is 3. Sign bits 0000001 are
		// completed to 10000001.
		name: "signs", typ: tensor.IQ2_XXS,
		bytes: "0048 01020000 01000000 00000000 00000010 (00*48)",
		outFunc: func(v int) float32 {
			return pick(v, []float32{-43, 8, 8, 8, 8, 8, 8, -8, 25, 25, 8, 8, 8, 8, 8, 8}, 32, 64, 24, 8)
		},
	},
	{
		name: "signs", typ: tensor.IQ2_XS,
		bytes: "0048 0102 (00*62) 10 (00*7)",
		outFunc: func(v int) float32 {
			return pick(v, []float32{-43, 8, 8, 8, 8, 8, 8, -8}, 16, 32, 24, 8)
		},
	},
	{
		name: "entry 513", typ: tensor.IQ2_S,
		bytes: "0048 01 (00*31) 80 (00*31) 02 (00*7) 10 (00*7)",
		outFunc: func(v int) float32 {
			return pick(v, []float32{25, 8, 8, 25, 25, 8, 8, -25}, 16, 32, 24, 8)
		},
	},
	{
		// Sign bits 0010000 are completed to 10010000.
		name: "entries 1 and 255", typ: tensor.IQ3_XXS,
		bytes: "0044 01ff (00*62) 10000000 00000010 (00*24)",
		outFunc: func(v int) float32 {
			return pick(v, []float32{20, 4, 4, 4, -4, 28, 52, -62}, 32, 64, 12, 4)
		},
	},
	{
		name: "entries 256 and 257", typ: tensor.IQ3_S,
		bytes: "003c 0001 (00*62) 03 (00*7) 81 (00*31) 10 (00*3)",
		outFunc: func(v int) float32 {
			return pick(v, []float32{-7, 5, 9, 5, 5, 7, 9, -5}, 32, 64, 3, 1)
		},
	},
	{
		// Block 0: scale 3, shift down, entry 1025 first.
		name: "entry 1025", typ: tensor.IQ1_S,
		bytes: "003c 01 (00*31) 0490 (00*14)",
		outFunc: func(v int) float32 {
			return pick(v, []float32{-3.375, -3.375, -0.375, -0.375, -0.375, -0.375, -0.375, -0.375}, 8, 32, -3.375, -0.875)
		},
	},
	{
		// Block 0: scale 5, entry 1 shifted down, entry 257 shifted up. d = 1
		// lies in nibbles 0, 0, c, 3.
		name: "entries 1 and 257", typ: tensor.IQ1_M,
		bytes: "0101 (00*30) 18 (00*15) 0200 0000 00c0 0030",
		outFunc: func(v int) float32 {
			return pick(v, []float32{4.375, -5.625, -5.625, -5.625, -5.625, -5.625, -5.625, -5.625,
				5.625, 0.625, 5.625, 0.625, 5.625, -4.375, 0.625, -4.375}, 0, 0, 0, -0.875)
		},
	},
}

// pick gives the first values from a list, those from lo to hi-1 as one value
// and the others as another.
func pick(v int, first []float32, lo, hi int, inside, outside float32) float32 {
	switch {
	case v < len(first):
		return first[v]
	case v >= lo && v < hi:
		return inside
	}
	return outside
}

func iq4Levels(v int) float32 {
	if v < 32 {
		return 32 * iq4Values[v%16]
	}
	return iq4Values[v%16]
}

func q3Ramp(v int) float32 {
	if v >= 240 {
		return 0
	}
	return float32(v%8) - 4
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
			in, outWant := spread(n, tc.fill, tc.in), spread(n, tc.outFill, tc.out)
			for v := range in {
				if tc.inFunc != nil {
					in[v] = tc.inFunc(v)
				}
				if tc.outFunc != nil {
					outWant[v] = tc.outFunc(v)
				}
			}
			made := tc.in == nil && tc.inFunc == nil
			c.EncodeRow(got, in, nil)
			if !made && hex.EncodeToString(got) != hex.EncodeToString(want) {
				t.Errorf("encoded %x\nwant    %x", got, want)
			}
			out := make([]float32, n)
			c.Decode(out, want)
			for i, v := range outWant {
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
	tensor.F32:     "(00*4)",
	tensor.F16:     "0000",
	tensor.BF16:    "0000",
	tensor.Q4_0:    "0080 (88*16)",
	tensor.Q4_1:    "(00*20)",
	tensor.Q5_0:    "0080 ffffffff (00*16)",
	tensor.Q5_1:    "(00*24)",
	tensor.Q8_0:    "(00*34)",
	tensor.Q6_K:    "(00*210)",
	tensor.KMCUQ4:  "003c (88*16)",
	tensor.Q1_0:    "0000 (ff*16)",
	tensor.Q2_0:    "0000 (55*16)",
	tensor.Q2_K:    "(00*84)",
	tensor.Q3_K:    "(00*110)",
	tensor.Q4_K:    "(00*144)",
	tensor.Q5_K:    "(00*176)",
	tensor.TQ1_0:   "(80*48) (7f*4) 0000",
	tensor.TQ2_0:   "(55*64) 0000",
	tensor.IQ4_NL:  "0000 (88*16)",
	tensor.IQ4_XS:  "0080 aaaa (00*4) (88*128)",
	tensor.MXFP4:   "(00*17)",
	tensor.NVFP4:   "(00*36)",
	tensor.IQ1_S:   "(00*50)",
	tensor.IQ1_M:   "(00*56)",
	tensor.IQ2_XXS: "(00*66)",
	tensor.IQ2_XS:  "(00*74)",
	tensor.IQ2_S:   "(00*82)",
	tensor.IQ3_XXS: "(00*98)",
	tensor.IQ3_S:   "(00*110)",
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

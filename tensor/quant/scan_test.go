package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"quern/tensor"
)

var (
	nan32  = float32(math.NaN())
	inf32  = float32(math.Inf(1))
	ninf32 = float32(math.Inf(-1))
)

func TestScan(t *testing.T) {
	x := spread(1000, 0.5, at{
		7: nan32, 500: nan32,
		13: ninf32, 14: inf32,
		20: 65520, 21: -1e5, 22: 3.4e38, 999: 65519.996,
		31: 2.9802322e-08, 32: -1e-45, 33: 2.9802326e-08, 34: 0,
	})
	for _, tc := range []struct {
		typ  tensor.Type
		want Loss
	}{
		{tensor.F32, Loss{NaN: Count{2, 107, math.NaN()}, Inf: Count{2, 113, math.Inf(-1)}}},
		{tensor.Q8_0, Loss{NaN: Count{2, 107, math.NaN()}, Inf: Count{2, 113, math.Inf(-1)}}},
		{tensor.F16, Loss{NaN: Count{2, 107, math.NaN()}, Inf: Count{2, 113, math.Inf(-1)},
			Overflow: Count{3, 120, 65520}, Flush: Count{2, 131, float64(float32(2.9802322e-08))}}},
		{tensor.BF16, Loss{NaN: Count{2, 107, math.NaN()}, Inf: Count{2, 113, math.Inf(-1)},
			Overflow: Count{1, 122, float64(float32(3.4e38))}, Flush: Count{1, 132, float64(float32(-1e-45))}}},
	} {
		var whole, pieces Loss
		Scan(&whole, tc.typ, 100, x)
		// Pieces, out of order, merge to the same.
		for _, cut := range [][2]int{{600, 1000}, {10, 14}, {0, 10}, {14, 600}} {
			var l Loss
			Scan(&l, tc.typ, 100+int64(cut[0]), x[cut[0]:cut[1]])
			pieces.Merge(l)
		}
		for _, got := range []Loss{whole, pieces} {
			if !math.IsNaN(got.NaN.Value) {
				t.Errorf("%s: NaN reported as %v", tc.typ, got.NaN.Value)
			}
			got.NaN.Value, tc.want.NaN.Value = 0, 0
			if got != tc.want {
				t.Errorf("%s: %+v\nwant %+v", tc.typ, got, tc.want)
			}
			if got.Finite() {
				t.Errorf("%s: finite", tc.typ)
			}
		}
	}
	var l Loss
	Scan(&l, tensor.F16, 0, spread(64, 1e-9, nil))
	if !l.Finite() || l.Flush != (Count{64, 0, float64(float32(1e-9))}) {
		t.Errorf("flushes only: %+v", l)
	}
}

// TestScanAgreesWithConversion: what Scan calls overflow or flush is what the
// conversions do, over random patterns.
func TestScanAgreesWithConversion(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 300000 {
		v := math.Float32frombits(rng.Uint32())
		if rng.IntN(8) == 0 {
			v = edgeFloats[rng.IntN(len(edgeFloats))]
		}
		finite := v-v == 0
		for typ, back := range map[tensor.Type]float32{tensor.F16: FromF16(ToF16(v)), tensor.BF16: FromBF16(ToBF16(v))} {
			var l Loss
			Scan(&l, typ, 0, []float32{v})
			if (l.Overflow.N == 1) != (finite && math.IsInf(float64(back), 0)) || (l.Flush.N == 1) != (v != 0 && back == 0) ||
				(l.NaN.N == 1) != (v != v) || (l.Inf.N == 1) != math.IsInf(float64(v), 0) {
				t.Fatalf("%s of %v is %v: %+v", typ, v, back, l)
			}
		}
	}
}

func TestScanF64(t *testing.T) {
	values := []float64{1, math.NaN(), math.Inf(1), 0, -1e39, math.MaxFloat32, 0x1.ffffffp127, math.Nextafter(0x1.ffffffp127, 0),
		0x1p-150, -0x1p-200, math.Nextafter(0x1p-150, 1), 5e-324}
	src := make([]byte, 8*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint64(src[8*i:], math.Float64bits(v))
	}
	var l Loss
	ScanF64(&l, 10, src)
	l.NaN.Value = 0
	want := Loss{NaN: Count{1, 11, 0}, Inf: Count{1, 12, math.Inf(1)}, Overflow: Count{2, 14, -1e39}, Flush: Count{3, 18, 0x1p-150}}
	if l != want {
		t.Errorf("%+v\nwant %+v", l, want)
	}
	for i, v := range values {
		var l Loss
		ScanF64(&l, 0, src[8*i:8*i+8])
		f := float64(float32(v))
		if (l.Overflow.N == 1) != (!math.IsInf(v, 0) && math.IsInf(f, 0)) || (l.Flush.N == 1) != (v != 0 && f == 0) {
			t.Errorf("%v to %v: %+v", v, f, l)
		}
	}
}

func TestFirstBadBlock(t *testing.T) {
	// Where a block of each type keeps what must be finite, and a bad value.
	bad := map[tensor.Type][]struct {
		at   int
		data string
	}{
		tensor.F64:    {{0, "000000000000f07f"}, {0, "010000000000f0ff"}},
		tensor.F32:    {{0, "0000807f"}, {0, "ffffffff"}},
		tensor.F16:    {{0, "007c"}, {0, "01fc"}},
		tensor.BF16:   {{0, "807f"}, {0, "ffff"}},
		tensor.F8E4M3: {{0, "7f"}, {0, "ff"}},
		tensor.F8E5M2: {{0, "7c"}, {0, "ff"}},
		tensor.Q4_0:   {{0, "007c"}},
		tensor.Q4_1:   {{0, "007c"}, {2, "ffff"}},
		tensor.Q5_1:   {{0, "00fc"}, {2, "007e"}},
		tensor.Q8_0:   {{0, "00fc"}},
		tensor.Q2_K:   {{80, "007c"}, {82, "007c"}},
		tensor.Q3_K:   {{108, "007c"}},
		tensor.Q4_K:   {{0, "007c"}, {2, "007c"}},
		tensor.Q6_K:   {{208, "007c"}},
		tensor.TQ1_0:  {{52, "007c"}},
		tensor.TQ2_0:  {{64, "007c"}},
		tensor.IQ1_M:  {{48, "00000000" + "00c0" + "0070"}, {48, "00000000" + "00f0" + "00f0"}},
		tensor.MXFP4:  {{0, "ff"}},
		tensor.KMCUQ4: {{0, "007c"}},
	}
	for typ, list := range bad {
		size := int(typ.BlockBytes())
		data := make([]byte, 5*size)
		if i := FirstBadBlock(typ, data); i != -1 {
			t.Errorf("%s: zeros have bad block %d", typ, i)
		}
		for _, b := range list {
			copy(data[3*size+b.at:], expand(t, b.data))
			if i := FirstBadBlock(typ, data); i != 3 {
				t.Errorf("%s %s at %d: bad block %d, want 3", typ, b.data, b.at, i)
			}
			clear(data)
		}
	}
	// The largest finite scale is not bad, and no other byte is looked at.
	for _, typ := range []tensor.Type{tensor.Q8_0, tensor.Q4_0, tensor.Q5_0} {
		b := make([]byte, typ.BlockBytes())
		for i := range b {
			b[i] = 0xff
		}
		b[1] = 0x7b
		if i := FirstBadBlock(typ, b); i != -1 {
			t.Errorf("%s: scale 65504 is bad", typ)
		}
	}
	if i := FirstBadBlock(tensor.I32, make([]byte, 16)); i != -1 {
		t.Errorf("I32: %d", i)
	}
}

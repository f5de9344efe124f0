package quant

import (
	"bytes"
	"path/filepath"
	"testing"

	"quern/tensor"
)

// TestKMCUGolden encodes two matrices of a trained model whose blocks the
// KMCU reference writer made; the second has rows that need padding.
func TestKMCUGolden(t *testing.T) {
	for _, tc := range []struct {
		name string
		cols int
	}{{"L0.q", 64}, {"L0.down", 172}} {
		base := filepath.Join("testdata", "kmcu", tc.name)
		x, want := readFloats(t, base+".f32"), readFile(t, base+".q4")
		pad := (tc.cols + 31) / 32 * 32
		var padded []float32
		for ; len(x) > 0; x = x[tc.cols:] {
			padded = append(append(padded, x[:tc.cols]...), make([]float32, pad-tc.cols)...)
		}
		got := encodeRows(t, tensor.KMCUQ4, padded, pad, nil)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d; first difference at %d", tc.name, len(got), len(want), firstDiff(got, want))
		}
	}
}

// TestKMCUScaleOverflow: the largest weight with a finite F16 scale is just
// under 8 * 65520.
func TestKMCUScaleOverflow(t *testing.T) {
	for _, tc := range []struct {
		v   float32
		bad int64
	}{{524159.97, -1}, {524160, 1}, {-524160, 1}, {3e38, 1}} {
		c, err := NewConverter(tensor.KMCUQ4, tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		x := spread(96, 0.25, at{40: tc.v})
		src, dst := make([]byte, 4*len(x)), make([]byte, 3*18)
		(f32{}).EncodeRow(src, x, nil)
		if err := c.Rows(dst, src, 96, nil); err != nil {
			t.Fatal(err)
		}
		if got := FirstBadBlock(tensor.KMCUQ4, dst); got != tc.bad {
			t.Errorf("%v: bad block %d, want %d", tc.v, got, tc.bad)
		}
		want := Count{}
		if tc.bad >= 0 {
			want = Count{N: 1, First: 32, Value: float64(tc.v)}
		}
		if got := c.Loss().BadBlock; got != want {
			t.Errorf("%v: %+v, want %+v", tc.v, got, want)
		}
	}
}

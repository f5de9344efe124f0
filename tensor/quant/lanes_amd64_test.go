//go:build !noasm

package quant

import (
	"testing"
	"unsafe"
)

// TestLanesLayout holds the offsets that the generator knows against the type.
func TestLanesLayout(t *testing.T) {
	var s laneGroups
	for i, got := range []uintptr{
		unsafe.Offsetof(s.x), unsafe.Offsetof(s.w), unsafe.Offsetof(s.codes), unsafe.Offsetof(s.scales),
		unsafe.Offsetof(s.mins), unsafe.Offsetof(s.by), unsafe.Offsetof(s.from), unsafe.Offsetof(s.sumW),
		unsafe.Offsetof(s.sumX), unsafe.Offsetof(s.high), unsafe.Offsetof(s.lowest), unsafe.Offsetof(s.best),
		unsafe.Offsetof(s.alive), unsafe.Offsetof(s.low), unsafe.Sizeof(s),
	} {
		want := uintptr(1024 * i)
		if i > 3 {
			want = uintptr(3072 + 32*(i-3))
		}
		if got != want {
			t.Errorf("field %d lies at %d, want %d", i, got, want)
		}
	}
}

// TestLanesAccept: ordinary values stay in lanes.
func TestLanesAccept(t *testing.T) {
	if !useAVX2 {
		return
	}
	x, w := benchFloats(256), benchFloats(256)
	for i := range w {
		w[i] = w[i] * w[i]
	}
	var s lanes
	for _, tc := range []struct {
		weights []float32
		size    int
		fit     *affineFit
		n       int32
	}{
		{nil, 32, &q4Fit, 15}, {w, 32, &importanceFit, 15}, {nil, 32, &q5Fit, 31},
		{nil, 16, &q2Fit, 3}, {w, 16, &importanceFit, 3},
	} {
		s.load(0, x, tc.weights, 1e-4, tc.size, tc.fit)
		if !s.affine(1, tc.size, tc.fit, tc.n) {
			t.Errorf("groups of %d, codes to %d, weights %t: refused", tc.size, tc.n, tc.weights != nil)
		}
	}
}

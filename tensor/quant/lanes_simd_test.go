//go:build (amd64 || arm64) && !noasm

package quant

import (
	"math"
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
	if !useSIMD {
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

// TestLanesLevels: the means that the lanes compare with are where the scalar
// comparison of two differences turns, to the last place, and what is no number
// takes the same code.
func TestLanesLevels(t *testing.T) {
	if !useSIMD {
		return
	}
	x := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32}
	for i, v := range iq4Values {
		around := []float32{v}
		if i > 0 {
			around = append(around, (v+iq4Values[i-1])/2)
		}
		for _, a := range around {
			for ulps := int32(-40); ulps <= 40; ulps++ {
				x = append(x, math.Float32frombits(uint32(int32(math.Float32bits(a))+ulps)))
			}
		}
	}
	for len(x)%32 != 0 {
		x = append(x, 0)
	}
	for len(x) > 0 {
		var got [16]byte
		by := float32(1)
		codesIQ4SIMD(&got[0], &x[0], &by, 1, 16)
		for i, v := range x[:32] {
			if q := got[i&15] >> (i >> 4 * 4) & 15; q != nearestIQ4(v) {
				t.Errorf("%v (%#x) has code %d, want %d", v, math.Float32bits(v), q, nearestIQ4(v))
			}
		}
		x = x[32:]
	}
}

//go:build (amd64 || arm64) && !noasm

package quant

import (
	"testing"
	"unsafe"
)

// TestGridLanesLayout holds the offsets that the generator knows against the
// types.
func TestGridLanesLayout(t *testing.T) {
	var l latticeLanes
	var s splitLanes
	for name, fields := range map[string][]struct{ offset, bytes uintptr }{
		"latticeLanes": {
			{unsafe.Offsetof(l.x), 1024}, {unsafe.Offsetof(l.w), 1024}, {unsafe.Offsetof(l.root), 1024},
			{unsafe.Offsetof(l.starts), 8 * 160}, {unsafe.Offsetof(l.keys), 8 * 160},
			{unsafe.Offsetof(l.ids), 128}, {unsafe.Offsetof(l.scales), 128},
			{unsafe.Offsetof(l.sumqx), 128}, {unsafe.Offsetof(l.sumq2), 128},
			{unsafe.Offsetof(l.tops), 128}, {unsafe.Offsetof(l.lows), 128},
			{unsafe.Offsetof(l.signs), 32}, {unsafe.Offsetof(l.terms), 24 * 160},
		},
		"splitLanes": {
			{unsafe.Offsetof(s.x), 1024}, {unsafe.Offsetof(s.w), 1024}, {unsafe.Offsetof(s.rank), 1024},
			{unsafe.Offsetof(s.sumX), 2 * 33 * 32}, {unsafe.Offsetof(s.sumW), 2 * 33 * 32}, {unsafe.Offsetof(s.last), 4 * 33 * 32},
			{unsafe.Offsetof(s.scale), 32}, {unsafe.Offsetof(s.best), 32}, {unsafe.Offsetof(s.cut), 32}, {unsafe.Offsetof(s.top), 32},
			{unsafe.Offsetof(s.first), 64}, {unsafe.Offsetof(s.total), 128}, {unsafe.Offsetof(s.keys), 128},
		},
	} {
		var at uintptr
		for i, f := range fields {
			if f.offset != at {
				t.Errorf("%s: field %d lies at %d, want %d", name, i, f.offset, at)
			}
			at += f.bytes
		}
	}
}

// TestGridLanesAccept: ordinary values stay in lanes.
func TestGridLanesAccept(t *testing.T) {
	if !useSIMD {
		return
	}
	x, w := benchFloats(256), benchFloats(256)
	for i := range w {
		w[i] = w[i] * w[i]
	}
	for _, scale := range []float32{1, 1e-3, 1e6} {
		for i := range x {
			x[i] = float32(x[i] * scale)
		}
		sigma2 := sumSquares(x) / 256
		for _, weights := range [][]float32{nil, w} {
			for name, f := range map[string]*latticeFit{"IQ2_XXS": fitIQ2_XXS(), "IQ2_XS": fitIQ2_XS(), "IQ2_S": fitIQ2_S(), "IQ3_XXS": fitIQ3_XXS(), "IQ3_S": fitIQ3_S()} {
				s := newLatticeLanes(f)
				if !s.load(x, weights, sigma2, sigma2) {
					t.Errorf("%s, weights %t: superblock refused", name, weights != nil)
				}
				for i := range 256 / f.group {
					if _, _, able := s.fitGroup(new(latticeGroup), i); !able {
						t.Errorf("%s, weights %t: group %d refused", name, weights != nil, i)
					}
				}
			}
			for _, n := range []int{16, 32} {
				s, _ := newSplitLanes()
				if !s.load(x, weights, sigma2, n) {
					t.Errorf("cuts of %d, weights %t: superblock refused", n, weights != nil)
				}
				for b := range 256 / n {
					if _, _, _, ok := s.found(b); !ok {
						t.Errorf("cuts of %d, weights %t: block %d refused", n, weights != nil, b)
					}
				}
			}
		}
	}
}

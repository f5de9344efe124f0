package quant

import (
	"math"
	"testing"

	"github.com/x448/float16"
)

// TestHalfAgainstLibrary holds both directions against a library that was
// written independently. NaN differ on purpose: ggml drops their payload.
func TestHalfAgainstLibrary(t *testing.T) {
	for i := range 1 << 16 {
		want := float16.Frombits(uint16(i)).Float32()
		if got := FromF16(uint16(i)); math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
			t.Fatalf("%04x: %g, the library says %g", i, got, want)
		}
	}
	state := uint32(1)
	for range 1 << 20 {
		state = state*1664525 + 1013904223
		v := math.Float32frombits(state)
		if v != v {
			continue
		}
		if got, want := ToF16(v), float16.Fromfloat32(v).Bits(); got != want {
			t.Fatalf("%08x: %04x, the library says %04x", state, got, want)
		}
	}
}

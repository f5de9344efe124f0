package convert

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"quern/tensor"
)

// TestHalvesAreRunInFull: the converter rounds a norm of halves plus 1 to a half;
// transformers, and so the runtime, add 1 in float32.
func TestHalvesAreRunInFull(t *testing.T) {
	const bits, value = 0x2fff, 0.12494 // 1 + 0x2fff as a half lies between two halves
	src := &tensor.Tensor{Name: "norm", Type: tensor.F16, Shape: tensor.Shape{1}, Src: tensor.SourceFunc(func(_ context.Context, dst []byte, _, _ int64) error {
		binary.LittleEndian.PutUint16(dst, bits)
		return nil
	})}
	src.Key = tensor.Derive("test", "")
	got := map[bool]float32{}
	keys := map[string]bool{}
	for _, runtime := range []bool{false, true} {
		w := &walker{scratch: &buffers{}, runtime: runtime}
		x := w.addOne(src)
		b := make([]byte, 4)
		if err := x.ReadRows(t.Context(), b, 0, 1); err != nil {
			t.Fatal(err)
		}
		got[runtime] = math.Float32frombits(binary.LittleEndian.Uint32(b))
		keys[x.Key.String()] = true
	}
	if got[false] != 1.125 || got[true] == 1.125 || math.Abs(float64(got[true])-1-value) > 1e-4 {
		t.Errorf("in a file %v, at run time %v", got[false], got[true])
	}
	if len(keys) != 2 {
		t.Error("the two have one key")
	}
}

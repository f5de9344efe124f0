package needle

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"quern/tensor"
	"quern/tensor/quant"
)

// adapter makes one for a kernel of the checkpoint with numbers that give exact
// sums.
func adapter(path string, kernel tensor.Shape, rank int64) *Adapter {
	lead := kernel[:len(kernel)-2]
	a := slices.Concat(lead, tensor.Shape{kernel[len(kernel)-2], rank})
	b := slices.Concat(lead, tensor.Shape{rank, kernel[len(kernel)-1]})
	return &Adapter{Name: "adapter", Scale: 0.5, Parts: map[string]AdapterPart{path: {numbersOf("a", a), numbersOf("b", b)}}}
}

func TestMerge(t *testing.T) {
	m := third(t, nil)
	path := blockPrefix + "self_attn/v_proj/kernel"
	old := m.Tensor(path)
	ad := adapter(path, old.Shape, 3)
	merged, err := Merge(m, ad)
	if err != nil {
		t.Fatal(err)
	}
	if merged.Tensor("confidence_head/probes") != nil || len(write(t, mustArchive(t, merged)).Heads) != 2 {
		t.Error("the confidence head is still there")
	}
	f16 := func(b []byte, i int) float64 { return float64(quant.FromF16(binary.LittleEndian.Uint16(b[2*i:]))) }
	was, is := bytesOf(t, old), bytesOf(t, merged.Tensor(path))
	a, b := bytesOf(t, ad.Parts[path].A), bytesOf(t, ad.Parts[path].B)
	changed := 0
	for l := range 5 {
		for i := range 64 {
			for o := range 16 {
				var d float64
				for r := range 3 {
					d += float64(f16(a, (l*64+i)*3+r) * f16(b, (l*3+r)*16+o))
				}
				at := (l*64+i)*16 + o
				want := f16(was, at) + d/2
				if got := f16(is, at); math.Abs(got-want) > float64(1e-3*math.Abs(want))+1e-3 {
					t.Fatalf("layer %d, %d, %d: %v, want %v", l, i, o, got, want)
				} else if got != f16(was, at) {
					changed++
				}
			}
		}
	}
	if changed < 4000 {
		t.Errorf("only %d of 5120 weights changed", changed)
	}
	for _, c := range []struct {
		name string
		ad   *Adapter
	}{
		{"another model's", adapter("stack/other", tensor.Shape{5, 64, 16}, 3)},
		{"other layers", adapter(path, tensor.Shape{4, 64, 16}, 3)},
		{"other width", adapter(path, tensor.Shape{5, 64, 15}, 3)},
		{"other rows", adapter(path, tensor.Shape{5, 63, 16}, 3)},
		{"half of it", &Adapter{Parts: map[string]AdapterPart{path: {A: numbersOf("a", tensor.Shape{5, 64, 3})}}}},
	} {
		if _, err := Merge(m, c.ad); !errors.Is(err, ErrAdapter) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

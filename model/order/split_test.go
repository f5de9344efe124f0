package order

import (
	"errors"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/tensor"
)

// fileOf lays out an empty file of a model, its keys filled in.
func fileOf(t *testing.T, meta *gguf.Metadata, specs []gguf.TensorSpec) *gguf.File {
	t.Helper()
	l, err := gguf.NewLayout(meta, specs, gguf.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, l.Size)
	copy(b, l.Header)
	f, err := gguf.Open(t.Context(), "f", tensor.BytesBlob("f", b), gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestSplit: the bytes to map are those in front of the first expert, whatever the
// alignment, and keys that say otherwise are found out.
func TestSplit(t *testing.T) {
	for _, align := range []int64{0, 64, 4096, 16 << 10} {
		m := last(t, mixed(t), align)
		meta, _, err := Place(m.Meta, specs(m), false)
		if err != nil {
			t.Fatal(err)
		}
		f := fileOf(t, meta, specs(m))
		s, ok, err := SplitOf(f)
		first := f.Find("blk.0.ffn_down_exps.weight")
		if err != nil || !ok || s.Offset != first.Offset || align > 0 && s.Offset%align != 0 || f.Size-s.Offset-s.Bytes >= f.Alignment {
			t.Errorf("align %d: %+v, %v, %v; the first expert is at %d of %d", align, s, ok, err, first.Offset, f.Size)
		}
		for _, c := range []struct {
			key   string
			value gguf.Value
			say   string
		}{
			{KeyOffset, gguf.Scalar(uint64(s.Offset + 32)), "by its tensors"}, {KeyBytes, gguf.Scalar(uint64(1)), "by its tensors"},
			{KeyOffset, gguf.Scalar("here"), KeyOffset},
			{KeyAlign, gguf.Scalar(uint32(1 << 30)), "no multiple"},
		} {
			bad := meta.Clone()
			bad.Set(c.key, c.value)
			_, _, err := SplitOf(fileOf(t, bad, specs(m)))
			if !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), c.say) && !strings.Contains(err.Error(), "by its tensors") {
				t.Errorf("align %d, %s: %v", align, c.key, err)
			}
		}
		// Experts among the others: no cut, and the keys lie.
		in := mixed(t)
		if _, ok, err := SplitOf(fileOf(t, in.Meta, specs(in))); ok || err != nil {
			t.Errorf("not last: %v, %v", ok, err)
		}
		if _, ok, err := SplitOf(fileOf(t, meta, specs(in))); ok || !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), "they are not") {
			t.Errorf("keys without experts last: %v, %v", ok, err)
		}
	}
}

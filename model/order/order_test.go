package order

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/model"
	"quern/tensor"
)

// mixed is a model whose experts stand between other tensors.
func mixed(t *testing.T) *model.Model {
	t.Helper()
	m := &model.Model{Form: model.GGUF, Meta: gguf.NewMetadata(gguf.KV{Key: "general.architecture", Value: gguf.Scalar("llama")})}
	for i, name := range []string{"token_embd.weight", "blk.0.ffn_down_exps.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ffn_up_exps.weight",
		"blk.0.ffn_up_exps.bias", "blk.1.ffn_down_exps.weight", "blk.1.exp_probs_b.bias", "blk.1.ffn_up_shexp.weight", "output.weight"} {
		m.Tensors = append(m.Tensors, &tensor.Tensor{Name: name, Type: tensor.F32, Shape: tensor.Shape{int64(i) + 1, 5}})
		m.Plan = append(m.Plan, model.PlanInfo{From: tensor.F16, Reason: name})
	}
	return m
}

func names(m *model.Model) []string {
	var out []string
	for i, t := range m.Tensors {
		out = append(out, t.Name)
		if m.Info(i).Reason != t.Name {
			out = append(out, "with the plan of "+m.Info(i).Reason)
		}
	}
	return out
}

func specs(m *model.Model) []gguf.TensorSpec {
	var out []gguf.TensorSpec
	for _, t := range m.Tensors {
		out = append(out, gguf.TensorSpec{Name: t.Name, Type: t.Type, Shape: t.Shape})
	}
	return out
}

func last(t *testing.T, m *model.Model, align int64) *model.Model {
	t.Helper()
	out, err := ExpertsLast(m, align)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestExpertsLast(t *testing.T) {
	in := mixed(t)
	before := names(in)
	out := last(t, in, 4096)
	want := []string{"token_embd.weight", "blk.0.ffn_gate_inp.weight", "blk.1.exp_probs_b.bias", "blk.1.ffn_up_shexp.weight", "output.weight",
		"blk.0.ffn_down_exps.weight", "blk.0.ffn_up_exps.weight", "blk.0.ffn_up_exps.bias", "blk.1.ffn_down_exps.weight"}
	if got := names(out); !slices.Equal(got, want) {
		t.Errorf("order is %q", got)
	}
	if !slices.Equal(names(in), before) || in.Meta.Len() != 1 {
		t.Error("the input was changed")
	}
	// Moved twice is told from where it all began.
	for _, m := range []*model.Model{out, last(t, out, 0), last(t, last(t, out, 64), 4096)} {
		back, err := Restore(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(back); !slices.Equal(got, before) || !back.Meta.Equal(in.Meta) {
			t.Errorf("restored: %q, %d keys", got, back.Meta.Len())
		}
	}
}

// TestPlace lays files out with alignments around GGUF's own: the first expert is
// where the keys say, on a multiple, and the filler is shorter than one unit.
func TestPlace(t *testing.T) {
	for _, own := range []uint32{0, 1, 64} {
		for _, align := range []int64{0, 1, 2, 32, 4096, 16 << 10, 1 << 20} {
			m := last(t, mixed(t), align)
			meta := m.Meta.Clone()
			if own > 0 {
				meta.Set(gguf.KeyAlignment, gguf.Scalar(own))
			}
			meta, notes, err := Place(meta, specs(m), false)
			if err != nil || len(notes) != 1 {
				t.Fatal(err, notes)
			}
			l, err := gguf.NewLayout(meta, specs(m), gguf.LayoutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			first, end := l.Tensors[5], l.Tensors[len(l.Tensors)-1]
			if !strings.Contains(notes[0], fmt.Sprintf("begin at byte %d,", first.Offset)) {
				t.Errorf("alignment %d: %s", align, notes[0])
			}
			at, err := meta.Int64(KeyOffset)
			if err != nil || at != first.Offset || align > 0 && at%align != 0 {
				t.Errorf("alignment %d: %s is %d, %v; the first expert is at %d", align, KeyOffset, at, err, first.Offset)
			}
			if n, err := meta.Int64(KeyBytes); err != nil || n != end.Offset+end.Bytes-first.Offset {
				t.Errorf("alignment %d: %s is %d, %v", align, KeyBytes, n, err)
			}
			fill, err := meta.Text(KeyPadding)
			if (err == nil) != (align > 0) || align > 0 && int64(len(fill)) >= align || strings.Trim(fill, " ") != "" {
				t.Errorf("alignment %d: %d bytes of filler, %v", align, len(fill), err)
			}
			again, _, err := Place(meta, specs(m), false)
			if err != nil || !again.Equal(meta) {
				t.Errorf("alignment %d: placed twice is another file: %v", align, err)
			}
		}
	}
}

// TestPlaceDropsKeys: a file that is not in the order does not say that it is.
func TestPlaceDropsKeys(t *testing.T) {
	in := mixed(t)
	m := last(t, in, 4096)
	for name, c := range map[string]struct {
		specs []gguf.TensorSpec
		split bool
		say   string
	}{
		"another order": {specs(in), false, "not last"},
		"no experts":    {specs(m)[:5], false, "not last"},
		"shards":        {specs(m), true, "split"},
	} {
		meta, notes, err := Place(m.Meta, c.specs, c.split)
		if err != nil || !meta.Equal(in.Meta) || len(notes) != 1 || !strings.Contains(notes[0], c.say) {
			t.Errorf("%s: %d keys, %q, %v", name, meta.Len(), notes, err)
		}
	}
	if meta, notes, err := Place(in.Meta, specs(in), false); meta != in.Meta || notes != nil || err != nil {
		t.Errorf("a file without keys: %q, %v", notes, err)
	}
}

func TestRefusals(t *testing.T) {
	dense := mixed(t)
	dense.Tensors = dense.Tensors[:1]
	hf := mixed(t)
	hf.Form = model.HF
	for name, c := range map[string]struct {
		m     *model.Model
		align int64
		say   string
	}{
		"no experts":     {dense, 0, "no experts"},
		"another form":   {hf, 0, "convert"},
		"no power":       {mixed(t), 48, "power of two"},
		"negative":       {mixed(t), -1, "power of two"},
		"far too large":  {mixed(t), 1 << 40, "power of two"},
		"the lowest int": {mixed(t), -1 << 63, "power of two"},
	} {
		if _, err := ExpertsLast(c.m, c.align); !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		order gguf.Value
		say   string
	}{
		"no order":        {gguf.Value{}, "no key"},
		"text":            {gguf.Scalar("x"), KeyOrder},
		"too few":         {gguf.List([]uint32{0, 1}), "came or went"},
		"twice":           {gguf.List([]uint32{0, 1, 2, 3, 4, 5, 6, 7, 7}), "entry 8 is 7"},
		"past the end":    {gguf.List([]uint32{0, 1, 2, 3, 4, 5, 6, 7, 9}), "entry 8 is 9"},
		"far too large":   {gguf.List([]uint64{0, 1, 2, 3, 4, 5, 6, 7, 1 << 40}), KeyOrder},
		"negative places": {gguf.List([]int32{0, 1, 2, 3, 4, 5, 6, 7, -1}), KeyOrder},
	} {
		m := mixed(t)
		if c.order.Valid() {
			m.Meta.Set(KeyOrder, c.order)
		}
		if _, err := Restore(m); !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m := last(t, mixed(t), 4096)
	for _, v := range []gguf.Value{gguf.Scalar("x"), gguf.Scalar(uint32(48)), gguf.Scalar(uint32(0)), gguf.Scalar(uint64(1 << 40))} {
		meta := m.Meta.Clone()
		meta.Set(KeyAlign, v)
		if _, _, err := Place(meta, specs(m), false); !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), KeyAlign) {
			t.Errorf("%s of %v: %v", KeyAlign, v, err)
		}
	}
}

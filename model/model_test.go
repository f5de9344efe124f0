package model_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/convert"
	"quern/model/modeltest"
	"quern/tensor"
)

func stories(t *testing.T, name string) *model.Model {
	t.Helper()
	files, err := modeltest.Build(name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.LoadHF(t.Context(), files, model.HFOptions{Source: "base"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDims(t *testing.T) {
	want := map[string]model.Dims{
		"stories260k":  {Family: model.Llama, Vocab: 512, Hidden: 64, Layers: 5, Heads: 8, KVHeads: 4, HeadDim: 8, FFN: 172, Context: 512, RopeTheta: 10000, NormEps: 1e-5, Tied: true},
		"stories-wide": {Family: model.Llama, Vocab: 512, Hidden: 256, Layers: 5, Heads: 8, KVHeads: 4, HeadDim: 32, FFN: 256, Context: 512, RopeTheta: 10000, NormEps: 2.5e-6},
		"stories-moe": {Family: model.Llama, Vocab: 512, Hidden: 64, Layers: 5, Heads: 8, KVHeads: 4, HeadDim: 8, FFN: 172, Context: 512,
			Experts: 8, ExpertsUsed: 2, ExpertFFN: 172, RopeTheta: 10000, NormEps: 1e-5, Tied: true},
		"tiny-qwen3moe": {Family: model.Qwen3MoE, Vocab: 151936, Hidden: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 96, Context: 40960,
			Experts: 12, ExpertsUsed: 3, ExpertFFN: 40, RopeTheta: 1e6, NormEps: 1e-6},
	}
	for name, w := range want {
		m := stories(t, name)
		d, err := m.Dims()
		if err != nil {
			t.Fatal(err)
		}
		if *d != w {
			t.Errorf("%s: %+v\nwant %+v", name, *d, w)
		}
		// The same sizes come out of the converted form.
		g, err := convert.ToGGUF(t.Context(), m, convert.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d, err = g.Dims()
		if err != nil {
			t.Fatal(err)
		}
		w.NormEps = float64(float32(w.NormEps))
		if *d != w {
			t.Errorf("%s as GGUF: %+v\nwant %+v", name, *d, w)
		}
	}
}

func TestDimsErrors(t *testing.T) {
	m := stories(t, "stories260k")
	for key, v := range map[string]any{"num_attention_heads": 0, "hidden_size": "64", "vocab_size": 500, "head_dim": 16, "num_key_value_heads": 3, "rms_norm_eps": nil} {
		b, err := m.WithConfig(model.Setting{Key: key, Value: v})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Dims(); !errors.Is(err, model.ErrConfig) && !errors.Is(err, model.ErrTensors) {
			t.Errorf("%s = %v: error %v", key, v, err)
		}
	}
	if d, err := m.Dims(); err != nil || d.Hidden != 64 {
		t.Errorf("the original changed: %+v %v", d, err)
	}
	if _, err := (&model.Model{Form: model.KMCU}).Dims(); !errors.Is(err, model.ErrForm) {
		t.Errorf("error %v", err)
	}
	if _, err := (&model.Model{Form: model.GGUF}).WithConfig(); !errors.Is(err, model.ErrForm) {
		t.Errorf("error %v", err)
	}
	meta := gguf.NewMetadata(gguf.KV{Key: "general.architecture", Value: gguf.Scalar("llama")})
	if _, err := model.FromGGUF("x", meta, nil).Dims(); !errors.Is(err, gguf.ErrNoKey) {
		t.Errorf("error %v", err)
	}
}

func TestLoadErrors(t *testing.T) {
	_, err := model.LoadHF(t.Context(), modeltest.New("empty", nil), model.HFOptions{})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("error %v", err)
	}
	_, err = model.LoadHF(t.Context(), modeltest.New("bad", map[string][]byte{"config.json": []byte("{")}), model.HFOptions{})
	if !errors.Is(err, model.ErrConfig) {
		t.Errorf("error %v", err)
	}
}

func TestModelCopies(t *testing.T) {
	m := stories(t, "stories260k")
	if m.Name != "stories260k" || m.Form != model.HF || m.Tensors[0].Origin[0].Source != "base" || m.Tensors[0].Key.IsZero() {
		t.Errorf("%s %v %+v", m.Name, m.Form, m.Tensors[0])
	}
	q := m.ByRole(model.AttnQ, 3, ".weight")
	if q == nil || q.Name != "model.layers.3.self_attn.q_proj.weight" || m.ByRole(model.AttnQ, 5, ".weight") != nil || m.ByRole(model.Output, -1, ".weight") != nil {
		t.Errorf("%+v", q)
	}
	g, err := convert.ToGGUF(t.Context(), m, convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if x := g.ByRole(model.FFNDown, 2, ".weight"); x == nil || x.Name != "blk.2.ffn_down.weight" {
		t.Errorf("%+v", x)
	}
	// Plan entries follow their tensors.
	extra := &tensor.Tensor{Name: "extra", Type: tensor.F16}
	r := g.WithTensors([]*tensor.Tensor{extra, g.Tensors[1], g.Tensors[0]})
	if r.Info(1) != g.Info(1) || r.Info(2) != g.Info(0) || r.Info(0) != (model.PlanInfo{From: tensor.F16}) {
		t.Errorf("%+v", r.Plan)
	}
	if len(g.Plan) != len(g.Tensors) || m.Info(0).From != tensor.F32 || m.Info(0).Reason != "" {
		t.Errorf("%+v", m.Info(0))
	}
	n := m.WithNotes(model.Note{Subject: "a", Text: "b"})
	if len(n.Notes) != len(m.Notes)+1 || n.Notes[len(m.Notes)].String() != "a: b" || (model.Note{Text: "b"}).String() != "b" {
		t.Errorf("%v", n.Notes)
	}
	if w := m.WithPlan(m.Tensors[:1], []model.PlanInfo{{Reason: "x"}}); w.Info(0).Reason != "x" || len(m.Plan) != 0 {
		t.Error("WithPlan")
	}
}

// A written file loads again, with the same bytes below.
func TestLoadGGUF(t *testing.T) {
	g, err := convert.ToGGUF(t.Context(), stories(t, "stories260k"), convert.Options{OutType: "q8_0"})
	if err != nil {
		t.Fatal(err)
	}
	var specs []gguf.TensorSpec
	for _, x := range g.Tensors {
		specs = append(specs, gguf.TensorSpec{Name: x.Name, Type: x.Type, Shape: x.Shape})
	}
	l, err := gguf.NewLayout(g.Meta, specs, gguf.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := l.WriteTo(t.Context(), &file, g.Tensors); err != nil {
		t.Fatal(err)
	}
	open := func(_ context.Context, name string) (tensor.Blob, error) {
		return tensor.BytesBlob(name, file.Bytes()), nil
	}
	m, set, err := model.LoadGGUF(t.Context(), "dir/stories.gguf", open, gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if m.Name != "stories.gguf" || !m.Meta.Equal(g.Meta) || len(m.Tensors) != len(g.Tensors) {
		t.Errorf("%s: %d tensors", m.Name, len(m.Tensors))
	}
	for i, x := range m.Tensors {
		a, b := make([]byte, x.Bytes()), make([]byte, x.Bytes())
		if err := errors.Join(x.ReadRows(t.Context(), a, 0, x.Rows()), g.Tensors[i].ReadRows(t.Context(), b, 0, x.Rows())); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs, %v", x.Name, err)
		}
	}
	if m.WithMeta(gguf.NewMetadata()).Meta.Len() != 0 || m.Meta.Len() == 0 {
		t.Error("WithMeta")
	}
}

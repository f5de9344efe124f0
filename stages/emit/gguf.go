// Package emit holds the emitters: what lays out one output file.
package emit

import (
	"context"
	"fmt"
	"strings"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/convert"
	"quern/model/order"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
)

// MediaTypeGGUF is the type of a GGUF file in manifests.
const MediaTypeGGUF = "application/vnd.quern.gguf.v3"

// GGUF lays out a GGUF file of version 3, or the shards of one. A model in
// Hugging Face form is converted as convert_hf_to_gguf.py does.
type GGUF struct {
	out  recipes.Output
	keep bool
}

// NewGGUF makes the emitter of a gguf output.
func NewGGUF(out recipes.Output) *GGUF { return &GGUF{out: out} }

// NewKeptSplit makes the emitter of shards that hold what the shards of the
// source hold, as llama-quantize --keep-split writes them. The model's tensors
// must be in the source's order.
func NewKeptSplit(out recipes.Output) *GGUF { return &GGUF{out: out, keep: true} }

// Plan lays out the file.
func (e *GGUF) Plan(ctx context.Context, in *model.Model) (*pipeline.Layout, error) {
	ls, err := e.PlanSet(ctx, in)
	if err != nil {
		return nil, err
	}
	if len(ls) != 1 {
		return nil, fmt.Errorf("%s: the output is a set of %d files", e.out.File, len(ls))
	}
	return ls[0], nil
}

// PlanSet lays out the file or, where the output is split, its shards.
func (e *GGUF) PlanSet(ctx context.Context, in *model.Model) ([]*pipeline.Layout, error) {
	if in.Form != model.HF && in.Form != model.GGUF {
		return nil, fmt.Errorf("%w: the model is in %s form; GGUF files are made from Hugging Face models and GGUF files", model.ErrForm, in.Form)
	}
	m := in
	if m.Form == model.HF {
		outType := e.out.OutType
		if outType == "" {
			outType = "f16"
		}
		g, err := convert.ToGGUF(ctx, m, convert.Options{OutType: outType})
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		m = g
	}
	specs := make([]gguf.TensorSpec, len(m.Tensors))
	for i, t := range m.Tensors {
		specs[i] = gguf.TensorSpec{Name: t.Name, Type: t.Type, Shape: t.Shape}
	}
	meta, warnings, err := order.Place(m.Meta, specs, e.split())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.out.File, err)
	}
	m = m.WithMeta(meta)
	shards, more, err := e.shards(m, specs)
	if err != nil {
		return nil, err
	}
	warnings = append(warnings, more...)
	out := make([]*pipeline.Layout, len(shards))
	for k, s := range shards {
		l := &pipeline.Layout{
			File: s.Name, Format: "gguf", MediaType: MediaTypeGGUF, Version: "gguf.v1",
			Header: s.Layout.Header, Size: s.Layout.Size, Model: m,
		}
		if len(shards) > 1 {
			end := s.First + len(s.Layout.Tensors)
			l.Model = m.WithTensors(m.Tensors[s.First:end])
		}
		for i, p := range s.Layout.Tensors {
			info := m.Info(s.First + i)
			l.Items = append(l.Items, pipeline.Item{Tensor: m.Tensors[s.First+i], Offset: p.Offset, From: info.From, Reason: info.Reason})
		}
		out[k] = l
	}
	out[0].Notes = warnings
	for _, name := range e.out.Repack {
		l, err := repackCache(out[0], m, name)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// split reports whether the model may be cut into several files.
func (e *GGUF) split() bool { return e.keep || e.out.SplitSize > 0 || e.out.SplitTensors > 0 }

// shards cuts the model into the files that are asked for, mostly one.
func (e *GGUF) shards(m *model.Model, specs []gguf.TensorSpec) ([]gguf.Shard, []string, error) {
	stem := strings.TrimSuffix(e.out.File, ".gguf")
	switch {
	case e.keep:
		shards, err := gguf.PlanShards(stem, m.Meta, specs, sourceCuts(m.Tensors), gguf.LayoutOptions{})
		return shards, nil, err
	case e.split():
		return gguf.PlanSplit(stem, m.Meta, specs, gguf.SplitOptions{
			MaxTensors: int(e.out.SplitTensors), MaxBytes: e.out.SplitSize, NoTensorFirst: e.out.NoTensorFirst}, gguf.LayoutOptions{})
	}
	l, err := gguf.NewLayout(m.Meta, specs, gguf.LayoutOptions{})
	if err != nil {
		return nil, nil, err
	}
	return []gguf.Shard{{Name: e.out.File, Layout: l}}, nil, nil
}

// sourceCuts finds where the source's shards begin. A tensor without data goes
// with the one before it.
func sourceCuts(ts []*tensor.Tensor) []int {
	cuts, shard := []int{0}, 0
	for i, t := range ts {
		if len(t.Origin) == 0 {
			continue
		}
		if _, k, _, ok := gguf.ParseSplitName(t.Origin[0].File); ok {
			for ; shard < k; shard++ {
				cuts = append(cuts, i)
			}
		}
	}
	return append(cuts, len(ts))
}

// Package emit holds the emitters: what lays out one output file.
package emit

import (
	"context"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/convert"
	"quern/pipeline"
	"quern/recipes"
)

// MediaTypeGGUF is the type of a GGUF file in manifests.
const MediaTypeGGUF = "application/vnd.quern.gguf.v3"

// GGUF lays out a GGUF file of version 3. A model in Hugging Face form is
// converted as convert_hf_to_gguf.py does.
type GGUF struct{ out recipes.Output }

// NewGGUF makes the emitter of a gguf output.
func NewGGUF(out recipes.Output) *GGUF { return &GGUF{out} }

// Plan lays out the file.
func (e *GGUF) Plan(ctx context.Context, in *model.Model) (*pipeline.Layout, error) {
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
	l, err := gguf.NewLayout(m.Meta, specs, gguf.LayoutOptions{})
	if err != nil {
		return nil, err
	}
	out := &pipeline.Layout{
		File: e.out.File, Format: "gguf", MediaType: MediaTypeGGUF, Version: "gguf.v1",
		Header: l.Header, Size: l.Size, Model: m,
	}
	for i, t := range m.Tensors {
		info := m.Info(i)
		out.Items = append(out.Items, pipeline.Item{Tensor: t, Offset: l.Tensors[i].Offset, From: info.From, Reason: info.Reason})
	}
	return out, nil
}

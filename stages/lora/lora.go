// Package lora is the step that merges a LoRA adapter into a Needle checkpoint.
package lora

import (
	"context"
	"fmt"

	"quern/formats/pickle"
	"quern/formats/safetensors"
	"quern/model"
	"quern/model/needle"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
)

// Stage is the step.
type Stage struct{ p recipes.Lora }

// New makes the step.
func New(p recipes.Lora) *Stage { return &Stage{p} }

// Name is the step's name.
func (s *Stage) Name() string { return "lora" }

// Plan fails: the adapter is a source.
func (s *Stage) Plan(context.Context, *model.Model) (*model.Model, error) {
	_, err := pipeline.Find(nil, s.p.Adapter)
	return nil, err
}

// PlanWith opens the adapter and links the sums.
func (s *Stage) PlanWith(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*model.Model, error) {
	src, err := pipeline.Find(sources, s.p.Adapter)
	if err != nil {
		return nil, err
	}
	if src.Content == nil {
		return nil, fmt.Errorf("%w: source %s is a model, an adapter is needed", needle.ErrAdapter, src.Name)
	}
	a, err := read(ctx, src)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	if s.p.Scale != nil {
		a.Scale = *s.p.Scale
	}
	return needle.Merge(in, a)
}

// read opens an adapter, a safetensors file or a pickle.
func read(ctx context.Context, src *pipeline.Source) (*needle.Adapter, error) {
	file, key := src.Name, tensor.Key{}
	if len(src.Files) == 1 {
		file = src.Files[0].Path
		if sha := src.Files[0].SHA256; sha != "" {
			key = tensor.Derive("file", sha)
		}
	}
	head := make([]byte, min(4, src.Content.Size()))
	if err := src.Content.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	if pickle.IsPickle(head) {
		return needle.AdapterFromPickle(ctx, file, src.Content, pickle.Options{Source: src.Name, Key: key})
	}
	f, err := safetensors.Open(ctx, file, src.Content, safetensors.Options{Source: src.Name, Key: key})
	if err != nil {
		return nil, err
	}
	return needle.FromAdapter(f)
}

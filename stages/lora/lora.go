// Package lora is the step that merges a LoRA adapter into a Needle checkpoint.
package lora

import (
	"context"
	"fmt"

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
	return nil, fmt.Errorf("%w: no source called %s", pipeline.ErrRecipe, s.p.Adapter)
}

// PlanWith opens the adapter and links the sums.
func (s *Stage) PlanWith(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*model.Model, error) {
	for _, src := range sources {
		if src.Name != s.p.Adapter {
			continue
		}
		if src.Content == nil {
			return nil, fmt.Errorf("%w: source %s is a model, an adapter is needed", needle.ErrAdapter, src.Name)
		}
		opt := safetensors.Options{Source: src.Name}
		file := src.Name
		if len(src.Files) == 1 {
			file = src.Files[0].Path
			if sha := src.Files[0].SHA256; sha != "" {
				opt.Key = tensor.Derive("file", sha)
			}
		}
		f, err := safetensors.Open(ctx, file, src.Content, opt)
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		a, err := needle.FromAdapter(f)
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		if s.p.Scale != nil {
			a.Scale = *s.p.Scale
		}
		return needle.Merge(in, a)
	}
	return s.Plan(ctx, in)
}

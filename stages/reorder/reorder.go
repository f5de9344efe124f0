// Package reorder is the step that moves tensors within a GGUF file: experts last,
// so that a device maps what comes before them and reads experts on demand, and
// where it is told by what, the most used experts first among them.
package reorder

import (
	"context"

	"quern/model"
	"quern/model/convert"
	"quern/model/order"
	"quern/pipeline"
	"quern/recipes"
)

// Stage is the step.
type Stage struct{ p recipes.Reorder }

// New makes the step.
func New(p recipes.Reorder) pipeline.Stage {
	s := &Stage{p}
	if p.By != "" {
		return byUse{s}
	}
	return s
}

// Name is the step's name.
func (s *Stage) Name() string { return "reorder" }

// Plan moves the tensors. A Hugging Face model is brought into GGUF form first.
func (s *Stage) Plan(ctx context.Context, in *model.Model) (*model.Model, error) {
	m, err := inGGUF(ctx, in)
	if err != nil {
		return nil, err
	}
	if s.p.Experts == "restore" {
		return order.Restore(m)
	}
	return order.ExpertsLast(m, s.p.Align)
}

// inGGUF brings a Hugging Face model into GGUF form.
func inGGUF(ctx context.Context, in *model.Model) (*model.Model, error) {
	if in.Form != model.HF {
		return in, nil
	}
	g, err := convert.ToGGUF(ctx, in, convert.Options{OutType: "f16"})
	return g, pipeline.SourceFault(err)
}

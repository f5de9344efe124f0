// Package reorder is the step that moves tensors within a GGUF file: experts last,
// so that a device maps what comes before them and reads experts on demand.
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
func New(p recipes.Reorder) *Stage { return &Stage{p} }

// Name is the step's name.
func (s *Stage) Name() string { return "reorder" }

// Plan moves the tensors. A Hugging Face model is brought into GGUF form first.
func (s *Stage) Plan(ctx context.Context, in *model.Model) (*model.Model, error) {
	m := in
	if m.Form == model.HF {
		g, err := convert.ToGGUF(ctx, in, convert.Options{OutType: "f16"})
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		m = g
	}
	if s.p.Experts == "restore" {
		return order.Restore(m)
	}
	return order.ExpertsLast(m, s.p.Align)
}

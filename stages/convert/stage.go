// Package convert is the step that turns a Hugging Face model into GGUF form,
// as convert_hf_to_gguf.py does. It is implied where GGUF form is needed; as a
// step of its own it chooses the float type that everything after starts from.
package convert

import (
	"context"
	"fmt"

	"quern/model"
	hfgguf "quern/model/convert"
	"quern/pipeline"
	"quern/recipes"
)

// Stage is the step.
type Stage struct{ p recipes.Convert }

// New makes the step.
func New(p recipes.Convert) *Stage { return &Stage{p} }

// Name is the step's name.
func (s *Stage) Name() string { return "convert" }

// Lossy marks the stage as one that may round values.
func (s *Stage) Lossy() {}

// Plan converts the model.
func (s *Stage) Plan(ctx context.Context, in *model.Model) (*model.Model, error) {
	if in.Form != model.HF {
		return nil, fmt.Errorf("the model is in %s form already; convert starts from the Hugging Face form", in.Form)
	}
	out := s.p.OutType
	if out == "" {
		out = "f16"
	}
	m, err := hfgguf.ToGGUF(ctx, in, hfgguf.Options{OutType: out, ModelName: s.p.ModelName, MTP: hfgguf.MTP(s.p.MTP)})
	if err != nil {
		return nil, pipeline.SourceFault(err) // the recipe's part in it was checked before
	}
	return m, nil
}

// Package ladder holds the steps that cut a Needle model to a smaller one that it
// was trained to contain: fewer layers, or half the width.
package ladder

import (
	"context"

	"quern/model"
	"quern/model/needle"
	"quern/recipes"
)

// Layers is the step that cuts to fewer layers.
type Layers struct{ p recipes.Layers }

// NewLayers makes the step.
func NewLayers(p recipes.Layers) *Layers { return &Layers{p} }

// Name is the step's name.
func (s *Layers) Name() string { return "layers" }

// Plan takes the layers of the rung.
func (s *Layers) Plan(_ context.Context, in *model.Model) (*model.Model, error) {
	if err := ofNeedle(in); err != nil {
		return nil, err
	}
	return needle.Layers(in, s.p.Count)
}

// Width is the step that cuts to half the width.
type Width struct{ p recipes.Width }

// NewWidth makes the step.
func NewWidth(p recipes.Width) *Width { return &Width{p} }

// Name is the step's name.
func (s *Width) Name() string { return "width" }

// Plan takes the first half of every axis.
func (s *Width) Plan(_ context.Context, in *model.Model) (*model.Model, error) {
	if err := ofNeedle(in); err != nil {
		return nil, err
	}
	return needle.Width(in, s.p.To)
}

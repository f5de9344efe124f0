package pipeline

import (
	"context"

	"quern/model"
	"quern/tensor"
)

// Gate is a condition that a written file must meet before it gets its name.
type Gate interface {
	Name() string
	Check(ctx context.Context, in GateInput) ([]GateResult, error)
}

// PlacedGate is a gate with the recipe position that errors name.
type PlacedGate struct {
	Gate  Gate
	Where string
}

// GateInput is what a gate may look at.
type GateInput struct {
	Layout    *Layout
	File      tensor.Blob  // the bytes as written
	Reference *model.Model // before the first lossy stage
	Jobs      int
}

// GateResult is one comparison of a gate.
type GateResult struct {
	Gate   string  `json:"gate"`
	Output string  `json:"output"`
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Limit  float64 `json:"limit"`
	Pass   bool    `json:"pass"`
	// Text says the result in words, by how much it failed included.
	Text string `json:"text"`
}

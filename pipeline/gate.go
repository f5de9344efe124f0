package pipeline

import (
	"context"
	"encoding/json"
	"math"

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

// MarshalJSON writes null for values that JSON does not have, such as the
// infinite ratio of tensors that are equal.
func (g GateResult) MarshalJSON() ([]byte, error) {
	type plain GateResult
	return json.Marshal(struct {
		plain
		Value finite `json:"value"`
		Limit finite `json:"limit"`
	}{plain(g), finite(g.Value), finite(g.Limit)})
}

// finite is a number that JSON shows as null unless it is finite.
type finite float64

func (f finite) MarshalJSON() ([]byte, error) {
	if v := float64(f); math.IsInf(v, 0) || math.IsNaN(v) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

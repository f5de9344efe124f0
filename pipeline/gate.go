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

// GatePlanner is a Gate that can tell beforehand, by the sources alone, that it
// asks for what cannot be done.
type GatePlanner interface {
	Gate
	Plan(sources []*Source) error
}

// PlacedGate is a gate with the recipe position that errors name.
type PlacedGate struct {
	Gate  Gate
	Where string
	// Output is the file of the emitter that the gate is for, empty for all.
	Output string
}

// GateInput is what a gate may look at.
type GateInput struct {
	Layout *Layout
	File   tensor.Blob // the bytes as written
	// Output is what the recipe calls the file. It is not Layout.File where that is
	// one of several shards.
	Output string
	// Set are all files of the output as written, in order; Layout and File are
	// those of number Part.
	Set       []WrittenFile
	Part      int
	Base      *model.Model // before any stage
	Reference *model.Model // before the first lossy stage
	Sources   []*Source
	// Memo is shared by all gates of a build.
	Memo   *Memo
	Jobs   int
	Memory int64
	Events Events
}

// WrittenFile is a file of an output before it has its name.
type WrittenFile struct {
	Name string // as in Layout.File
	Blob tensor.Blob
}

// Memo keeps what several gates of a build find out, so that a model is not run
// over the same text twice. It is for one goroutine.
type Memo struct{ known map[string]any }

// Do gives what is known under a key, else what make makes. Errors are not kept.
func (m *Memo) Do(key string, make func() (any, error)) (any, error) {
	if m == nil {
		return make()
	}
	if v, ok := m.known[key]; ok {
		return v, nil
	}
	v, err := make()
	if err != nil {
		return nil, err
	}
	if m.known == nil {
		m.known = map[string]any{}
	}
	m.known[key] = v
	return v, nil
}

// GateResult is one comparison of a gate.
type GateResult struct {
	Gate   string  `json:"gate"`
	Output string  `json:"output"`
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Limit  float64 `json:"limit"`
	Pass   bool    `json:"pass"`
	// NotComparable says that the file and what it is held against were measured
	// in ways that cannot be compared, so that Value means nothing. Such a gate is
	// not passed.
	NotComparable bool `json:"not_comparable,omitempty"`
	// Settings say how a value was measured, as far as it depends on that: the
	// window, the stride, the BOS rule, digests of the text and of the tokenizer.
	// They are what JSON holds of them.
	Settings any `json:"settings,omitempty"`
	// Text says the result in words, by how much it failed included.
	Text string `json:"text"`
}

// MarshalJSON writes null for values that JSON does not have, such as the
// infinite ratio of tensors that are equal.
func (g GateResult) MarshalJSON() ([]byte, error) {
	type plain GateResult
	return plainJSON(struct {
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

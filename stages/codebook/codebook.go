// Package codebook is the step that fits CQ codebooks to the weights of a Needle
// checkpoint, for quantize steps behind it.
package codebook

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"quern/model"
	"quern/model/needle"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
	"quern/tensor/cq"
)

// version is part of the key of every product. It changes when the fits do.
const version = "codebook.v1"

// Stage is the step. It leaves the model as it is.
type Stage struct{ p recipes.Codebook }

// New makes the step.
func New(p recipes.Codebook) *Stage { return &Stage{p} }

// Name is the step's name.
func (s *Stage) Name() string { return "codebook" }

// Plan gives the model back.
func (s *Stage) Plan(_ context.Context, in *model.Model) (*model.Model, error) { return in, nil }

// Resolves is true: the product is all that the step is for.
func (s *Stage) Resolves() bool { return true }

// Resolve plans the reading of the weights.
func (s *Stage) Resolve(_ context.Context, in *model.Model, _ []*pipeline.Source) (*pipeline.Product, error) {
	matrices, err := needle.Matrices(in)
	if err != nil {
		return nil, err
	}
	keys := make([]tensor.Key, len(matrices))
	for i, t := range matrices {
		keys[i] = t.Key
	}
	widths := s.p.Bits
	if len(widths) == 0 {
		widths = []int64{4, 3, 2}
	}
	widths = slices.Compact(slices.Sorted(slices.Values(widths)))
	return &pipeline.Product{
		Format: "cq-codebooks", MediaType: "application/vnd.quern.cq-codebooks.v1+json", File: "codebooks.json",
		Key: tensor.Derive(version, fmt.Sprintf("bits %v group %d samples %d rounds %d", widths, s.p.Group, s.p.Samples, s.p.Rounds), keys...),
		Make: func(ctx context.Context, opt pipeline.WorkOptions) ([]byte, error) {
			return s.make(ctx, matrices, widths, opt)
		},
	}, nil
}

func (s *Stage) make(ctx context.Context, matrices []*tensor.Tensor, widths []int64, opt pipeline.WorkOptions) ([]byte, error) {
	tell := func(what string) func(done, total int64) {
		return func(done, total int64) {
			opt.Events.Event(pipeline.Event{Kind: pipeline.EventProgress, Output: what, Done: done, Total: total})
		}
	}
	x, err := needle.Sample(ctx, matrices, int(s.p.Group), int(s.p.Samples), tell("reading weights for codebooks"))
	if err != nil {
		return nil, err
	}
	slices.Sort(x)
	b := &cq.Books{Group: int(s.p.Group), Samples: len(x)}
	for _, bits := range widths {
		w, err := cq.ParseWidth(strconv.FormatInt(bits, 10))
		if err != nil {
			return nil, err
		}
		report := tell(fmt.Sprintf("codebook of %s bits", w))
		levels, err := cq.Fit(ctx, x, w.Levels(), cq.FitOptions{Rounds: int(s.p.Rounds), Progress: func(done, rounds int, _ float64) { report(int64(done), int64(rounds)) }})
		if err != nil {
			return nil, err
		}
		standard, err := cq.Levels(w)
		if err != nil {
			return nil, err
		}
		b.Books = append(b.Books, cq.Book{Bits: w.String(), Levels: levels, RMS: cq.Distance(x, levels), StandardRMS: cq.Distance(x, standard)})
	}
	return b.Encode()
}

package pipeline

import (
	"context"
	"errors"
	"fmt"

	"quern/artifacts/sink"
	"quern/model"
	"quern/tensor"
)

// Project is a recipe made concrete: how to open its sources, what to do and
// what to write.
type Project struct {
	Name string
	// Recipe is the canonical form of the recipe, for keys and provenance.
	Recipe []byte
	// Open opens the sources in recipe order. It is called again when local
	// files had to be hashed first; opening reads headers only.
	Open     func(ctx context.Context) ([]*Source, error)
	Stages   []PlacedStage
	Emitters []PlacedEmitter
	Gates    []PlacedGate

	products map[int]made // by stage
}

// PlacedStage is a stage with the recipe position that errors name.
type PlacedStage struct {
	Stage Stage
	Where string
	// ID is what the recipe calls the step's product, empty where it has no
	// name for it.
	ID     string
	Record StepRecord
}

// PlacedEmitter is an emitter with the recipe position that errors name.
type PlacedEmitter struct {
	Emitter Emitter
	Where   string
	// File is what the recipe calls the output.
	File string
	// To is where it goes; none means a file of this name in the output folder.
	// Relative paths of this machine start at that folder.
	To []sink.Target
}

// Lossy marks a stage after which values are no longer those of the source up
// to a declared change; what it is given is the reference to compare with.
type Lossy interface{ Lossy() }

// Plan is a build laid out: sources opened, models linked, every output planned
// to the byte, no weights read.
type Plan struct {
	Project *Project
	Sources []*Source
	// Models[0] is the base source's model, Models[i+1] what stage i made.
	Models []*model.Model
	// Reference is the model before the first lossy stage.
	Reference *model.Model
	Layouts   []*Layout
	// Products are the side products that steps have made, in order.
	Products []ProductReport

	emitters []int // which emitter made each layout
	opt      PlanOptions
}

// NewPlan opens the sources and plans everything, side products included. Close
// the plan when done.
func NewPlan(ctx context.Context, prj *Project, opt PlanOptions) (*Plan, error) {
	sources, err := prj.Open(ctx)
	if err != nil {
		return nil, err
	}
	p := &Plan{Project: prj, Sources: sources, opt: opt}
	if err := p.rekeyed(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if err := p.link(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	for _, s := range p.Sources {
		if s.Refresh != nil {
			s.Refresh()
		}
	}
	return p, nil
}

// Base is the source that the steps start from: the one that the first step
// names, the one called base, else the only one that is a model.
func (p *Plan) Base() (*Source, error) {
	var models []*Source
	if name := p.start(); name != "" {
		for _, s := range p.Sources {
			if s.Name == name && s.Model != nil {
				return s, nil
			}
		}
		return nil, fmt.Errorf("%w: source %s is no model, and the first step starts from it", ErrRecipe, name)
	}
	for _, s := range p.Sources {
		if s.Name == "base" && s.Model != nil {
			return s, nil
		}
		if s.Model != nil {
			models = append(models, s)
		}
	}
	switch len(models) {
	case 1:
		return models[0], nil
	case 0:
		which := ""
		for _, s := range p.Sources {
			if s.Name == "base" {
				which = fmt.Sprintf(": base (%s) is a plain file, in none of the formats that models are read from", s.Ref)
			}
		}
		return nil, fmt.Errorf("%w: no source is a model%s; give a folder or repository with a config.json, a GGUF file, or a Needle checkpoint with its config and tensors or an archive", ErrRecipe, which)
	}
	return nil, fmt.Errorf("%w: %d sources are models and none is called base; call the one that the steps start from base", ErrRecipe, len(models))
}

// start is the source that the first step names.
func (p *Plan) start() string {
	if len(p.Project.Stages) > 0 {
		if s, ok := p.Project.Stages[0].Stage.(Starter); ok {
			return s.Start()
		}
	}
	return ""
}

func (p *Plan) link(ctx context.Context) error {
	base, err := p.Base()
	if err != nil {
		return err
	}
	m := base.Model
	p.Models = append(p.Models, m)
	sources := p.Sources
	for i, st := range p.Project.Stages {
		if _, ok := st.Stage.(Lossy); ok && p.Reference == nil {
			p.Reference = m
		}
		if p.Project.resolves(i) {
			if sources, err = p.resolve(ctx, i, m, sources); err != nil {
				return fmt.Errorf("%s: %s: %w", st.Where, st.Stage.Name(), planFault(ctx, err))
			}
		}
		next, err := run(ctx, st.Stage, m, sources)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", st.Where, st.Stage.Name(), planFault(ctx, err))
		}
		m = next
		p.Models = append(p.Models, m)
	}
	if p.Reference == nil {
		p.Reference = m
	}
	for i, em := range p.Project.Emitters {
		ls, err := p.layouts(ctx, em.Emitter, m)
		if err != nil {
			return fmt.Errorf("%s: %w", em.Where, planFault(ctx, err))
		}
		for _, l := range ls {
			if err := l.check(); err != nil {
				return err
			}
			if l.MaxSize > 0 && l.Size > l.MaxSize {
				return fmt.Errorf("%s: %w: %w: %s is %d bytes, %d more than the %d that it may have",
					em.Where, ErrRecipe, ErrTooLarge, l.File, l.Size, l.Size-l.MaxSize, l.MaxSize)
			}
		}
		p.Layouts = append(p.Layouts, ls...)
		for range ls {
			p.emitters = append(p.emitters, i)
		}
	}
	return p.planGates(ctx)
}

// planGates asks the gates whether they could be checked, before anything is
// written.
func (p *Plan) planGates(ctx context.Context) error {
	for _, g := range p.Project.Gates {
		gp, ok := g.Gate.(GatePlanner)
		if !ok {
			continue
		}
		if err := gp.Plan(p.Sources); err != nil {
			return fmt.Errorf("%s: gate %s: %w", g.Where, g.Gate.Name(), planFault(ctx, err))
		}
	}
	return nil
}

// layouts are the files of an emitter.
func (p *Plan) layouts(ctx context.Context, em Emitter, m *model.Model) ([]*Layout, error) {
	if set, ok := em.(SetEmitter); ok {
		return set.PlanSet(ctx, m)
	}
	plan := func() (*Layout, error) { return em.Plan(ctx, m) }
	if r, ok := em.(SourceEmitter); ok {
		plan = func() (*Layout, error) { return r.PlanWith(ctx, m, p.Sources) }
	}
	l, err := plan()
	if err != nil {
		return nil, err
	}
	return []*Layout{l}, nil
}

func run(ctx context.Context, st Stage, m *model.Model, sources []*Source) (*model.Model, error) {
	if r, ok := st.(SourceReader); ok {
		return r.PlanWith(ctx, m, sources)
	}
	return st.Plan(ctx, m)
}

// Close releases the sources.
func (p *Plan) Close() error {
	var errs []error
	for _, s := range p.Sources {
		if s.Close != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// Notes collects what sources, models and layouts have to say, in that order,
// each once.
func (p *Plan) Notes() []string {
	out := p.Warnings()
	for _, l := range p.Layouts {
		out = append(out, l.Notes...)
	}
	return out
}

// Warnings collects what sources and models have to say: what was assumed,
// ignored or lost.
func (p *Plan) Warnings() []string {
	var out []string
	seen := map[string]bool{}
	add := func(list []string) {
		for _, n := range list {
			if !seen[n] {
				seen[n] = true
				out = append(out, n)
			}
		}
	}
	for _, s := range p.Sources {
		add(s.Notes)
	}
	for _, m := range p.Models {
		for _, n := range m.Notes {
			add([]string{n.String()})
		}
	}
	return out
}

// needs lists what a network source has to deliver for the outputs, in the
// order of reading. skip says which items come from elsewhere, from where an
// output begins; nil means nothing and at the start.
func (p *Plan) needs(skip func(output, item int) bool, from func(output int) *EmitMark) map[string][]tensor.Extent {
	out := map[string][]tensor.Extent{}
	for o, l := range p.Layouts {
		var m *EmitMark
		if from != nil {
			m = from(o)
		}
		for _, e := range fetchNeeds(l, func(i int) bool { return skip != nil && skip(o, i) }, m) {
			out[e.Source] = append(out[e.Source], e)
		}
	}
	return out
}

// hashed reports whether the files that the build reads have all the digests
// that can be had.
func (p *Plan) hashed() bool {
	for _, s := range p.Sources {
		if s.unhashed() {
			return false
		}
	}
	return true
}

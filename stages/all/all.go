// Package all is the table from what a recipe names to the code that does it.
package all

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"quern/artifacts/sink"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/assemble"
	"quern/stages/codebook"
	"quern/stages/convert"
	"quern/stages/emit"
	"quern/stages/gates"
	"quern/stages/imatrix"
	"quern/stages/ladder"
	"quern/stages/lora"
	"quern/stages/pad"
	"quern/stages/prunehead"
	"quern/stages/quantize"
	"quern/stages/reorder"
	"quern/stages/selecttokens"
	"quern/stages/source"
	"quern/stages/tie"
)

// Project makes a recipe concrete.
func Project(r *recipes.Recipe, env source.Env) (*pipeline.Project, error) {
	params, err := stepParams(r.Canonical())
	if err != nil {
		return nil, err
	}
	env.Dir, env.Texts = r.Dir, r.TextSources()
	if env.Digests == nil {
		env.Digests = &source.Digests{}
	}
	p := &pipeline.Project{
		Name:   r.Name,
		Recipe: r.Canonical(),
		Open: func(ctx context.Context) ([]*pipeline.Source, error) {
			return source.Open(ctx, env, r.Sources)
		},
	}
	for i, s := range r.Steps {
		st, err := stage(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w: %w", s.Pos, s.Kind, pipeline.ErrRecipe, err)
		}
		p.Stages = append(p.Stages, pipeline.PlacedStage{Stage: st, Where: s.Pos.String(), ID: s.ID,
			Record: pipeline.StepRecord{Stage: s.Kind, Version: stageVersion, Params: params[i]}})
	}
	for _, o := range r.Outputs {
		em, err := emitter(o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", o.Pos, pipeline.ErrRecipe, err)
		}
		to, err := targets(o.To)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", o.Pos, pipeline.ErrRecipe, err)
		}
		p.Emitters = append(p.Emitters, pipeline.PlacedEmitter{Emitter: em, Where: o.Pos.String(), File: o.File, To: to})
	}
	for _, g := range r.Gates {
		gate, err := gate(g)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w: %w", g.Pos, g.Kind, pipeline.ErrRecipe, err)
		}
		p.Gates = append(p.Gates, pipeline.PlacedGate{Gate: gate, Where: g.Pos.String(), Output: g.Output()})
	}
	return p, nil
}

func targets(list []string) ([]sink.Target, error) {
	var out []sink.Target
	for _, s := range list {
		t, err := sink.Parse(s)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// stepParams takes the steps out of a canonical recipe, which has no positions
// or folders in it.
func stepParams(canonical []byte) ([]json.RawMessage, error) {
	var doc struct {
		Steps []json.RawMessage `json:"steps"`
	}
	if err := json.Unmarshal(canonical, &doc); err != nil {
		return nil, fmt.Errorf("canonical recipe: %w", err)
	}
	return doc.Steps, nil
}

// stageVersion is what provenance says of the steps' code.
const stageVersion = "1"

// errNone marks a name that the schema has and this table has not: a fault of
// quern that a test looks for.
var errNone = errors.New("nothing does this")

func stage(s recipes.Step) (pipeline.Stage, error) {
	switch p := s.Params.(type) {
	case recipes.Convert:
		return convert.New(p), nil
	case recipes.TieHead:
		return tie.New(p), nil
	case recipes.Pad:
		return pad.New(p), nil
	case recipes.PruneHead:
		return prunehead.New(p), nil
	case recipes.Imatrix:
		return imatrix.New(p), nil
	case recipes.Graft:
		return assemble.NewGraft(p)
	case recipes.Assemble:
		return assemble.New(p)
	case recipes.SelectTokens:
		return selecttokens.New(p), nil
	case recipes.Codebook:
		return codebook.New(p), nil
	case recipes.Lora:
		return lora.New(p), nil
	case recipes.Layers:
		return ladder.NewLayers(p), nil
	case recipes.Width:
		return ladder.NewWidth(p), nil
	case recipes.Reorder:
		return reorder.New(p), nil
	case recipes.Quantize:
		return quantize.Make(p)
	}
	return nil, errNone
}

func emitter(o recipes.Output) (pipeline.Emitter, error) {
	switch o.Format {
	case "gguf":
		return emit.NewGGUF(o), nil
	case "kmcu":
		return emit.NewKMCU(o), nil
	case "cact":
		return emit.NewCact(o), nil
	}
	return nil, errNone
}

func gate(g recipes.Gate) (pipeline.Gate, error) {
	switch p := g.Params.(type) {
	case recipes.TensorsGate:
		return gates.NewTensors(p), nil
	case recipes.PerplexityGate:
		return gates.NewPerplexity(p), nil
	case recipes.BitsPerByteGate:
		return gates.NewBitsPerByte(p), nil
	case recipes.DivergenceGate:
		return gates.NewDivergence(p), nil
	case recipes.TokensGate:
		return gates.NewTokens(p), nil
	case recipes.LogitsGate:
		return gates.NewLogits(p), nil
	case recipes.LoopsGate:
		return gates.NewLoops(p)
	case recipes.TokenizerGate:
		return gates.NewTokenizer(p), nil
	}
	return nil, errNone
}

package all_test

import (
	"testing"

	"quern/pipeline"
	"quern/recipes"
	"quern/stages/codebook"
	"quern/stages/convert"
	"quern/stages/ladder"
	"quern/stages/lora"
	"quern/stages/pad"
	"quern/stages/quantize"
	"quern/stages/reorder"
	"quern/stages/stagetest"
	"quern/stages/tie"
)

// TestStages holds every stage against the suite.
func TestStages(t *testing.T) {
	type maker = func() (pipeline.Stage, error)
	ok := func(s pipeline.Stage) maker { return func() (pipeline.Stage, error) { return s, nil } }
	quant := func(p recipes.Quantize) maker {
		return func() (pipeline.Stage, error) { return quantize.New(p) }
	}
	cqStep := func(p recipes.Quantize) maker {
		return func() (pipeline.Stage, error) { return quantize.Make(p) }
	}
	half := 0.5
	for name, c := range map[string]stagetest.Case{
		"tie-head":               {New: ok(tie.New(recipes.TieHead{Force: true})), Model: "stories-wide", Changes: true},
		"tie-head, tied already": {New: ok(tie.New(recipes.TieHead{})), Model: "stories260k"},
		"pad ffn":                {New: ok(pad.New(recipes.Pad{FFN: 32})), Other: ok(pad.New(recipes.Pad{FFN: 256})), Model: "stories-moe", Changes: true},
		"pad vocab":              {New: ok(pad.New(recipes.Pad{Vocab: 7})), Other: ok(pad.New(recipes.Pad{Vocab: 11})), Model: "stories-wide", Changes: true},
		"prune-head":             {New: pruneStep("output_ids", "1 2 5 100"), Other: pruneStep("output_ids", "1 2 5 101"), Model: "stories-wide", Changes: true},
		"prune-head, tied":       {New: pruneStep("output_ids", "1 2 5 100"), Other: pruneStep("output_ids", "1 2 5"), Model: "stories260k", Changes: true},
		"prune-head vocab":       {New: pruneStep("vocab", "1 2 5 400"), Other: pruneStep("vocab", "1 2 5 510"), Model: "stories-moe", Changes: true},
		"convert":                {New: ok(convert.New(recipes.Convert{OutType: "f16"})), Other: ok(convert.New(recipes.Convert{OutType: "q8_0"})), Model: "stories-wide", Changes: true},
		"convert experts":        {New: ok(convert.New(recipes.Convert{OutType: "bf16"})), Other: ok(convert.New(recipes.Convert{OutType: "f32"})), Model: "stories-moe", Changes: true},
		"quantize type": {New: quant(recipes.Quantize{Type: "Q8_0"}), Other: quant(recipes.Quantize{Type: "Q8_0",
			Rules: []recipes.Rule{{Match: "ffn_down", Type: "Q4_0"}}}), Model: "stories-wide", Changes: true},
		"reorder":                {New: ok(reorder.New(recipes.Reorder{Experts: "last", Align: 4096})), Model: "stories-moe", Changes: true},
		"quantize preset":        {New: quant(recipes.Quantize{Preset: "Q4_0"}), Other: quant(recipes.Quantize{Preset: "Q4_0", OutputType: "Q8_0"}), Model: "stories-wide", Changes: true},
		"layers":                 {New: ok(ladder.NewLayers(recipes.Layers{Count: 3})), Other: ok(ladder.NewLayers(recipes.Layers{Count: 2})), Model: "needle3-a.safetensors", Changes: true},
		"layers, float16 pickle": {New: ok(ladder.NewLayers(recipes.Layers{Count: 2})), Model: "needle3-b.pkl", Changes: true},
		"layers of an archive":   {New: ok(ladder.NewLayers(recipes.Layers{Count: 5})), Other: ok(ladder.NewLayers(recipes.Layers{Count: 9})), Model: "needle3-c.cact", Changes: true},
		"layers, all kept":       {New: ok(ladder.NewLayers(recipes.Layers{Count: 4})), Model: "needle3-a.safetensors"},
		"width":                  {New: ok(ladder.NewWidth(recipes.Width{To: 32})), Model: "needle3-b.safetensors", Changes: true},
		"lora": {New: ok(lora.New(recipes.Lora{Adapter: "tuned"})), Other: ok(lora.New(recipes.Lora{Adapter: "tuned", Scale: &half})), Model: "needle3-a.safetensors",
			Sources: map[string]string{"tuned": "needle3-a-lora.safetensors"}, Changes: true},
		"lora, pickled": {New: ok(lora.New(recipes.Lora{Adapter: "tuned"})), Model: "needle3-b.pkl", Sources: map[string]string{"tuned": "needle3-b-lora.pkl"}, Changes: true},
		"codebook":      {New: ok(codebook.New(recipes.Codebook{Group: 128, Samples: 1000, Rounds: 3})), Model: "needle3-b.safetensors"},
		"quantize CQ":   {New: cqStep(recipes.Quantize{Type: "CQ4"}), Other: cqStep(recipes.Quantize{Type: "CQ4", Group: 64}), Model: "needle3-b.safetensors", Changes: true},
		"quantize CQ by a map": {New: cqStep(recipes.Quantize{Bits: "default=2,embedding=1.58,attn.q_proj=3"}), Other: cqStep(recipes.Quantize{Bits: "default=2,embedding=1.58,attn.q_proj=4"}),
			Model: "needle3-a.safetensors", Changes: true},
		"quantize fallback": {New: quant(recipes.Quantize{Type: "Q4_0", Fallback: "F16"}), Other: quant(recipes.Quantize{Type: "Q4_0", Fallback: "F32"}), Model: "stories-moe", Changes: true},
	} {
		t.Run(name, func(t *testing.T) { stagetest.Run(t, c) })
	}
}

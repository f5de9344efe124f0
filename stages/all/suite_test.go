package all_test

import (
	"testing"

	"quern/pipeline"
	"quern/recipes"
	"quern/stages/convert"
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
	for name, c := range map[string]stagetest.Case{
		"tie-head":               {New: ok(tie.New(recipes.TieHead{Force: true})), Model: "stories-wide", Changes: true},
		"tie-head, tied already": {New: ok(tie.New(recipes.TieHead{})), Model: "stories260k"},
		"pad ffn":                {New: ok(pad.New(recipes.Pad{FFN: 32})), Other: ok(pad.New(recipes.Pad{FFN: 256})), Model: "stories-moe", Changes: true},
		"pad vocab":              {New: ok(pad.New(recipes.Pad{Vocab: 7})), Other: ok(pad.New(recipes.Pad{Vocab: 11})), Model: "stories-wide", Changes: true},
		"convert":                {New: ok(convert.New(recipes.Convert{OutType: "f16"})), Other: ok(convert.New(recipes.Convert{OutType: "q8_0"})), Model: "stories-wide", Changes: true},
		"convert experts":        {New: ok(convert.New(recipes.Convert{OutType: "bf16"})), Other: ok(convert.New(recipes.Convert{OutType: "f32"})), Model: "stories-moe", Changes: true},
		"quantize type": {New: quant(recipes.Quantize{Type: "Q8_0"}), Other: quant(recipes.Quantize{Type: "Q8_0",
			Rules: []recipes.Rule{{Match: "ffn_down", Type: "Q4_0"}}}), Model: "stories-wide", Changes: true},
		"reorder":           {New: ok(reorder.New(recipes.Reorder{Experts: "last", Align: 4096})), Model: "stories-moe", Changes: true},
		"quantize preset":   {New: quant(recipes.Quantize{Preset: "Q4_0"}), Other: quant(recipes.Quantize{Preset: "Q4_0", OutputType: "Q8_0"}), Model: "stories-wide", Changes: true},
		"quantize fallback": {New: quant(recipes.Quantize{Type: "Q4_0", Fallback: "F16"}), Other: quant(recipes.Quantize{Type: "Q4_0", Fallback: "F32"}), Model: "stories-moe", Changes: true},
	} {
		t.Run(name, func(t *testing.T) { stagetest.Run(t, c) })
	}
}

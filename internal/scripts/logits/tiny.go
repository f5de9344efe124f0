package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"quern/internal/testmodel"
	"quern/model"
	"quern/model/modeltest"
	infer "quern/runtime"
	"quern/runtime/transformer"
)

// settings are entries of testdata/golden/runtime/configs.json: every family, and
// every kind of rotary embedding, window and choice of experts.
var settings = []string{
	"a capped head in tiny-gemma3",
	"a window behind the first layer in tiny-qwen2",
	"a window in tiny-mistral",
	"dynamic beyond the context in tiny-mixtral",
	"layers by list in tiny-gemma3",
	"linear in tiny-mixtral",
	"llama3 in tiny-llama-hf",
	"longrope beyond the original context in tiny-llama-hf",
	"longrope within the original context in tiny-qwen3",
	"weights that are not normalized in tiny-qwen3moe",
	"yarn between pairs in tiny-qwen3moe",
	"yarn in tiny-qwen3",
	"yarn with an attention factor in tiny-gemma3",
}

// others are tiny models of families that settings lacks: linear attention, and
// groups of experts.
var others = []string{"tiny-bailingmoe2", "tiny-qwen35"}

// tiny prints the digests of the tiny models' logits.
func tiny(ctx context.Context, jobs int) error {
	b, err := os.ReadFile(filepath.Join(testmodel.Root(), "golden/runtime/configs.json"))
	if err != nil {
		return err
	}
	var goldens map[string]modeltest.Golden
	if err := json.Unmarshal(b, &goldens); err != nil {
		return err
	}
	for _, name := range others {
		goldens[name] = modeltest.Golden{Model: name, Cut: 512}
	}
	for _, title := range append(settings, others...) {
		g, ok := goldens[title]
		if !ok {
			return fmt.Errorf("no golden is called %q", title)
		}
		m, err := opened(ctx, g)
		if err != nil {
			return fmt.Errorf("%s: %w", title, err)
		}
		for _, act := range []infer.Act{infer.Exact, infer.Q8} {
			sum, err := digestOf(ctx, title, m, infer.SessionOptions{Jobs: jobs, Act: act, Context: 40})
			if err != nil {
				return err
			}
			fmt.Printf("%x  %s %s\n", sum, act, title)
		}
	}
	return nil
}

// opened is the folder of a golden as it is run, by ids.
func opened(ctx context.Context, g modeltest.Golden) (infer.Model, error) {
	files, err := modeltest.Scaled(ctx, g.Model, g.Config, g.Cut)
	if err != nil {
		return nil, err
	}
	for name := range files.Files {
		if strings.HasPrefix(name, "token") {
			delete(files.Files, name)
		}
	}
	h, err := model.LoadHF(ctx, files, model.HFOptions{})
	if err != nil {
		return nil, err
	}
	return transformer.FromHF(ctx, h)
}

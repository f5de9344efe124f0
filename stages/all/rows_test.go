package all_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/testmodel"
	"quern/pipeline"
	"quern/stages/quantize"
)

// TestRowsThatDoNotDivide: rows of 172 are no blocks of 32. Without a fallback
// that is an error with every number and the ways out; with one the plan says
// how much of the model it is.
func TestRowsThatDoNotDivide(t *testing.T) {
	b := newBench(t)
	b.dir = folder(t, "stories-moe")
	strict := strings.Replace(hubRecipe, "hf: org/model", `dir: "DIR"`, 1)
	strict = strings.Replace(strict, ", fallback: F16", "", 1)
	_, err := b.try(strict, b.options())
	if !errors.Is(err, quantize.ErrRows) || !errors.Is(err, pipeline.ErrRecipe) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"blk.0.ffn_down_exps.weight", "172 values", "a block of Q8_0 has 32", "192", "fallback: F16"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	leftovers(t, b.out)
	res := b.build(strings.Replace(strict, "type: Q8_0", "type: Q8_0, fallback: F16", 1))
	if len(res.Outputs) != 1 {
		t.Fatalf("%+v", res)
	}
	o := goOnline(t, "stories-moe", optionsOfTest)
	plan, err := pipeline.NewPlan(t.Context(), o.project(hubRecipe, o.env()), pipeline.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	rep, err := plan.Report(t.Context(), nil, pipeline.EmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shares := map[string]pipeline.TypeShare{}
	var weights, bytes float64
	for _, s := range rep.Outputs[0].Types {
		shares[s.Type] = s
		weights += s.Weights
		bytes += s.Bytes
	}
	// Five layers of 8 experts, [64, 172] each, of a third of the experts' weights.
	if f16 := shares["F16"]; f16.Weights < 0.25 || f16.Weights > 1.0/3 || f16.Bytes < f16.Weights || weights < 0.999 || bytes < 0.999 {
		t.Errorf("shares %+v", rep.Outputs[0].Types)
	}
}

// TestPlannedIsWritten: a model whose rows no block type fits has what its plan
// says, to the byte.
func TestPlannedIsWritten(t *testing.T) {
	files, err := testmodel.Build("tiny-llama-hf")
	if err != nil {
		t.Fatal(err)
	}
	var cfg map[string]any
	if err := json.Unmarshal(files["config.json"], &cfg); err != nil {
		t.Fatal(err)
	}
	// The down projection's rows have 14 values.
	cfg["intermediate_size"] = 14
	if files["config.json"], err = json.Marshal(cfg); err != nil {
		t.Fatal(err)
	}
	var list []testmodel.Tensor
	add := func(name string, shape ...int64) {
		list = append(list, testmodel.Tensor{Name: name, DType: "F32", Shape: shape})
	}
	add("model.embed_tokens.weight", 512, 40)
	add("model.norm.weight", 40)
	for _, l := range []string{"model.layers.0.", "model.layers.1."} {
		add(l+"input_layernorm.weight", 40)
		add(l+"post_attention_layernorm.weight", 40)
		for _, p := range []string{"q", "k", "v", "o"} {
			add(l+"self_attn."+p+"_proj.weight", 40, 40)
		}
		add(l+"mlp.gate_proj.weight", 14, 40)
		add(l+"mlp.up_proj.weight", 14, 40)
		add(l+"mlp.down_proj.weight", 40, 14)
	}
	if files["model.safetensors"], err = testmodel.Safetensors(list); err != nil {
		t.Fatal(err)
	}
	o := serve(t, "tiny-llama-hf", files, optionsOfTest)
	for _, step := range []string{"type: Q8_0, fallback: F16", "type: Q4_0, fallback: F32", "preset: Q4_K_M", "preset: Q4_0"} {
		text := strings.Replace(hubRecipe, "type: Q8_0, fallback: F16", step, 1)
		plan, err := pipeline.NewPlan(t.Context(), o.project(text, o.env()), pipeline.PlanOptions{})
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		rep, err := plan.Report(t.Context(), nil, pipeline.EmitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Close(); err != nil {
			t.Fatal(err)
		}
		res := o.build(text)
		st, err := os.Stat(filepath.Join(o.out, "out.gguf"))
		if err != nil || st.Size() != rep.Outputs[0].Size || res.Outputs[0].Size != st.Size() {
			t.Errorf("%s: planned %d bytes, written %d, %v", step, rep.Outputs[0].Size, res.Outputs[0].Size, err)
		}
		set := openGGUF(t, filepath.Join(o.out, "out.gguf"))
		for i, x := range rep.Outputs[0].Tensors {
			got := set.Tensors[i]
			if got.Name != x.Name || got.Bytes != x.Bytes || got.Offset != x.Offset || got.TypeName() != x.Type {
				t.Errorf("%s: tensor %s has %d bytes of %s at %d, planned %d of %s at %d", step, got.Name, got.Bytes, got.TypeName(), got.Offset, x.Bytes, x.Type, x.Offset)
			}
		}
	}
}

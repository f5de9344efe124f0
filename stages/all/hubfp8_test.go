package all_test

import (
	"encoding/json"
	"testing"

	"quern/hub"
	"quern/hub/hubtest"
	"quern/internal/testmodel"
)

// wideFP8 is a checkpoint in 8-bit floats whose matrices are written in many
// pieces, each of which needs the scales.
func wideFP8(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := testmodel.Build("tiny-llama-fp8")
	if err != nil {
		t.Fatal(err)
	}
	var cfg map[string]any
	if err := json.Unmarshal(files["config.json"], &cfg); err != nil {
		t.Fatal(err)
	}
	const h, inter = 256, 1024
	cfg["hidden_size"], cfg["intermediate_size"], cfg["head_dim"], cfg["num_hidden_layers"] = h, inter, 64, 1
	cfg["quantization_config"] = map[string]any{"quant_method": "fp8", "weight_block_size": []int{128, 128}}
	if files["config.json"], err = json.Marshal(cfg); err != nil {
		t.Fatal(err)
	}
	var list []testmodel.Tensor
	add := func(name, dtype string, shape ...int64) {
		list = append(list, testmodel.Tensor{Name: name, DType: dtype, Shape: shape})
	}
	add("model.embed_tokens.weight", "BF16", 512, h)
	add("lm_head.weight", "BF16", 512, h)
	add("model.norm.weight", "BF16", h)
	const l = "model.layers.0."
	add(l+"input_layernorm.weight", "BF16", h)
	add(l+"post_attention_layernorm.weight", "BF16", h)
	for name, s := range map[string][2]int64{"self_attn.q": {h, h}, "self_attn.k": {h / 2, h}, "self_attn.v": {h / 2, h}, "self_attn.o": {h, h},
		"mlp.gate": {inter, h}, "mlp.up": {inter, h}, "mlp.down": {h, inter}} {
		add(l+name+"_proj.weight", "F8_E4M3", s[0], s[1])
		add(l+name+"_proj.weight_scale_inv", "F32", s[0]/128, s[1]/128)
	}
	if files["model.safetensors"], err = testmodel.Safetensors(list); err != nil {
		t.Fatal(err)
	}
	return files
}

// TestFP8OverHTTP: scales are needed by every part of their weights and fetched
// once, with a store and without.
func TestFP8OverHTTP(t *testing.T) {
	for _, kept := range []bool{true, false} {
		o := serve(t, "wide", wideFP8(t), hubtest.Options{})
		if !kept {
			o.store = nil
		}
		opt := o.options()
		opt.Memory = 1 << 20
		res, err := o.try(t.Context(), hubRecipe, opt, func(h *hub.Options) { h.Memory = 1 << 20 })
		if err != nil {
			t.Fatal(err)
		}
		o.same(res, o.fromDir(hubRecipe))
		o.frugal(res, o.needed(res))
		// The head of the file may have been given up before it was read again.
		if st := res.Stats.Fetch["base"]; st.Fetched > st.Needed+4096 {
			t.Errorf("store %v: %+v", kept, st)
		}
	}
}

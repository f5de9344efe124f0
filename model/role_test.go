package model

import (
	"slices"
	"strconv"
	"testing"
)

func TestHFID(t *testing.T) {
	cases := []struct {
		f    Family
		name string
		want string // GGUF name, with #N for one expert; "" when it has no place
	}{
		{Llama, "model.embed_tokens.weight", "token_embd.weight"},
		{Llama, "embed_tokens.weight", "token_embd.weight"},
		{Llama, "lm_head.weight", "output.weight"},
		{Llama, "lm_head.bias", "output.bias"},
		{Llama, "model.norm.weight", "output_norm.weight"},
		{Llama, "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
		{Llama, "model.layers.12.self_attn.k_proj.bias", "blk.12.attn_k.bias"},
		{Llama, "layers.3.self_attn.o_proj.weight", "blk.3.attn_output.weight"},
		{Llama, "model.layers.1.post_attention_layernorm.weight", "blk.1.ffn_norm.weight"},
		{Llama, "model.layers.1.mlp.gate_proj.weight", "blk.1.ffn_gate.weight"},
		{Llama, "model.layers.1.block_sparse_moe.gate.weight", "blk.1.ffn_gate_inp.weight"},
		{Llama, "model.layers.1.block_sparse_moe.experts.10.w2.weight", "blk.1.ffn_down_exps.weight#10"},
		{Llama, "model.text_model.layers.1.mlp.up_proj.weight", "blk.1.ffn_up.weight"},
		{Llama, "model.layers.1.self_attn.q_norm.weight", ""},
		{Llama, "model.layers.1.mlp.experts.0.up_proj.weight", ""},
		{Llama, "model.layers.01.mlp.up_proj.weight", ""},
		{Llama, "model.layers.1.mlp.up_proj", ""},
		{Llama, "model.layers.x.mlp.up_proj.weight", ""},
		{Llama, "model.layers.99999999999999999999.mlp.up_proj.weight", ""},
		{Llama, "model.layers.1.mlp.up_proj.weight_scale_inv", ""},
		{Llama, "model.embed_tokens", ""},
		{Llama, "", ""},
		{Qwen2, "model.layers.1.self_attn.v_proj.bias", "blk.1.attn_v.bias"},
		{Qwen3, "model.layers.1.self_attn.k_norm.weight", "blk.1.attn_k_norm.weight"},
		{Qwen3MoE, "model.layers.1.mlp.experts.127.down_proj.weight", "blk.1.ffn_down_exps.weight#127"},
		{Qwen3MoE, "model.layers.1.mlp.experts.gate_up_proj", "blk.1.ffn_gate_up_exps"},
		{Qwen3MoE, "model.layers.1.mlp.experts.down_proj", "blk.1.ffn_down_exps"},
		{Qwen3MoE, "model.layers.1.mlp.experts.0.down_proj", ""},
		{Qwen3MoE, "model.layers.1.mlp.up_proj.weight", ""},
		{Gemma3, "language_model.model.layers.2.post_attention_layernorm.weight", "blk.2.post_attention_norm.weight"},
		{Gemma3, "model.language_model.layers.2.pre_feedforward_layernorm.weight", "blk.2.ffn_norm.weight"},
		{Gemma3, "model.layers.2.post_feedforward_layernorm.weight", "blk.2.post_ffw_norm.weight"},
		{Qwen2, "model.layers.2.pre_feedforward_layernorm.weight", ""},
	}
	for _, c := range cases {
		id, ok := HFID(c.f, c.name)
		got := ""
		if ok {
			got = id.GGUFName()
			if id.Expert >= 0 {
				got += "#" + strconv.Itoa(id.Expert)
			}
		}
		if got != c.want {
			t.Errorf("%s %s: %q, want %q", c.f, c.name, got, c.want)
		}
	}
}

// HFName and HFID are inverse wherever a role has a name.
func TestHFName(t *testing.T) {
	for _, arch := range Architectures() {
		f, ok := FamilyOf(arch)
		if !ok {
			t.Fatalf("%s has no family", arch)
		}
		n := 0
		for _, r := range Roles() {
			id := ID{Role: r, Layer: -1, Expert: -1, Suffix: ".weight"}
			if r.PerLayer() {
				id.Layer = 4
			}
			if r.IsExpert() && r != FFNGateUpExps {
				id.Expert = 3
			}
			name := HFName(arch, id)
			if back, ok := HFID(f, name); ok {
				n++
				if back != id {
					t.Errorf("%s: %+v is named %s, which is %+v", arch, id, name, back)
				}
			} else if name != id.GGUFName() {
				t.Errorf("%s: %s is no name of %s", arch, name, f)
			}
		}
		if n < 12 {
			t.Errorf("%s: only %d roles have names", arch, n)
		}
	}
	for name, id := range map[string]ID{
		"mtp.fc.weight": {NextNEhProj, 0, -1, ".weight", true}, "model.mtp.norm.weight": {NextNHeadNorm, 0, -1, ".weight", true},
		"mtp.layers.0.mlp.up_proj.weight": {FFNUp, 0, -1, ".weight", true}, "model.language_model.layers.2.linear_attn.A_log": {SSMA, 2, -1, "", false},
	} {
		if got, ok := HFID(Qwen35, name); !ok || got != id {
			t.Errorf("%s: %+v", name, got)
		}
		if _, ok := HFID(Qwen3, name); ok && id.MTP {
			t.Errorf("%s has a place in qwen3", name)
		}
	}
	if got := HFName("Qwen3_5ForCausalLM", ID{AttnQ, 0, -1, ".weight", true}); got != "mtp.layers.0.self_attn.q_proj.weight" {
		t.Errorf("a query of the layers for prediction is called %s", got)
	}
	if got := HFName("MixtralForCausalLM", ID{FFNUpExps, 2, -1, ".weight", false}); got != "model.layers.2.block_sparse_moe.experts.N.w3.weight" {
		t.Errorf("all experts are called %s", got)
	}
}

func TestGGUFID(t *testing.T) {
	for name, want := range map[string]ID{
		"token_embd.weight":          {TokenEmbd, -1, -1, ".weight", false},
		"output.weight":              {Output, -1, -1, ".weight", false},
		"rope_freqs.weight":          {RopeFreqs, -1, -1, ".weight", false},
		"blk.11.attn_q.bias":         {AttnQ, 11, -1, ".bias", false},
		"blk.0.ffn_down_exps.weight": {FFNDownExps, 0, -1, ".weight", false},
		"blk.3.ssm_a":                {SSMA, 3, -1, "", false},
		"blk.3.ssm_dt.bias":          {SSMDt, 3, -1, ".bias", false},
		"blk.24.nextn.enorm.weight":  {NextNENorm, 24, -1, ".weight", false},
		"blk.1.exp_probs_b.bias":     {ExpProbsB, 1, -1, ".bias", false},
	} {
		id, ok := GGUFID(name)
		if !ok || id != want || id.GGUFName() != name {
			t.Errorf("%s: %+v %v", name, id, ok)
		}
	}
	for _, name := range []string{"", "output", "blk.0.output.weight", "attn_q.weight", "blk.x.attn_q.weight", "blk.0.ssm_a.weight", "blk.01.attn_q.weight"} {
		if id, ok := GGUFID(name); ok {
			t.Errorf("%q is %+v", name, id)
		}
	}
}

func TestRoles(t *testing.T) {
	var norms, experts []Role
	for _, r := range Roles() {
		if r.IsNorm() {
			norms = append(norms, r)
		}
		if r.IsExpert() {
			experts = append(experts, r)
		}
	}
	if want := []Role{OutputNorm, AttnNorm, AttnQNorm, AttnKNorm, PostAttentionNorm, FFNNorm, PostFFWNorm, SSMNorm, LayerOutputNorm, NextNENorm, NextNHNorm, NextNHeadNorm}; !slices.Equal(norms, want) {
		t.Errorf("norms %v", norms)
	}
	if want := []Role{FFNGateExps, FFNUpExps, FFNDownExps, FFNGateUpExps}; !slices.Equal(experts, want) {
		t.Errorf("experts %v", experts)
	}
}

package model

import (
	"strconv"
	"strings"
)

// layerNames maps what follows layers.N. to a role. Names of experts have N in
// place of the expert's number.
var layerNames = map[string]Role{
	"input_layernorm":            AttnNorm,
	"self_attn.q_proj":           AttnQ,
	"self_attn.k_proj":           AttnK,
	"self_attn.v_proj":           AttnV,
	"self_attn.o_proj":           AttnOutput,
	"post_attention_layernorm":   FFNNorm,
	"mlp.gate_proj":              FFNGate,
	"mlp.up_proj":                FFNUp,
	"mlp.down_proj":              FFNDown,
	"self_attn.q_norm":           AttnQNorm,
	"self_attn.k_norm":           AttnKNorm,
	"pre_feedforward_layernorm":  FFNNorm,
	"post_feedforward_layernorm": PostFFWNorm,

	"block_sparse_moe.gate":         FFNGateInp,
	"block_sparse_moe.experts.N.w1": FFNGateExps,
	"block_sparse_moe.experts.N.w2": FFNDownExps,
	"block_sparse_moe.experts.N.w3": FFNUpExps,

	"mlp.gate":                 FFNGateInp,
	"mlp.experts.N.gate_proj":  FFNGateExps,
	"mlp.experts.N.up_proj":    FFNUpExps,
	"mlp.experts.N.down_proj":  FFNDownExps,
	"mlp.experts.gate_up_proj": FFNGateUpExps,
	"mlp.experts.down_proj":    FFNDownExps,

	"attention.query_key_value":    AttnQKV,
	"attention.dense":              AttnOutput,
	"attention.query_layernorm":    AttnQNorm,
	"attention.key_layernorm":      AttnKNorm,
	"mlp.shared_experts.gate_proj": FFNGateShexp,
	"mlp.shared_experts.up_proj":   FFNUpShexp,
	"mlp.shared_experts.down_proj": FFNDownShexp,
	"eh_proj":                      NextNEhProj,
	"enorm":                        NextNENorm,
	"hnorm":                        NextNHNorm,
	"final_layernorm":              LayerOutputNorm,
	"linear_attn.in_proj_qkv":      AttnQKV,
	"linear_attn.in_proj_z":        AttnGate,
	"linear_attn.in_proj_a":        SSMAlpha,
	"linear_attn.in_proj_b":        SSMBeta,
	"linear_attn.conv1d":           SSMConv1D,
	"linear_attn.norm":             SSMNorm,
	"linear_attn.out_proj":         SSMOut,
}

// bareNames are parameters without .weight or .bias, and what they are.
var bareNames = map[string]ID{
	"linear_attn.A_log":                {Role: SSMA},
	"linear_attn.dt_bias":              {Role: SSMDt, Suffix: ".bias"},
	"mlp.gate.expert_bias":             {Role: ExpProbsB, Suffix: ".bias"},
	"mlp.gate.e_score_correction_bias": {Role: ExpProbsB, Suffix: ".bias"},
}

// mtpNames are the tensors that Qwen3.5 keeps beside its layers for multi-token
// prediction.
var mtpNames = map[string]Role{"fc": NextNEhProj, "pre_fc_norm_embedding": NextNENorm, "pre_fc_norm_hidden": NextNHNorm, "norm": NextNHeadNorm}

// has reports whether tensors of a family may have a role.
func (f Family) has(name string, r Role) bool {
	switch group, _, _ := strings.Cut(name, "."); group {
	case "block_sparse_moe":
		return f == Llama
	case "linear_attn":
		return f == Qwen35
	case "attention", "eh_proj", "enorm", "hnorm", "final_layernorm":
		return f == BailingMoE2
	case "self_attn":
		if f == BailingMoE2 {
			return false
		}
	}
	switch r {
	case AttnQNorm, AttnKNorm:
		return f == Qwen3 || f == Qwen3MoE || f == Gemma3 || f == Qwen35
	case PostFFWNorm:
		return f == Gemma3
	case FFNNorm:
		return f == Gemma3 || name == "post_attention_layernorm"
	case FFNGate, FFNUp, FFNDown:
		return f != Qwen3MoE
	case FFNGateShexp, FFNUpShexp, FFNDownShexp, ExpProbsB:
		return f == BailingMoE2
	case FFNGateInp, FFNGateExps, FFNUpExps, FFNDownExps:
		return f == Qwen3MoE || f == BailingMoE2 && name != "mlp.experts.down_proj"
	case FFNGateUpExps:
		return f == Qwen3MoE
	}
	return true
}

// postAttention reports that post_attention_layernorm is the attention's own norm
// and not the one before the feed-forward part.
func (f Family) postAttention() bool { return f == Gemma3 || f == Qwen35 }

// HFID finds out what a Hugging Face tensor name stands for in a family. The
// prefixes that multimodal classes add (language_model., text_model.) and a
// missing model. make no difference.
func HFID(f Family, name string) (ID, bool) {
	id := ID{Layer: -1, Expert: -1}
	name = strings.ReplaceAll(name, "language_model.", "")
	if f == Llama {
		name = strings.ReplaceAll(name, "text_model.", "")
	}
	if f == Qwen35 {
		if rest, ok := strings.CutPrefix(strings.TrimPrefix(name, "model."), "mtp."); ok {
			return mtpID(rest)
		}
	}
	base := name
	for _, s := range []string{".weight", ".bias"} {
		if strings.HasSuffix(name, s) {
			base, id.Suffix = strings.TrimSuffix(name, s), s
			break
		}
	}
	base = strings.TrimPrefix(base, "model.")
	switch base {
	case "word_embeddings":
		id.Role = TokenEmbd
		return id, f == BailingMoE2 && id.Suffix != ""
	case "embed_tokens":
		id.Role = TokenEmbd
		return id, f != BailingMoE2 && id.Suffix != ""
	case "norm":
		id.Role = OutputNorm
		return id, id.Suffix != ""
	case "lm_head":
		id.Role = Output
		return id, id.Suffix != ""
	}
	rest, ok := strings.CutPrefix(base, "layers.")
	if !ok {
		return ID{}, false
	}
	no, rest, ok := strings.Cut(rest, ".")
	if !ok || !number(no, &id.Layer) {
		return ID{}, false
	}
	key := rest
	if at := strings.Index(rest, ".experts."); at >= 0 {
		at += len(".experts.")
		no, tail, ok := strings.Cut(rest[at:], ".")
		if ok && number(no, &id.Expert) {
			key = rest[:at] + "N." + tail
		}
	}
	if bare, ok := bareNames[key]; ok && id.Suffix == "" {
		id.Role, id.Suffix = bare.Role, bare.Suffix
		return id, f.has(key, id.Role)
	}
	id.Role, ok = layerNames[key]
	if !ok || !f.has(key, id.Role) {
		return ID{}, false
	}
	if f.postAttention() && key == "post_attention_layernorm" {
		id.Role = PostAttentionNorm
	}
	if id.Suffix == "" {
		// Stacked experts are parameters of their own, without a suffix.
		if id.Role != FFNGateUpExps && (id.Role != FFNDownExps || id.Expert >= 0) {
			return ID{}, false
		}
	}
	return id, true
}

// mtpID finds out what a name behind mtp. stands for.
func mtpID(name string) (ID, bool) {
	if strings.HasPrefix(name, "layers.") {
		id, ok := HFID(Qwen35, name)
		id.MTP = true
		return id, ok
	}
	base, suffix := strings.TrimSuffix(name, ".weight"), ".weight"
	r, ok := mtpNames[base]
	return ID{Role: r, Layer: 0, Expert: -1, Suffix: suffix, MTP: true}, ok && base != name
}

// HFName is the name that a tensor has in a checkpoint of an architecture: the
// reverse of HFID, without the prefixes of multimodal classes.
func HFName(architecture string, id ID) string {
	f, _ := FamilyOf(architecture)
	layers := "model.layers."
	if id.MTP {
		layers = "mtp.layers."
		for name, r := range mtpNames {
			if r == id.Role {
				return "mtp." + name + id.Suffix
			}
		}
	}
	switch id.Role {
	case TokenEmbd:
		if f == BailingMoE2 {
			return "model.word_embeddings" + id.Suffix
		}
		return "model.embed_tokens" + id.Suffix
	case OutputNorm:
		return "model.norm" + id.Suffix
	case Output:
		return "lm_head" + id.Suffix
	}
	role := id.Role
	var found string
	for name, r := range layerNames {
		if f.postAttention() && name == "post_attention_layernorm" {
			r = PostAttentionNorm
		}
		if r != role || !f.has(name, layerNames[name]) || strings.HasPrefix(name, "block_sparse_moe.") && architecture != "MixtralForCausalLM" {
			continue
		}
		if at := strings.Index(name, ".N."); at >= 0 {
			no := "N"
			if id.Expert >= 0 {
				no = strconv.Itoa(id.Expert)
			}
			name = name[:at+1] + no + name[at+2:]
		} else if id.Expert >= 0 || id.Role == FFNDownExps {
			continue
		}
		// At most one name is left but for gemma's norms, whose names differ.
		if found == "" || name < found {
			found = name
		}
	}
	for name, bare := range bareNames {
		if bare.Role == role && bare.Suffix == id.Suffix && f.has(name, role) && name != "mlp.gate.e_score_correction_bias" {
			return layers + strconv.Itoa(id.Layer) + "." + name
		}
	}
	if found == "" {
		return id.GGUFName()
	}
	return layers + strconv.Itoa(id.Layer) + "." + found + id.Suffix
}

// number reads a decimal number that is small and has no leading zeros.
func number(s string, n *int) bool {
	if s == "" || len(s) > 6 || s[0] == '0' && s != "0" || strings.Trim(s, "0123456789") != "" {
		return false
	}
	*n, _ = strconv.Atoi(s)
	return true
}

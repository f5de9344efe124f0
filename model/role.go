package model

import (
	"slices"
	"strconv"
	"strings"
)

// Role is what a tensor does in a decoder. Its text is the tensor's GGUF name
// without blk.N. and suffix, except where one GGUF name serves two purposes.
type Role string

// The roles of the architectures that quern knows.
const (
	TokenEmbd         Role = "token_embd"
	Output            Role = "output"
	OutputNorm        Role = "output_norm"
	RopeFreqs         Role = "rope_freqs"
	AttnNorm          Role = "attn_norm"
	AttnQ             Role = "attn_q"
	AttnK             Role = "attn_k"
	AttnV             Role = "attn_v"
	AttnOutput        Role = "attn_output"
	AttnQNorm         Role = "attn_q_norm"
	AttnKNorm         Role = "attn_k_norm"
	PostAttentionNorm Role = "post_attention_norm"
	FFNNorm           Role = "ffn_norm"
	PostFFWNorm       Role = "post_ffw_norm"
	FFNGate           Role = "ffn_gate"
	FFNUp             Role = "ffn_up"
	FFNDown           Role = "ffn_down"
	FFNGateInp        Role = "ffn_gate_inp"
	FFNGateExps       Role = "ffn_gate_exps"
	FFNUpExps         Role = "ffn_up_exps"
	FFNDownExps       Role = "ffn_down_exps"
	FFNGateInpShexp   Role = "ffn_gate_inp_shexp"
	FFNGateShexp      Role = "ffn_gate_shexp"
	FFNUpShexp        Role = "ffn_up_shexp"
	FFNDownShexp      Role = "ffn_down_shexp"
	// FFNGateUpExps holds gate and up of all experts, the rows of one above
	// those of the other.
	FFNGateUpExps Role = "ffn_gate_up_exps"

	// AttnQKV holds query, key and value weights, one below the other.
	AttnQKV Role = "attn_qkv"
	// AttnGate scales the output of linear attention (Qwen3.5's z).
	AttnGate  Role = "attn_gate"
	SSMA      Role = "ssm_a" // without a suffix
	SSMDt     Role = "ssm_dt"
	SSMAlpha  Role = "ssm_alpha"
	SSMBeta   Role = "ssm_beta"
	SSMConv1D Role = "ssm_conv1d"
	SSMNorm   Role = "ssm_norm"
	SSMOut    Role = "ssm_out"
	// ExpProbsB is added to the experts' scores when they are chosen.
	ExpProbsB       Role = "exp_probs_b"
	LayerOutputNorm Role = "layer_output_norm"

	// The layers behind the last one that foretell further tokens.
	NextNEhProj   Role = "nextn.eh_proj"
	NextNENorm    Role = "nextn.enorm"
	NextNHNorm    Role = "nextn.hnorm"
	NextNHeadNorm Role = "nextn.shared_head_norm"
)

// Roles lists every role, in the order above.
func Roles() []Role {
	return []Role{TokenEmbd, Output, OutputNorm, RopeFreqs, AttnNorm, AttnQ, AttnK, AttnV, AttnOutput, AttnQNorm, AttnKNorm,
		PostAttentionNorm, FFNNorm, PostFFWNorm, FFNGate, FFNUp, FFNDown, FFNGateInp, FFNGateExps, FFNUpExps, FFNDownExps,
		FFNGateInpShexp, FFNGateShexp, FFNUpShexp, FFNDownShexp, FFNGateUpExps, AttnQKV, AttnGate, SSMA, SSMDt, SSMAlpha, SSMBeta,
		SSMConv1D, SSMNorm, SSMOut, ExpProbsB, LayerOutputNorm, NextNEhProj, NextNENorm, NextNHNorm, NextNHeadNorm}
}

// IsNorm reports whether the role is a normalization's weight.
func (r Role) IsNorm() bool {
	return strings.HasSuffix(string(r), "_norm") || r == NextNENorm || r == NextNHNorm
}

// IsExpert reports whether the role is a weight of routed experts.
func (r Role) IsExpert() bool { return strings.HasSuffix(string(r), "_exps") }

// PerLayer reports whether every layer has its own tensor of the role.
func (r Role) PerLayer() bool {
	return r != TokenEmbd && r != Output && r != OutputNorm && r != RopeFreqs
}

// ID says which tensor of a model a name stands for. Layer and Expert are -1
// where they do not apply. Suffix is ".weight", ".bias" or empty.
type ID struct {
	Role   Role
	Layer  int
	Expert int
	Suffix string
	// MTP says that Layer counts the layers for multi-token prediction, which
	// some checkpoints number by themselves; in GGUF files they are the last.
	MTP bool
}

// GGUFName is the tensor's name in a GGUF file.
func (id ID) GGUFName() string {
	name := string(id.Role) + id.Suffix
	if id.Layer >= 0 {
		name = "blk." + strconv.Itoa(id.Layer) + "." + name
	}
	return name
}

// Family is a group of Hugging Face architectures that are converted alike. Its
// text is the value of general.architecture.
type Family string

// The families that are converted.
const (
	Llama    Family = "llama"
	Qwen2    Family = "qwen2"
	Qwen3    Family = "qwen3"
	Qwen3MoE Family = "qwen3moe"
	Gemma3   Family = "gemma3"
	Qwen35   Family = "qwen35"
	// BailingMoE2 is that of Ling and Ring 2.0.
	BailingMoE2 Family = "bailingmoe2"
)

// Architectures lists the Hugging Face class names that are converted.
func Architectures() []string {
	return []string{"BailingMoeV2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "LlamaForCausalLM", "MistralForCausalLM",
		"MixtralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"}
}

// FamilyOf gives the family of a class name.
func FamilyOf(architecture string) (Family, bool) {
	switch architecture {
	case "LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM":
		return Llama, true
	case "Qwen2ForCausalLM":
		return Qwen2, true
	case "Qwen3ForCausalLM":
		return Qwen3, true
	case "Qwen3MoeForCausalLM":
		return Qwen3MoE, true
	case "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration":
		return Gemma3, true
	case "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration":
		return Qwen35, true
	case "BailingMoeV2ForCausalLM":
		return BailingMoE2, true
	}
	return "", false
}

// GGUFID finds out what a GGUF tensor name stands for.
func GGUFID(name string) (ID, bool) {
	id := ID{Layer: -1, Expert: -1}
	rest := name
	for _, s := range []string{".weight", ".bias"} {
		if strings.HasSuffix(rest, s) {
			rest, id.Suffix = strings.TrimSuffix(rest, s), s
			break
		}
	}
	if r, ok := strings.CutPrefix(rest, "blk."); ok {
		no, r, ok := strings.Cut(r, ".")
		if !ok || !number(no, &id.Layer) {
			return ID{}, false
		}
		rest = r
	}
	id.Role = Role(rest)
	if (id.Suffix == "") != (id.Role == SSMA) || !slices.Contains(Roles(), id.Role) || id.Role.PerLayer() != (id.Layer >= 0) {
		return ID{}, false
	}
	return id, true
}

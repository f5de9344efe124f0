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
)

// Roles lists every role, in the order above.
func Roles() []Role {
	return []Role{TokenEmbd, Output, OutputNorm, RopeFreqs, AttnNorm, AttnQ, AttnK, AttnV, AttnOutput, AttnQNorm, AttnKNorm,
		PostAttentionNorm, FFNNorm, PostFFWNorm, FFNGate, FFNUp, FFNDown, FFNGateInp, FFNGateExps, FFNUpExps, FFNDownExps,
		FFNGateInpShexp, FFNGateShexp, FFNUpShexp, FFNDownShexp, FFNGateUpExps}
}

// IsNorm reports whether the role is a normalization's weight.
func (r Role) IsNorm() bool { return strings.HasSuffix(string(r), "_norm") }

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
)

// Architectures lists the Hugging Face class names that are converted.
func Architectures() []string {
	return []string{"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "LlamaForCausalLM", "MistralForCausalLM",
		"MixtralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"}
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
	}
	return "", false
}

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
}

// has reports whether tensors of a family may have a role.
func (f Family) has(name string, r Role) bool {
	switch r {
	case AttnQNorm, AttnKNorm:
		return f == Qwen3 || f == Qwen3MoE || f == Gemma3
	case PostFFWNorm:
		return f == Gemma3
	case FFNNorm:
		return f == Gemma3 || name == "post_attention_layernorm"
	case FFNGate, FFNUp, FFNDown:
		return f != Qwen3MoE
	case FFNGateInp, FFNGateExps, FFNUpExps, FFNDownExps, FFNGateUpExps:
		if strings.HasPrefix(name, "block_sparse_moe.") {
			return f == Llama
		}
		return f == Qwen3MoE
	}
	return true
}

// HFID finds out what a Hugging Face tensor name stands for in a family. The
// prefixes that multimodal classes add (language_model., text_model.) and a
// missing model. make no difference.
func HFID(f Family, name string) (ID, bool) {
	id := ID{Layer: -1, Expert: -1}
	name = strings.ReplaceAll(name, "language_model.", "")
	if f == Llama {
		name = strings.ReplaceAll(name, "text_model.", "")
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
	case "embed_tokens":
		id.Role = TokenEmbd
		return id, id.Suffix != ""
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
	id.Role, ok = layerNames[key]
	if !ok || !f.has(key, id.Role) {
		return ID{}, false
	}
	if f == Gemma3 && key == "post_attention_layernorm" {
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

// HFName is the name that a tensor has in a checkpoint of an architecture: the
// reverse of HFID, without the prefixes of multimodal classes.
func HFName(architecture string, id ID) string {
	switch id.Role {
	case TokenEmbd:
		return "model.embed_tokens" + id.Suffix
	case OutputNorm:
		return "model.norm" + id.Suffix
	case Output:
		return "lm_head" + id.Suffix
	}
	f, _ := FamilyOf(architecture)
	role := id.Role
	var found string
	for name, r := range layerNames {
		if f == Gemma3 && name == "post_attention_layernorm" {
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
	if found == "" {
		return id.GGUFName()
	}
	return "model.layers." + strconv.Itoa(id.Layer) + "." + found + id.Suffix
}

// number reads a decimal number that is small and has no leading zeros.
func number(s string, n *int) bool {
	if s == "" || len(s) > 6 || s[0] == '0' && s != "0" || strings.Trim(s, "0123456789") != "" {
		return false
	}
	*n, _ = strconv.Atoi(s)
	return true
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
	if id.Suffix == "" || !slices.Contains(Roles(), id.Role) || id.Role.PerLayer() != (id.Layer >= 0) {
		return ID{}, false
	}
	return id, true
}

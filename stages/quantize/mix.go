package quantize

import (
	"strings"

	"quern/model"
	"quern/tensor"
)

// The mix rules of llama-quantize v0.5.0: which type each tensor gets under a
// preset. They are a function of names, shapes, a few numbers of the model and
// running counters, so tensors must be visited in llama-quantize's own order.

// category groups tensors by the part they play in the mix rules.
type category int

const (
	catOther category = iota
	catOutput
	catEmbedding
	catAttnV // attn_v, and the fused attn_qkv and attn_kv_b
	catAttnK
	catAttnQ
	catAttnOutput
	catFFNUp
	catFFNGate
	catFFNDown
)

func categoryOf(name string) category {
	has := func(s string) bool { return strings.Contains(name, s) }
	switch {
	case name == "output.weight":
		return catOutput
	case name == "token_embd.weight", name == "per_layer_token_embd.weight":
		return catEmbedding
	case has("attn_qkv.weight"), has("attn_kv_b.weight"), has("attn_v.weight"):
		return catAttnV
	case has("attn_k.weight"):
		return catAttnK
	case has("attn_q.weight"):
		return catAttnQ
	case has("attn_output.weight"):
		return catAttnOutput
	case has("ffn_up"):
		return catFFNUp
	case has("ffn_gate"):
		return catFFNGate
	case has("ffn_down"):
		return catFFNDown
	}
	return catOther
}

// mixModel is what the rules want to know of the model.
type mixModel struct {
	arch      string
	layers    int // block_count
	heads     int // of layer 0
	kvHeads   int
	experts   int
	hasOutput bool // an output.weight of its own
	attnV     int  // number of tensors in catAttnV
	imatrix   bool
}

func (m mixModel) gqa() int {
	if m.kvHeads == 0 {
		return 0
	}
	return m.heads / m.kvHeads
}

// is70B is llama.cpp's model type of that name, whose V tensors are worth more
// because eight query heads share them.
func (m mixModel) is70B() bool {
	switch m.arch {
	case "llama":
		return m.layers == 80 && m.heads != m.kvHeads
	case "qwen2", "deci", "olmo":
		return m.layers == 80
	case "jais2":
		return m.layers == 68
	}
	return false
}

// mixer holds the counters. Use one per file, tensors in order.
type mixer struct {
	ft   ftype
	m    mixModel
	v    int // catAttnV tensors seen by the rules
	down int
	gate int
	up   int
}

// moreBits says whether layer i of n is one of those that the _M mixes favour:
// the first and last eighth and every third between.
func moreBits(i, n int) bool {
	return i < n/8 || i >= 7*n/8 || (i-n/8)%3 == 2
}

func (x *mixer) in(names ...string) bool {
	for _, n := range names {
		if x.ft.name == n {
			return true
		}
	}
	return false
}

// layer is the index that the feed-forward rules go by: the layer number where
// experts are stacked, else how many such tensors the rules have seen.
func (x *mixer) layer(name string, counter int) int {
	if x.m.experts > 1 {
		if n, _, ok := model.Block(name); ok {
			return n
		}
	}
	return counter
}

// pick gives the type under the mix and why. experts is the size of the third
// axis (1 for a matrix), row the row length.
func (x *mixer) pick(name string, row, experts int64) (tensor.Type, string) {
	def := x.ft.def
	cat := categoryOf(name)
	if cat == catOutput || (cat == catEmbedding && !x.m.hasOutput) {
		return x.head(row)
	}
	if x.ft.name == "MXFP4_MOE" {
		if experts > 1 {
			return tensor.MXFP4, "experts"
		}
		return tensor.Q8_0, "not an expert"
	}
	if cat == catEmbedding {
		return x.embedding()
	}
	if x.in("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M") {
		return x.lowBit(cat)
	}
	switch cat {
	case catAttnV:
		return x.attnV()
	case catAttnK:
		switch {
		case x.m.experts == 8:
			return tensor.Q8_0, "attn_k of 8 experts"
		case x.in("IQ3_XS"):
			return tensor.IQ3_XXS, "attn_k"
		case x.in("IQ3_XXS"):
			return tensor.IQ2_S, "attn_k"
		}
	case catAttnQ:
		switch {
		case x.in("IQ3_XS"):
			return tensor.IQ3_XXS, "attn_q"
		case x.in("IQ3_XXS"):
			return tensor.IQ2_S, "attn_q"
		}
	case catAttnOutput:
		return x.attnOutput()
	case catFFNDown:
		return x.ffnDown(name)
	case catFFNGate:
		i := x.layer(name, x.gate)
		x.gate++
		return x.middle(i)
	case catFFNUp:
		i := x.layer(name, x.up)
		x.up++
		return x.middle(i)
	}
	return def, "preset " + x.ft.name
}

// head is the rule for the output head, or the embedding that serves as one.
func (x *mixer) head(row int64) (tensor.Type, string) {
	def := x.ft.def
	switch {
	case x.ft.name == "MXFP4_MOE":
		return tensor.Q8_0, "output head"
	case row%def.BlockValues() != 0, x.m.arch == "falcon":
		return tensor.Q8_0, "output head"
	case strings.HasPrefix(x.ft.name, "IQ1_"), strings.HasPrefix(x.ft.name, "IQ2_"), x.ft.name == "IQ3_XXS":
		return tensor.Q5_K, "output head"
	case def == tensor.Q8_0:
		return def, "preset " + x.ft.name
	}
	return tensor.Q6_K, "output head"
}

func (x *mixer) embedding() (tensor.Type, string) {
	switch {
	case x.in("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS"):
		return tensor.Q2_K, "embedding"
	case x.in("IQ2_S", "IQ2_M", "IQ3_XXS"):
		return tensor.IQ3_S, "embedding"
	case x.in("TQ1_0", "TQ2_0", "Q2_0"):
		return tensor.Q4_K, "embedding"
	}
	return x.ft.def, "preset " + x.ft.name
}

// lowBit holds the rules of the 1- and 2-bit codebook presets.
func (x *mixer) lowBit(cat category) (tensor.Type, string) {
	finer := tensor.Q2_K
	if x.in("IQ2_S", "IQ2_M") {
		finer = tensor.IQ3_S
	}
	switch cat {
	case catAttnV:
		x.v++
		if x.m.gqa() >= 4 || x.m.experts >= 4 {
			return tensor.Q4_K, "attn_v shared by query heads"
		}
		return finer, "attn_v"
	case catAttnK:
		if x.m.experts == 8 {
			return tensor.Q4_K, "attn_k of 8 experts"
		}
	case catFFNDown:
		i := x.down
		x.down++
		if i < x.m.layers/8 {
			return finer, "ffn_down of an early layer"
		}
	case catAttnOutput:
		switch {
		case x.m.experts == 8:
			return tensor.Q5_K, "attn_output of 8 experts"
		case x.in("IQ1_S", "IQ1_M"):
			return tensor.IQ2_XXS, "attn_output"
		case x.in("IQ2_S", "IQ2_M"):
			return tensor.IQ3_S, "attn_output"
		}
	}
	return x.ft.def, "preset " + x.ft.name
}

func (x *mixer) attnV() (tensor.Type, string) {
	t, why := x.ft.def, "preset "+x.ft.name
	shared := x.m.gqa() >= 4
	set := func(n tensor.Type, s string) { t, why = n, s }
	switch x.ft.name {
	case "Q2_K":
		set(tensor.Q3_K, "attn_v")
		if shared {
			set(tensor.Q4_K, "attn_v shared by query heads")
		}
	case "Q2_K_S", "IQ3_XS", "IQ3_S":
		if shared {
			set(tensor.Q4_K, "attn_v shared by query heads")
		}
	case "Q3_K_M":
		set(tensor.Q4_K, "attn_v")
		if x.v < 2 {
			set(tensor.Q5_K, "attn_v of an early layer")
		}
	case "Q3_K_L":
		set(tensor.Q5_K, "attn_v")
	case "Q4_K_S":
		if x.v < 4 {
			set(tensor.Q5_K, "attn_v of an early layer")
		}
	case "Q4_K_M", "Q5_K_M":
		if moreBits(x.v, x.m.attnV) {
			set(tensor.Q6_K, "attn_v of a favoured layer")
		}
	case "IQ4_NL", "IQ4_XS":
		if shared {
			set(tensor.Q5_K, "attn_v shared by query heads")
		}
	case "IQ3_XXS":
		switch {
		case shared:
			set(tensor.Q4_K, "attn_v shared by query heads")
		case !x.m.imatrix:
			set(tensor.IQ3_S, "attn_v")
		}
	case "IQ3_M":
		set(tensor.Q4_K, "attn_v")
	}
	if x.m.is70B() && (t == tensor.Q3_K || t == tensor.Q4_K) {
		set(tensor.Q5_K, "attn_v of a 70B model")
	}
	if x.m.experts == 8 {
		set(tensor.Q8_0, "attn_v of 8 experts")
	}
	x.v++
	return t, why
}

func (x *mixer) attnOutput() (tensor.Type, string) {
	if x.m.arch == "falcon" {
		if x.ft.name == "Q3_K_L" {
			return tensor.Q4_K, "attn_output"
		}
		return x.ft.def, "preset " + x.ft.name
	}
	if x.m.experts == 8 {
		if x.in("Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS") {
			return tensor.Q5_K, "attn_output of 8 experts"
		}
		return x.ft.def, "preset " + x.ft.name
	}
	switch x.ft.name {
	case "Q2_K":
		return tensor.Q3_K, "attn_output"
	case "IQ3_XXS":
		return tensor.IQ3_S, "attn_output"
	case "Q3_K_M", "IQ3_M":
		return tensor.Q4_K, "attn_output"
	case "Q3_K_L":
		return tensor.Q5_K, "attn_output"
	}
	return x.ft.def, "preset " + x.ft.name
}

func (x *mixer) ffnDown(name string) (tensor.Type, string) {
	i, n := x.layer(name, x.down), x.m.layers
	x.down++
	early := i < n/8
	falcon := x.m.arch == "falcon"
	switch x.ft.name {
	case "Q2_K":
		return tensor.Q3_K, "ffn_down"
	case "Q2_K_S":
		if early {
			return tensor.Q4_K, "ffn_down of an early layer"
		}
	case "IQ3_XXS":
		if !x.m.imatrix {
			if early {
				return tensor.Q4_K, "ffn_down of an early layer"
			}
			return tensor.Q3_K, "ffn_down"
		}
	case "Q3_K_M":
		switch {
		case i < n/16:
			return tensor.Q5_K, "ffn_down of an early layer"
		case !falcon, moreBits(i, n):
			return tensor.Q4_K, "ffn_down"
		}
	case "IQ3_M":
		if early || (x.m.experts == 8 && moreBits(i, n)) {
			return tensor.Q4_K, "ffn_down of a favoured layer"
		}
	case "Q3_K_L":
		if falcon {
			return tensor.Q4_K, "ffn_down"
		}
		return tensor.Q5_K, "ffn_down"
	case "Q4_K_M":
		if falcon {
			switch {
			case i < n/16:
				return tensor.Q6_K, "ffn_down of an early layer"
			case moreBits(i, n):
				return tensor.Q5_K, "ffn_down of a favoured layer"
			}
		} else if moreBits(i, n) {
			return tensor.Q6_K, "ffn_down of a favoured layer"
		}
	case "Q5_K_M":
		if moreBits(i, n) {
			return tensor.Q6_K, "ffn_down of a favoured layer"
		}
	case "IQ4_NL", "IQ4_XS":
		if early && !x.m.imatrix {
			return tensor.Q5_K, "ffn_down of an early layer"
		}
	case "Q4_K_S":
		if !falcon && early {
			return tensor.Q5_K, "ffn_down of an early layer"
		}
	case "Q4_0":
		if x.m.imatrix && early {
			return tensor.Q4_1, "ffn_down of an early layer, with imatrix"
		}
	case "Q5_0":
		if x.m.imatrix && early {
			return tensor.Q5_1, "ffn_down of an early layer, with imatrix"
		}
	}
	return x.ft.def, "preset " + x.ft.name
}

// middle is the rule of gate and up: IQ3_XS saves bits in the middle layers.
func (x *mixer) middle(i int) (tensor.Type, string) {
	if x.ft.name == "IQ3_XS" && i >= x.m.layers/8 && i < 7*x.m.layers/8 {
		return tensor.IQ3_XXS, "feed-forward of a middle layer"
	}
	return x.ft.def, "preset " + x.ft.name
}

// fallback is llama-quantize's replacement when rows do not divide into the
// blocks of t. ok is false when it has none.
func fallback(t tensor.Type, row int64) (tensor.Type, bool) {
	if row%t.BlockValues() == 0 {
		return t, true
	}
	switch t {
	case tensor.IQ1_S, tensor.IQ1_M, tensor.IQ2_XXS, tensor.IQ2_XS, tensor.IQ2_S, tensor.IQ3_XXS, tensor.IQ3_S, tensor.IQ4_XS:
		t = tensor.IQ4_NL
	case tensor.Q2_0, tensor.Q2_K, tensor.Q3_K, tensor.TQ1_0, tensor.TQ2_0:
		t = tensor.Q4_0
	case tensor.Q4_K:
		t = tensor.Q5_0
	case tensor.Q5_K:
		t = tensor.Q5_1
	case tensor.Q6_K:
		t = tensor.Q8_0
	default:
		if t.BlockValues() > 32 {
			return tensor.Invalid, false
		}
	}
	if row%t.BlockValues() != 0 {
		return tensor.F16, true
	}
	return t, true
}

// untouchable lists the parts of names that llama-quantize never quantizes.
var untouchable = []string{
	"_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj",
	"ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight",
	"time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight",
	"time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight",
	"time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight",
	"time_mix_g1.weight", "time_mix_g2.weight",
	"time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight",
	"attn_rel_b.weight", ".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos",
	".patch_embd", ".patch_merger", "a.rvq.codebook", "mm.a.code_embd",
}

// quantizable reports whether llama-quantize may change a tensor. dims is the
// number of axes longer than one, counted from the outermost such axis.
func quantizable(name string, dims int) bool {
	if dims < 2 || !strings.HasSuffix(name, "weight") {
		return false
	}
	if name == "position_embd.weight" || name == "token_types.weight" {
		return false
	}
	for _, s := range untouchable {
		if strings.Contains(name, s) {
			return false
		}
	}
	return true
}

package cact

import (
	"fmt"

	"quern/tensor"
)

// Kind says how a tensor is stored.
type Kind uint8

// The kinds, by the numbers that records have.
const (
	F16 Kind = dtypeF16
	F32 Kind = dtypeF32
	CQ  Kind = dtypeCQ
	Raw Kind = dtypeRaw
)

// String gives the format's word.
func (k Kind) String() string {
	switch k {
	case F16:
		return "FP16"
	case F32:
		return "FP32"
	case CQ:
		return "CQ"
	case Raw:
		return "RAW"
	}
	return fmt.Sprintf("dtype %d", uint8(k))
}

// Spec names a tensor and says what it must be.
type Spec struct {
	Name string
	Kind Kind
	// Shape is the logical one: [out, in] of a CQ matrix, without padding.
	// Empty for the tokenizer.
	Shape tensor.Shape
}

// ConditionRank is the rank of generation 3's conditioning in published models.
const ConditionRank = 8

// Names of tensors that others look for.
const (
	NameEmbedding = "embedding"
	NameFinalNorm = "final_norm"
	NameManifest  = "heads.manifest"
	NameTokenizer = "tokenizer"
)

// Tensors lists all tensors of a file but the tokenizer, which comes last, in file
// order. rank is that of generation 3's conditioning.
func (h *Header) Tensors(rank int64, heads []Head) []Spec {
	b := specList{h: h}
	b.model(rank)
	b.heads(heads)
	if h.Audio != nil {
		b.audio(rank)
	}
	return b.list
}

// model lists the tensors up to final_norm.
func (b *specList) model(rank int64) {
	h := b.h
	d, n, lanes, layers := int64(h.DModel), int64(h.HadaN), int64(h.Lanes), int64(h.Layers)
	q := int64(h.Heads) * int64(h.QKHeadDim)
	k, v := int64(h.KVHeads)*int64(h.QKHeadDim), int64(h.KVHeads)*int64(h.VHeadDim)
	o := int64(h.Heads) * int64(h.VHeadDim)
	qk := int64(h.QKHeadDim)
	b.add(NameEmbedding, CQ, int64(h.Vocab), d)
	for i := range h.Layers {
		b.prefix = fmt.Sprintf("layer%02d.", i)
		b.add("norm_in", F16, d)
		b.add("q_proj", CQ, q, d)
		b.add("k_proj", CQ, k, d)
		b.add("v_proj", CQ, v, d)
		if t := int64(h.QKVTaps); t > 0 {
			b.add("q_taps", F16, t, q)
			b.add("k_taps", F16, t, k)
			b.add("v_taps", F16, t, v)
		}
		b.add("q_norm", F16, qk)
		b.add("k_norm", F16, qk)
		b.add("gate_proj", CQ, o, d)
		b.add("out_proj", CQ, d, o)
		b.add("post_norm", F16, d)
		b.add("attn_gate", F16, 1)
		b.add("pre_hada", F16, d)
		if h.Generation == 2 {
			b.add("d1", F16, n)
			b.add("d2", F16, n)
			b.add("d3", F16, n)
			continue
		}
		b.hadamard("", d, n, rank)
	}
	b.prefix = ""
	b.lanes(layers, lanes, d)
	if h.Generation == 3 {
		b.add("hada_p1", F32, n)
		b.add("hada_p2", F32, n)
	}
	e := int64(h.EngramTables) * int64(h.EngramSubDim)
	for i := range h.Sites {
		b.prefix = fmt.Sprintf("engram%d.", i)
		b.add("tables", CQ, int64(h.EngramTables)*int64(h.EngramSlots), int64(h.EngramSubDim))
		b.add("key_proj", CQ, d, e)
		b.add("value_proj", CQ, d, e)
		b.add("taps", F16, int64(h.EngramTaps), d)
	}
	b.prefix = ""
	b.add(NameFinalNorm, F16, d)
}

// hadamard lists the tensors of a Hadamard layer of generation 3.
func (b *specList) hadamard(at string, d, n, rank int64) {
	for _, name := range []string{"d1", "d2", "b2", "d3", "d4"} {
		b.add(at+name, F16, n)
	}
	x, y := b.h.Blocks()
	for _, s := range []string{"w1", "w2", "w3"} {
		b.add(at+s+"a", F16, int64(x), int64(x))
		b.add(at+s+"b", F16, int64(y), int64(y))
	}
	b.add(at+"cond_v", F16, d, rank)
	b.add(at+"cond_u", F16, rank, n)
}

// lanes lists the tensors by which the layers of a stack mix their lanes.
func (b *specList) lanes(layers, lanes, d int64) {
	for _, s := range []string{"pre", "post", "res"} {
		b.add("mhc_a_"+s, F16, layers)
	}
	b.add("mhc_b_pre", F16, layers, lanes)
	b.add("mhc_b_post", F16, layers, lanes)
	b.add("mhc_b_res", F16, layers, lanes, lanes)
	b.add("mhc_phi_pre", CQ, layers*lanes, lanes*d)
	b.add("mhc_phi_post", CQ, layers*lanes, lanes*d)
	b.add("mhc_phi_res", CQ, layers*lanes*lanes, lanes*d)
}

type specList struct {
	h      *Header
	prefix string
	list   []Spec
}

func (b *specList) add(name string, k Kind, shape ...int64) {
	b.list = append(b.list, Spec{b.prefix + name, k, shape})
}

// count is the number of tensors up to final_norm.
func (h *Header) count() int64 {
	per := int64(14)
	if h.Generation == 3 {
		per = 24
	}
	if h.QKVTaps > 0 {
		per += 3
	}
	n := 1 + int64(h.Layers)*per + 9 + 4*int64(len(h.Sites)) + 1
	if h.Generation == 3 {
		n += 2
	}
	return n
}

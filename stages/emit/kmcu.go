package emit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"quern/formats/kmcu"
	"quern/model"
	"quern/model/prune"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
	"quern/tensor/view"
)

// MediaTypeKMCU is the type of a KMCU file in manifests.
const MediaTypeKMCU = "application/vnd.quern.kmcu.v1"

// ErrKMCU marks a model that the KMCU container cannot hold.
var ErrKMCU = errors.New("not a model for KMCU")

// KMCU lays out a KMCU v1 file from a Llama-family model in Hugging Face form:
// matrices in its own 4-bit blocks, norms in float32, Q and K in the order of
// the checkpoint.
type KMCU struct{ out recipes.Output }

// NewKMCU makes the emitter of a kmcu output.
func NewKMCU(out recipes.Output) *KMCU { return &KMCU{out} }

// Plan lays out the file.
func (e *KMCU) Plan(_ context.Context, in *model.Model) (*pipeline.Layout, error) {
	if in.Form != model.HF {
		return nil, fmt.Errorf("%w: the model is in %s form; KMCU has blocks of its own and starts from the Hugging Face form, without a quantize or convert step", ErrKMCU, in.Form)
	}
	if in.Tensor(prune.OutputIDs) != nil {
		return nil, fmt.Errorf("%w: the head is pruned, and the container has no place for the ids of its rows; prune-head with mode: vocab cuts the embedding as well", ErrKMCU)
	}
	h, err := e.header(in)
	if err != nil {
		return nil, err
	}
	align := kmcu.AlignRow
	if e.out.Align == "none" {
		align = kmcu.AlignNone
	}
	byName, err := kmcuSources(in)
	if err != nil {
		return nil, err
	}
	specs := h.Tensors()
	items := make([]pipeline.Item, 0, len(specs))
	for _, s := range specs {
		src, ok := byName[s.Name]
		if !ok {
			return nil, fmt.Errorf("%w: no tensor of the model becomes %s", model.ErrTensors, s.Name)
		}
		delete(byName, s.Name)
		it, err := kmcuItem(s, src, align)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	for _, t := range in.Tensors {
		for name, left := range byName {
			if left == t {
				return nil, fmt.Errorf("%w: tensor %s would be %s, which a file of %d layers does not have", model.ErrTensors, t.Name, name, h.Layers)
			}
		}
	}
	l, err := kmcu.NewLayout(*h, specs, kmcu.LayoutOptions{Align: align, Partition: e.out.Flash})
	if err != nil {
		return nil, err
	}
	out := &pipeline.Layout{
		File: e.out.File, Format: "kmcu", MediaType: MediaTypeKMCU, Version: "kmcu.v1",
		Header: l.Header, Size: l.Size, Items: items, Model: in,
	}
	for i := range items {
		items[i].Offset = l.Tensors[i].Offset
	}
	if in.ByRole(model.TokenEmbd, -1, ".weight") == nil {
		out.Notes = append(out.Notes, "the only copy of the tied matrix has the head's name: it is taken as the embedding")
	}
	if n, ok, err := in.Config.OptInt("sliding_window"); err != nil {
		return nil, err
	} else if ok && n > 0 && n < int64(h.MaxSeq) && in.Config.Architecture() == "MistralForCausalLM" {
		out.Notes = append(out.Notes, fmt.Sprintf("the container has no sliding windows: texts longer than the checkpoint's window of %d tokens, which max_seq %d allows, come out differently", n, h.MaxSeq))
	}
	if e.out.Flash > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%s fills %.1f %% of the %d bytes of its partition", e.out.File, 100*float64(l.Size)/float64(e.out.Flash), e.out.Flash))
	}
	return out, nil
}

// KMCUReference gives the tensors that those of a KMCU file are made from, under
// its names and with rows padded as it stores them.
func KMCUReference(in *model.Model) ([]*tensor.Tensor, error) {
	e := &KMCU{}
	h, err := e.header(in)
	if err != nil {
		return nil, err
	}
	byName, err := kmcuSources(in)
	if err != nil {
		return nil, err
	}
	var out []*tensor.Tensor
	for _, s := range h.Tensors() {
		src, ok := byName[s.Name]
		if !ok {
			return nil, fmt.Errorf("%w: no tensor of the model becomes %s", model.ErrTensors, s.Name)
		}
		t, err := stored(s, src, kmcu.AlignRow)
		if err != nil {
			return nil, err
		}
		out = append(out, t.With(func(n *tensor.Tensor) { n.Name = s.Name }))
	}
	return out, nil
}

// stored cuts a tensor of the checkpoint as the file stores it, in the
// checkpoint's type.
func stored(s kmcu.TensorSpec, src *tensor.Tensor, align kmcu.Align) (*tensor.Tensor, error) {
	if len(src.Shape) > 2 || src.Rows() != s.Rows || src.Shape.RowLen() != s.Cols {
		return nil, fmt.Errorf("%w: tensor %s has shape %v, %s needs [%d, %d]", model.ErrTensors, src.Name, src.Shape, s.Name, s.Rows, s.Cols)
	}
	if !src.Type.IsFloat() {
		return nil, fmt.Errorf("%w: tensor %s is %s; KMCU is made from float weights", ErrKMCU, src.Name, src.Type)
	}
	switch {
	case s.Type != tensor.KMCUQ4:
		return src, nil
	case align == kmcu.AlignNone:
		return view.Flat(src, s.Shape(align).RowLen())
	}
	return view.Pad(src, src.Rows(), s.Shape(align).RowLen())
}

// kmcuItem makes the tensor of a directory record from the checkpoint's.
func kmcuItem(s kmcu.TensorSpec, src *tensor.Tensor, align kmcu.Align) (pipeline.Item, error) {
	reason := "norm"
	if s.Type == tensor.KMCUQ4 {
		reason = "matrix"
	}
	t, err := stored(s, src, align)
	if err != nil {
		return pipeline.Item{}, err
	}
	if t, err = view.Cast(t, s.Type, view.CastOptions{}); err != nil {
		return pipeline.Item{}, err
	}
	t = t.With(func(n *tensor.Tensor) { n.Name = s.Name })
	return pipeline.Item{Tensor: t, From: src.Type, Reason: reason}, nil
}

// kmcuSources finds, for each KMCU name, the tensor that it is made from.
// Anything else in the model is an error: leaving it out would change what the
// model computes.
func kmcuSources(in *model.Model) (map[string]*tensor.Tensor, error) {
	perLayer := map[model.Role]string{
		model.AttnNorm: "in_ln", model.AttnQ: "q", model.AttnK: "k", model.AttnV: "v", model.AttnOutput: "o",
		model.FFNNorm: "post_ln", model.FFNGate: "gate", model.FFNUp: "up", model.FFNDown: "down",
	}
	out := map[string]*tensor.Tensor{}
	var strange []string
	fault := ErrKMCU
	for _, t := range in.Tensors {
		if strings.HasSuffix(t.Name, ".rotary_emb.inv_freq") {
			continue // a constant that follows from the header
		}
		name := ""
		id, ok := in.ID(t.Name)
		if !ok {
			fault = model.ErrTensors // no tensor of the architecture at all
		}
		if ok && id.Suffix == ".weight" {
			switch id.Role {
			case model.TokenEmbd:
				name = "tok_embed"
			case model.OutputNorm:
				name = "final_norm"
			case model.Output:
				name = "lm_head"
			default:
				if s, ok := perLayer[id.Role]; ok && id.Expert < 0 {
					name = fmt.Sprintf("L%d.%s", id.Layer, s)
				}
			}
		}
		if name == "" {
			strange = append(strange, t.Name)
			continue
		}
		out[name] = t
	}
	if len(strange) > 0 {
		list := strings.Join(strange, ", ")
		if len(strange) > 8 {
			list = strings.Join(strange[:8], ", ") + fmt.Sprintf(" and %d more", len(strange)-8)
		}
		return nil, fmt.Errorf("%w: the container has no place for %s", fault, list)
	}
	tied, err := in.Config.Bool("tie_word_embeddings", false)
	switch {
	case err != nil:
		return nil, err
	case out["lm_head"] == nil && !tied:
		return nil, fmt.Errorf("%w: lm_head.weight is missing; tie_word_embeddings is false, so the head must be there", model.ErrTensors)
	case out["tok_embed"] == nil && out["lm_head"] != nil && tied:
		// A checkpoint that keeps only the head of a tied pair.
		out["tok_embed"] = out["lm_head"]
		delete(out, "lm_head")
	}
	return out, nil
}

// header reads the fields from the config.
func (e *KMCU) header(in *model.Model) (*kmcu.Header, error) {
	c := in.Config
	switch c.Architecture() {
	case "LlamaForCausalLM", "MistralForCausalLM":
	default:
		if _, known := model.FamilyOf(c.Architecture()); !known {
			return nil, model.UnknownArchitecture(c)
		}
		return nil, fmt.Errorf("%w: architecture %q; the container holds dense LlamaForCausalLM and MistralForCausalLM models", ErrKMCU, c.Architecture())
	}
	if act, ok, err := c.OptString("hidden_act"); err != nil {
		return nil, err
	} else if ok && act != "silu" {
		return nil, fmt.Errorf("%w: %s: hidden_act %q; the container's feed-forward is SwiGLU (silu)", ErrKMCU, c.File(), act)
	}
	h := &kmcu.Header{Tied: in.ByRole(model.Output, -1, ".weight") == nil || in.ByRole(model.TokenEmbd, -1, ".weight") == nil}
	var headDim int64
	for _, f := range []struct {
		to  *uint32
		key string
	}{
		{&h.Layers, "num_hidden_layers"}, {&h.Dim, "hidden_size"}, {&h.Heads, "num_attention_heads"},
		{&h.KVHeads, "num_key_value_heads"}, {&h.FFNDim, "intermediate_size"}, {&h.Vocab, "vocab_size"},
		{&h.MaxSeq, "max_position_embeddings"}, {&h.BOS, "bos_token_id"}, {&h.EOS, "eos_token_id"},
	} {
		n, err := c.Int(f.key)
		if err != nil {
			return nil, err
		}
		if n < 0 || n > math.MaxUint32 {
			return nil, fmt.Errorf("%w: %s: %s %d does not fit the header", model.ErrConfig, c.File(), f.key, n)
		}
		*f.to = uint32(n)
	}
	if int64(h.Layers) > int64(len(in.Tensors)) {
		return nil, fmt.Errorf("%w: %s: num_hidden_layers is %d, the checkpoint has %d tensors in all", model.ErrConfig, c.File(), h.Layers, len(in.Tensors))
	}
	n, ok, err := c.OptInt("head_dim")
	if err != nil {
		return nil, err
	}
	if headDim = n; !ok {
		if h.Heads == 0 || h.Dim%h.Heads != 0 {
			return nil, fmt.Errorf("%w: %s: no head_dim, and hidden_size %d is no multiple of num_attention_heads %d", model.ErrConfig, c.File(), h.Dim, h.Heads)
		}
		headDim = int64(h.Dim / h.Heads)
	}
	if headDim <= 0 || headDim > math.MaxUint32 {
		return nil, fmt.Errorf("%w: %s: head_dim %d", model.ErrConfig, c.File(), headDim)
	}
	h.HeadDim = uint32(headDim)
	if e.out.MaxSeq > 0 {
		h.MaxSeq = uint32(e.out.MaxSeq)
	}
	for _, id := range []struct {
		key string
		n   uint32
	}{{"bos_token_id", h.BOS}, {"eos_token_id", h.EOS}} {
		if id.n >= h.Vocab {
			return nil, fmt.Errorf("%w: %s: %s is %d, the vocabulary has %d ids", model.ErrConfig, c.File(), id.key, id.n, h.Vocab)
		}
	}
	rope, err := c.Rope()
	if err != nil {
		return nil, err
	}
	if rope.Type != "" && rope.Type != "default" {
		return nil, fmt.Errorf("%w: %s: rope type %q; the container has plain rotation only", ErrKMCU, c.File(), rope.Type)
	}
	if !rope.HasTheta {
		return nil, fmt.Errorf("%w: %s: no rope_theta, and the architecture has no stated default", model.ErrConfig, c.File())
	}
	eps, err := c.Float("rms_norm_eps")
	if err != nil {
		return nil, err
	}
	h.RopeTheta, h.NormEps = float32(rope.Theta), float32(eps)
	return h, nil
}

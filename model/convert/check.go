package convert

import (
	"fmt"
	"slices"
	"strings"

	"quern/model"
	"quern/tensor"
)

// shapeOf gives the shape that a tensor must have. Experts are asked for one by
// one (id.Expert >= 0) or stacked. ok is false when any shape will do.
func shapeOf(d *model.Dims, id model.ID) (tensor.Shape, bool) {
	q, kv := d.Heads*d.HeadDim, d.KVHeads*d.HeadDim
	matrix := func(rows, cols int64) (tensor.Shape, bool) {
		s := tensor.Shape{rows, cols}
		if id.Suffix == ".bias" {
			s = s[:1]
		}
		return s, true
	}
	expert := func(rows, cols int64) (tensor.Shape, bool) {
		s, _ := matrix(rows, cols)
		if id.Expert < 0 {
			s = append(tensor.Shape{d.Experts}, s...)
		}
		return s, true
	}
	switch id.Role {
	case model.TokenEmbd, model.Output:
		return matrix(d.Vocab, d.Hidden)
	case model.AttnQNorm, model.AttnKNorm:
		return tensor.Shape{d.HeadDim}, true
	case model.AttnQ:
		if d.Family == model.Qwen35 {
			q *= 2 // a gate beside every head
		}
		return matrix(q, d.Hidden)
	case model.AttnK, model.AttnV:
		return matrix(kv, d.Hidden)
	case model.AttnOutput:
		return matrix(d.Hidden, q)
	case model.FFNGate, model.FFNUp:
		return matrix(d.FFN, d.Hidden)
	case model.FFNDown:
		return matrix(d.Hidden, d.FFN)
	case model.FFNGateInp:
		return matrix(d.Experts, d.Hidden)
	case model.FFNGateExps, model.FFNUpExps:
		return expert(d.ExpertFFN, d.Hidden)
	case model.FFNDownExps:
		return expert(d.Hidden, d.ExpertFFN)
	case model.FFNGateUpExps:
		return expert(2*d.ExpertFFN, d.Hidden)
	case model.FFNGateShexp, model.FFNUpShexp:
		return matrix(d.SharedFFN, d.Hidden)
	case model.FFNDownShexp:
		return matrix(d.Hidden, d.SharedFFN)
	case model.ExpProbsB:
		return tensor.Shape{d.Experts}, true
	case model.NextNEhProj:
		return matrix(d.Hidden, 2*d.Hidden)
	case model.AttnQKV:
		if d.Linear == nil {
			return matrix(q+2*kv, d.Hidden)
		}
	}
	if d.Linear != nil {
		if s, ok := linearShape(d, id); ok {
			return s, true
		}
	}
	if id.Role.IsNorm() {
		return tensor.Shape{d.Hidden}, true
	}
	return nil, false
}

// linearShape is shapeOf for the tensors of linear attention, as checkpoints have
// them.
func linearShape(d *model.Dims, id model.ID) (tensor.Shape, bool) {
	l := d.Linear
	joint := 2*l.KeyRows() + l.ValueRows()
	switch id.Role {
	case model.AttnQKV:
		return tensor.Shape{joint, d.Hidden}, true
	case model.AttnGate:
		return tensor.Shape{l.ValueRows(), d.Hidden}, true
	case model.SSMAlpha, model.SSMBeta:
		return tensor.Shape{l.ValueHeads, d.Hidden}, true
	case model.SSMA, model.SSMDt:
		return tensor.Shape{l.ValueHeads}, true
	case model.SSMConv1D:
		return tensor.Shape{joint, 1, l.Kernel}, true
	case model.SSMNorm:
		return tensor.Shape{l.ValueDim}, true
	case model.SSMOut:
		return tensor.Shape{d.Hidden, l.ValueRows()}, true
	}
	return nil, false
}

// checkShape holds a source tensor against the sizes of the config.
func checkShape(d *model.Dims, id model.ID, t *tensor.Tensor) error {
	want, ok := shapeOf(d, id)
	if !ok || t.Shape.Equal(want) {
		return nil
	}
	if id.Role == model.TokenEmbd && d.Family == model.Gemma3 && len(t.Shape) == 2 && t.Shape[0] > want[0] && t.Shape[1] == want[1] {
		return nil // rows beyond the vocabulary are cut
	}
	err := fmt.Errorf("%w: %s has shape %v, the config asks for %v", model.ErrTensors, t.Name, t.Shape, want)
	n := len(want)
	if len(t.Shape) == n && n >= 2 && t.Shape[n-1] == want[n-2] && t.Shape[n-2] == want[n-1] {
		err = fmt.Errorf("%w: it is stored transposed, which %s never is", err, d.Family)
	}
	return err
}

// required lists the tensors without which the model cannot run.
func required(d *model.Dims) []model.ID {
	var out []model.ID
	add := func(layer int, roles ...model.Role) {
		for _, r := range roles {
			out = append(out, model.ID{Role: r, Layer: layer, Expert: -1, Suffix: ".weight"})
		}
	}
	add(-1, model.TokenEmbd, model.OutputNorm)
	if !d.Tied {
		add(-1, model.Output)
	}
	for l := range int(d.Layers) {
		add(l, model.AttnNorm)
		switch {
		case d.Linear.Has(l):
			add(l, model.AttnQKV, model.AttnGate, model.SSMAlpha, model.SSMBeta, model.SSMConv1D, model.SSMNorm, model.SSMOut)
			out = append(out, model.ID{Role: model.SSMA, Layer: l, Expert: -1}, model.ID{Role: model.SSMDt, Layer: l, Expert: -1, Suffix: ".bias"})
		case d.Family == model.BailingMoE2:
			add(l, model.AttnQKV, model.AttnOutput)
		default:
			add(l, model.AttnQ, model.AttnK, model.AttnV, model.AttnOutput)
		}
		if d.Family == model.Qwen35 {
			add(l, model.PostAttentionNorm)
		} else {
			add(l, model.FFNNorm)
		}
		if d.Experts > 0 && int64(l) >= d.DenseLead {
			add(l, model.FFNGateInp, model.FFNGateExps, model.FFNUpExps, model.FFNDownExps)
			if d.SharedFFN > 0 {
				add(l, model.FFNGateShexp, model.FFNUpShexp, model.FFNDownShexp)
			}
		} else {
			add(l, model.FFNGate, model.FFNUp, model.FFNDown)
		}
		switch d.Family {
		case model.Qwen3, model.Qwen3MoE, model.BailingMoE2:
			add(l, model.AttnQNorm, model.AttnKNorm)
		case model.Qwen35:
			if !d.Linear.Has(l) {
				add(l, model.AttnQNorm, model.AttnKNorm)
			}
		case model.Gemma3:
			add(l, model.AttnQNorm, model.AttnKNorm, model.PostAttentionNorm, model.PostFFWNorm)
		}
	}
	if first := int(d.Layers - d.NextN); d.NextN > 0 {
		add(first, model.NextNEhProj, model.NextNENorm, model.NextNHNorm)
	}
	return out
}

// names lists up to a number of names for a message, all of them sorted.
func names(list []string) string {
	const most = 100
	list = slices.Sorted(slices.Values(list))
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

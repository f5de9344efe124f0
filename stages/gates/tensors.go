// Package gates holds the conditions that a recipe may put on a written file.
package gates

import (
	"context"
	"errors"
	"fmt"
	"math"

	"quern/model"
	"quern/model/convert"
	"quern/model/needle"
	"quern/model/order"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/emit"
	"quern/tensor"
	"quern/verify"
)

// Reference gives the tensors that those of a file of the format should be, in
// the best type there is: the model's own values under the file's names and
// layouts.
func Reference(ctx context.Context, format verify.Format, ref *model.Model) ([]*tensor.Tensor, error) {
	switch format {
	case verify.KMCU:
		return emit.KMCUReference(ref)
	case verify.Cact:
		return needle.Reference(ref)
	case verify.GGUF, verify.Repacked:
		if ref.Form != model.HF {
			if format == verify.Repacked {
				return ref.Tensors, nil // a cache has the numbers of its file
			}
			// Both sides of a comparison have experts by the numbers that they had
			// before they were ordered by use.
			return order.Original(ref.Meta, ref.Tensors)
		}
		g, err := convert.ToGGUF(ctx, ref, convert.Options{OutType: "f32"})
		if err != nil {
			return nil, err
		}
		return g.Tensors, nil
	case verify.Safetensors:
		return ref.Tensors, nil
	}
	return nil, fmt.Errorf("%w: %s", verify.ErrFormat, format)
}

// compare holds a written file against its reference.
func compare(ctx context.Context, in pipeline.GateInput) (*verify.Report, error) {
	opt := verify.OpenOptions{}
	if in.Layout.Model != nil {
		opt.Meta = in.Layout.Model.Meta
	}
	got, err := verify.Open(ctx, in.Layout.File, in.File, opt)
	if err != nil {
		return nil, err
	}
	want, err := Reference(ctx, got.Format, in.Reference)
	if err != nil {
		return nil, err
	}
	return verify.Compare(ctx, got.Tensors, want, verify.Options{Jobs: in.Jobs})
}

// Worst finds the tensor of a written file with the lowest signal-to-noise
// ratio. It gives nil when nothing was lost, and when the reference cannot be
// compared at all, as after a step that has no counterpart in it.
func Worst(ctx context.Context, in pipeline.GateInput) (*pipeline.WorstTensor, error) {
	rep, err := compare(ctx, in)
	if errors.Is(err, verify.ErrMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := rep.Worst()
	if w == nil {
		return nil, nil
	}
	return &pipeline.WorstTensor{Name: w.Name, Type: w.Type, SNRdB: float64(w.SNRdB)}, nil
}

// Tensors is the gate that bounds the errors of every tensor.
type Tensors struct{ p recipes.TensorsGate }

// NewTensors makes the gate.
func NewTensors(p recipes.TensorsGate) *Tensors { return &Tensors{p} }

// Name is the gate's name.
func (g *Tensors) Name() string { return "tensors" }

// Check compares every tensor of the file with its reference. Of each limit the
// tensor nearest to it, or farthest beyond, is reported.
func (g *Tensors) Check(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
	rep, err := compare(ctx, in)
	if err != nil {
		return nil, err
	}
	var out []pipeline.GateResult
	limit := func(what, unit string, max *float64, sign float64, value func(verify.Row) float64) {
		if max == nil {
			return
		}
		worst, at := math.Inf(-1), ""
		for _, r := range rep.Rows {
			if v := float64(sign * value(r)); v > worst || at == "" || v != v {
				worst, at = v, r.Name+" ("+r.Type+")"
			}
		}
		v := float64(sign * worst)
		res := pipeline.GateResult{Gate: g.Name(), Output: in.Layout.File, What: what + " of " + at, Value: v, Limit: *max, Pass: sign*v <= sign**max}
		rel := "is within"
		if !res.Pass {
			rel = fmt.Sprintf("is %.4g%s beyond", math.Abs(v-*max), unit)
		}
		res.Text = fmt.Sprintf("tensors: %s: %s is %.4g%s, which %s the limit of %.4g%s", in.Layout.File, res.What, v, unit, rel, *max, unit)
		out = append(out, res)
	}
	// A ratio must not fall below its limit, errors must not exceed theirs.
	limit("SNR", " dB", g.p.MinSNRdB, -1, func(r verify.Row) float64 { return float64(r.SNRdB) })
	limit("largest error", "", g.p.MaxAbs, 1, func(r verify.Row) float64 { return r.MaxAbs })
	limit("RMS error", "", g.p.MaxRMS, 1, func(r verify.Row) float64 { return r.RMS })
	for _, r := range rep.Rows {
		if n := r.NaN + r.Inf; n > 0 {
			out = append(out, pipeline.GateResult{Gate: g.Name(), Output: in.Layout.File, What: "finite values of " + r.Name, Value: float64(n),
				Text: fmt.Sprintf("tensors: %s: %s has %d values that are NaN or infinite", in.Layout.File, r.Name, n)})
		}
	}
	return out, nil
}

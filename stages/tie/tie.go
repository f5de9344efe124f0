// Package tie is the step that drops the output head, so that the embedding
// serves for both.
package tie

import (
	"context"
	"errors"
	"fmt"
	"math"

	"quern/model"
	"quern/recipes"
	"quern/tensor"
	"quern/tensor/quant"
)

// ErrTrained marks a head that differs from the embedding and must not be
// dropped without a word.
var ErrTrained = errors.New("the output head is trained on its own")

// Stage is the step.
type Stage struct{ p recipes.TieHead }

// New makes the step.
func New(p recipes.TieHead) *Stage { return &Stage{p} }

// Name is the step's name.
func (s *Stage) Name() string { return "tie-head" }

// Plan drops the head. A model that is tied already stays as it is.
func (s *Stage) Plan(_ context.Context, in *model.Model) (*model.Model, error) {
	if in.Form != model.HF && in.Form != model.GGUF {
		return nil, fmt.Errorf("%w: the model is in %s form; heads are tied in Hugging Face and GGUF models", model.ErrForm, in.Form)
	}
	head := in.ByRole(model.Output, -1, ".weight")
	embd := in.ByRole(model.TokenEmbd, -1, ".weight")
	if head == nil || embd == nil {
		return in.WithNotes(model.Note{Text: "tie-head: the model has no head of its own; nothing was dropped"}), nil
	}
	if !head.Shape.Equal(embd.Shape) {
		return nil, fmt.Errorf("%s is %v and %s is %v: one cannot stand in for the other", head.Name, head.Shape, embd.Name, embd.Shape)
	}
	if !s.p.Force && !(head.Key == embd.Key && !head.Key.IsZero()) {
		return nil, fmt.Errorf("%w: %s %v would be thrown away, which saves %d parameters and can destroy the model; set force: true to do it all the same",
			ErrTrained, head.Name, head.Shape, head.Rows()*head.Shape.RowLen())
	}
	ts := make([]*tensor.Tensor, 0, len(in.Tensors)-1)
	for _, t := range in.Tensors {
		if t != head {
			ts = append(ts, t)
		}
	}
	out := in.WithTensors(ts).WithNotes(model.Note{Subject: head.Name, Text: fmt.Sprintf(
		"a trained head of %d parameters (%d bytes of %s) is thrown away and %s takes its place; the model may be ruined, so measure it",
		head.Rows()*head.Shape.RowLen(), head.Bytes(), head.Type, embd.Name)})
	if in.Form == model.HF {
		return out.WithConfig(model.Setting{Key: "tie_word_embeddings", Value: true})
	}
	return out, nil
}

// Measure says how far the dropped head is from the embedding that replaces it.
func (s *Stage) Measure(ctx context.Context, in *model.Model) ([]string, error) {
	head := in.ByRole(model.Output, -1, ".weight")
	embd := in.ByRole(model.TokenEmbd, -1, ".weight")
	if head == nil || embd == nil || !head.Shape.Equal(embd.Shape) {
		return nil, nil
	}
	var hh, ee, he float64
	err := pairs(ctx, head, embd, func(h, e []float32) {
		for i := range h {
			a, b := float64(h[i]), float64(e[i])
			hh += float64(a * a)
			ee += float64(b * b)
			he += float64(a * b)
		}
	})
	if err != nil {
		return nil, err
	}
	if hh == 0 || ee == 0 {
		return []string{fmt.Sprintf("%s: head or embedding is all zero", head.Name)}, nil
	}
	cos := he / math.Sqrt(float64(hh*ee))
	verdict := "they have next to nothing in common: expect nonsense"
	switch {
	case cos > 0.999:
		verdict = "they are all but equal"
	case cos > 0.9:
		verdict = "they are alike; expect some loss"
	case cos > 0.5:
		verdict = "they differ; expect a heavy loss"
	}
	return []string{fmt.Sprintf("%s against %s: cosine %.4f, norms %.4g and %.4g; %s",
		head.Name, embd.Name, cos, math.Sqrt(hh), math.Sqrt(ee), verdict)}, nil
}

// pairs walks two tensors of one shape side by side, as float32.
func pairs(ctx context.Context, a, b *tensor.Tensor, f func(a, b []float32)) error {
	da, err := quant.DecoderFor(a.Type)
	if err != nil {
		return fmt.Errorf("tensor %s: %w", a.Name, err)
	}
	db, err := quant.DecoderFor(b.Type)
	if err != nil {
		return fmt.Errorf("tensor %s: %w", b.Name, err)
	}
	row := a.Shape.RowLen()
	step := int64(1)
	if row > 0 && row < 1<<16 {
		step = 1 << 16 / row
	}
	ba, bb := make([]byte, step*a.RowBytes()), make([]byte, step*b.RowBytes())
	fa, fb := make([]float32, step*row), make([]float32, step*row)
	for first := int64(0); first < a.Rows(); first += step {
		n := step
		if n > a.Rows()-first {
			n = a.Rows() - first
		}
		if err := a.ReadRows(ctx, ba[:n*a.RowBytes()], first, n); err != nil {
			return err
		}
		if err := b.ReadRows(ctx, bb[:n*b.RowBytes()], first, n); err != nil {
			return err
		}
		da.Decode(fa[:n*row], ba[:n*a.RowBytes()])
		db.Decode(fb[:n*row], bb[:n*b.RowBytes()])
		f(fa[:n*row], fb[:n*row])
	}
	return nil
}

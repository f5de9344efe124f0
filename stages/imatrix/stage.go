// Package imatrix is the step that runs the model over a text and makes an
// importance matrix of what enters its weights, for quantize steps behind it.
package imatrix

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/convert"
	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/importance"
	"quern/runtime/transformer"
	"quern/tensor"
)

// version is part of the key of every matrix. It changes when the sums do.
const version = "imatrix.v1"

// Stage is the step. It leaves the model as it is.
type Stage struct{ p recipes.Imatrix }

// New makes the step.
func New(p recipes.Imatrix) *Stage { return &Stage{p} }

// Name is the step's name.
func (s *Stage) Name() string { return "imatrix" }

// Plan gives the model back.
func (s *Stage) Plan(_ context.Context, in *model.Model) (*model.Model, error) { return in, nil }

// Resolves is true: the product is all that the step is for.
func (s *Stage) Resolves() bool { return true }

// Resolve plans the run of the model: a Hugging Face model in the form and with
// the rounding to F16 that llama-imatrix would be given.
func (s *Stage) Resolve(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*pipeline.Product, error) {
	text, err := pipeline.FindText(sources, s.p.Text)
	if err != nil {
		return nil, err
	}
	if in.Form == model.HF {
		if in, err = convert.ToGGUF(ctx, in, convert.Options{OutType: "f16"}); err != nil {
			return nil, pipeline.SourceFault(err)
		}
	}
	if in.Form != model.GGUF {
		return nil, fmt.Errorf("%w: a %s model holds no tokenizer", infer.ErrUnsupported, in.Form)
	}
	key, err := modelKey(in)
	if err != nil {
		return nil, err
	}
	if sum := text.Files[0].SHA256; sum == "" {
		key = tensor.Key{}
	} else {
		key = tensor.Derive(version, fmt.Sprintf("text %s context %d chunks %d output %t special %t name %q",
			sum, s.p.Context, s.p.Chunks, s.p.Output, s.p.ParseSpecial, text.FileName()), key)
	}
	return &pipeline.Product{
		Format: "imatrix", MediaType: "application/vnd.quern.imatrix.gguf", File: "imatrix.gguf", Key: key,
		Make: func(ctx context.Context, opt pipeline.WorkOptions) ([]byte, error) { return s.make(ctx, in, text, opt) },
	}, nil
}

// modelKey identifies metadata and weights together. It is zero when any tensor
// has no key.
func modelKey(m *model.Model) (tensor.Key, error) {
	specs := make([]gguf.TensorSpec, len(m.Tensors))
	keys := make([]tensor.Key, len(m.Tensors))
	for i, t := range m.Tensors {
		specs[i] = gguf.TensorSpec{Name: t.Name, Type: t.Type, Shape: t.Shape}
		if keys[i] = t.Key; keys[i].IsZero() {
			return tensor.Key{}, nil
		}
	}
	l, err := gguf.NewLayout(m.Meta, specs, gguf.LayoutOptions{})
	if err != nil {
		return tensor.Key{}, err
	}
	return tensor.Derive("model", string(l.Header), keys...), nil
}

func (s *Stage) make(ctx context.Context, in *model.Model, text *pipeline.Source, opt pipeline.WorkOptions) ([]byte, error) {
	content, err := text.ReadAll(ctx)
	if err != nil {
		return nil, err
	}
	m, err := transformer.FromGGUF(ctx, in)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	matrix, err := importance.Compute(ctx, m, content, importance.Options{
		Context: int(s.p.Context), Chunks: int(s.p.Chunks), Output: s.p.Output, ParseSpecial: s.p.ParseSpecial,
		Dataset: text.FileName(), Jobs: opt.Jobs,
		Progress: func(done, total int) {
			opt.Events.Event(pipeline.Event{Kind: pipeline.EventProgress, Output: "importance matrix", Done: int64(done), Total: int64(total)})
		},
	})
	if errors.Is(err, importance.ErrShort) {
		return nil, fmt.Errorf("source %s: %w", s.p.Text, err)
	}
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := matrix.Write(ctx, &buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Package transformer runs decoders of the Llama kind out of GGUF and KMCU files
// and Hugging Face folders.
//
// A batch of tokens flows through the layers together:
//
//	x = embedding                       (tokens, hidden)
//	x += o(attention(rope(q(n)), rope(k(n)), v(n)))   n = norm(x)
//	x += down(act(gate(n)) * up(n))                   n = norm(x), or experts
//	logits = output(norm(x))
//
// Gemma normalizes q, k and what both blocks add as well; Qwen 3 normalizes q
// and k. Weights stay as they are stored: a few rows at a time are decoded and
// multiplied with the whole batch.
package transformer

import (
	"context"
	"errors"
	"fmt"

	"quern/formats/kmcu"
	"quern/model"
	"quern/model/convert"
	"quern/model/order"
	infer "quern/runtime"
	"quern/tensor"
	"quern/tokenizer"
)

// Model is a decoder that can be run.
type Model struct {
	p     *params
	w     *weights
	info  infer.Info
	tok   *tokenizer.Tokenizer
	noTok error
	// own says that the file is for an engine of its own, not for llama.cpp.
	own bool
	// Closers are closed with the model, in order.
	Closers []func() error
}

var _ infer.Model = (*Model)(nil)

// FromGGUF makes a model of one in GGUF form. Weights are read as they are used,
// in place where their blob can give its bytes.
func FromGGUF(ctx context.Context, g *model.Model) (*Model, error) { return fromGGUF(ctx, g, nil) }

// fromGGUF also goes by the config of the checkpoint that g was made of; nil for
// none.
func fromGGUF(ctx context.Context, g *model.Model, c *model.Config) (*Model, error) {
	if g.Form != model.GGUF {
		return nil, fmt.Errorf("%w: %s is in %s form", model.ErrForm, g.Name, g.Form)
	}
	p, err := fromMeta(ctx, g, c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.Name, err)
	}
	m, err := newModel(ctx, p, g.Tensors, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.Name, err)
	}
	from, experts, err := order.From(g.Meta)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", g.Name, infer.ErrModel, err)
	}
	for i := range m.w.layers {
		if from != nil {
			m.w.layers[i].renumbered(from[i*experts:][:experts])
		}
	}
	v, err := tokenizer.FromGGUF(g.Meta)
	if err == nil {
		m.tok, err = tokenizer.New(v)
	}
	if m.noTok = err; errors.Is(err, tokenizer.ErrNoTokenizer) {
		m.noTok = fmt.Errorf("%s: %w", g.Name, infer.ErrNoTokenizer)
	}
	return m, nil
}

// FromHF makes a model of a Hugging Face folder. It is run as transformers runs
// it: as what it converts to, in float32, and as its config says where GGUF has no
// place for that. A folder whose tokenizer is missing, or does not fit, runs by ids.
func FromHF(ctx context.Context, h *model.Model) (*Model, error) {
	opt := convert.Options{OutType: "f32", ForRuntime: true}
	g, tokErr := convert.ToGGUF(ctx, h, opt)
	if tokErr != nil {
		opt.WithoutTokenizer = true
		var err error
		if g, err = convert.ToGGUF(ctx, h, opt); err != nil {
			return nil, err
		}
	}
	m, err := fromGGUF(ctx, g, h.Config)
	if err == nil && tokErr != nil {
		m.noTok = fmt.Errorf("%s: %w: %w", h.Name, infer.ErrNoTokenizer, tokErr)
	}
	return m, err
}

// FromKMCU makes a model of a KMCU file, which holds no tokenizer.
func FromKMCU(ctx context.Context, f *kmcu.File) (*Model, error) {
	p, err := fromKMCU(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	tensors, stride, err := kmcuTensors(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	m, err := newModel(ctx, p, tensors, stride)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	m.own = true
	m.noTok = fmt.Errorf("%s: %w: a KMCU file has only ids", f.Name, infer.ErrNoTokenizer)
	return m, nil
}

func newModel(ctx context.Context, p *params, tensors []*tensor.Tensor, stride func(*tensor.Tensor, int) int) (*Model, error) {
	f := &finder{ctx: ctx, tensors: make(map[string]*tensor.Tensor, len(tensors)), stride: stride}
	m := &Model{p: p, info: infer.Info{Architecture: p.arch, Vocab: p.vocab, Context: p.context}}
	for _, t := range tensors {
		f.tensors[t.Name] = t
		n, _ := t.Shape.Values()
		m.info.Params += n
		m.info.Bytes += t.Bytes()
	}
	var err error
	m.w, err = f.weights(p)
	return m, err
}

// Info is what the file says of itself.
func (m *Model) Info() infer.Info { return m.info }

// Tokenizer is that of the file.
func (m *Model) Tokenizer() (infer.Tokenizer, error) {
	if m.noTok != nil {
		return nil, m.noTok
	}
	return m.tok, nil
}

// Close runs the closers.
func (m *Model) Close() error {
	var errs []error
	for _, c := range m.Closers {
		errs = append(errs, c())
	}
	m.Closers = nil
	return errors.Join(errs...)
}

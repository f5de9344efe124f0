package needle

import (
	"context"
	"errors"
	"fmt"

	"quern/formats/cact"
	"quern/model"
	checkpoint "quern/model/needle"
	infer "quern/runtime"
	"quern/tensor"
)

// Model is a Needle model that can be run.
type Model struct {
	name   string
	header cact.Header
	p      *shape
	w      *weights
	group  int // of CQ matrices, 0 when there are none
	info   infer.Info
	tok    *Tokenizer
	// Closers are closed with the model, in order.
	Closers []func() error
}

var _ infer.Model = (*Model)(nil)

// FromArchive makes a model of an archive. CQ matrices are used where they lie
// when the blob can give its bytes in place, else they are read into memory.
func FromArchive(ctx context.Context, f *cact.File) (*Model, error) {
	find := func(name string) (entry, bool) {
		e := f.Entry(name)
		if e == nil {
			return entry{}, false
		}
		out := entry{t: e.Tensor, norms: e.Norms}
		if e.Kind == cact.CQ {
			// Open has checked width, group and codebook.
			c, err := f.Codec(e)
			if err != nil {
				return entry{}, false
			}
			out.codec = c
		}
		return out, true
	}
	m, err := newModel(ctx, f.Name, f.Group, f.Header, f.Heads, find)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	for _, e := range f.Entries {
		if e.Kind != cact.Raw {
			n, _ := e.Shape.Values()
			m.info.Params += n
		}
		m.info.Bytes += e.Bytes
	}
	t, err := f.Tokenizer(ctx)
	if err != nil {
		return nil, err
	}
	if t != nil {
		if m.tok, err = NewTokenizer(t); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return m, nil
}

// FromCheckpoint makes a model of a checkpoint, whose weights are read into memory
// as float32. It has no tokenizer. Nothing is quantized: with rounded activations it
// computes what an archive with perfect weights would.
func FromCheckpoint(ctx context.Context, c *model.Model) (*Model, error) {
	k, err := checkpoint.ConfigOf(c)
	if err != nil {
		return nil, err
	}
	heads, err := checkpoint.HeadsOf(c)
	if err != nil {
		return nil, err
	}
	tensors, err := checkpoint.Reference(c)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*tensor.Tensor, len(tensors))
	for _, t := range tensors {
		byName[t.Name] = t
	}
	find := func(name string) (entry, bool) {
		t := byName[name]
		return entry{t: t}, t != nil
	}
	m, err := newModel(ctx, c.Name, 0, k.Header(), heads, find)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	for _, t := range c.Tensors {
		n, _ := t.Shape.Values()
		m.info.Params += n
		m.info.Bytes += t.Bytes()
	}
	return m, nil
}

func newModel(ctx context.Context, name string, group int, h cact.Header, heads []cact.Head, find func(string) (entry, bool)) (*Model, error) {
	p, err := newShape(&h)
	if err != nil {
		return nil, err
	}
	m := &Model{name: name, group: group, header: h, p: p}
	m.info = infer.Info{Architecture: fmt.Sprintf("needle%d", p.generation), Vocab: p.vocab, Context: p.context}
	if m.w, err = gather(ctx, p, &h, heads, find); err != nil {
		return nil, err
	}
	if e := m.w.hear; e != nil {
		e.encoder.name, e.encoder.group = name, group
	}
	return m, nil
}

// Info is what the file says of itself.
func (m *Model) Info() infer.Info { return m.info }

// Tokenizer is that of the archive.
func (m *Model) Tokenizer() (infer.Tokenizer, error) {
	if m.tok == nil {
		return nil, fmt.Errorf("%s: %w", m.name, infer.ErrNoTokenizer)
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

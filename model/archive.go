package model

import (
	"context"
	"fmt"
	"path"

	"quern/formats/cact"
	"quern/tensor"
)

// Archive is what a .cact file has beside its tensors. It is immutable, like the
// Model that it belongs to.
type Archive struct {
	Header    cact.Header
	Codebooks [cact.CodebookLen]float32
	Heads     []cact.Head
	// Group is the number of weights that share a norm.
	Group int
	// Trained is the kv_window that the model was trained for, 0 for no limit.
	Trained uint32
	// Languages of a speech model made from a checkpoint have a tag each at the end
	// of the tokenizer; Pieces, which an adapter has added, stand before them.
	Languages, Pieces []string
}

// FromCact makes a model of an opened archive: of every CQ matrix the packed
// indices under its name and then their norms, else one tensor each.
func FromCact(f *cact.File) *Model {
	a := &Archive{Header: f.Header, Codebooks: f.Codebooks, Heads: f.Heads, Group: f.Group}
	if w := f.Header.KVWindow; w != f.Header.Window(0) {
		a.Trained = w
	}
	m := &Model{Form: Cact, Name: path.Base(f.Name), Archive: a}
	for _, e := range f.Entries {
		m.Tensors = append(m.Tensors, e.Tensor)
		if e.Norms != nil {
			m.Tensors = append(m.Tensors, e.Norms)
		}
	}
	return m
}

// LoadCact opens an archive.
func LoadCact(ctx context.Context, name string, blob tensor.Blob, opt cact.Options) (*Model, error) {
	f, err := cact.Open(ctx, name, blob, opt)
	if err != nil {
		return nil, err
	}
	return FromCact(f), nil
}

// WithArchive returns a copy in Cact form with another archive and tensors.
func (m *Model) WithArchive(a *Archive, ts []*tensor.Tensor, plan []PlanInfo) (*Model, error) {
	if m.Form != Needle && m.Form != Cact {
		return nil, fmt.Errorf("%w: a %s model is no archive", ErrForm, m.Form)
	}
	c := *m
	c.Form, c.Archive, c.Config = Cact, a, nil
	c.Tensors, c.Plan = ts, plan
	return &c, nil
}

// Package model describes a language model as a config, side files or
// metadata, and an ordered list of lazy tensors. A Model is immutable: stages
// return changed copies whose tensors read from the ones below.
package model

import (
	"context"
	"fmt"

	"quern/formats/gguf"
	"quern/tensor"
)

// Form says which naming, layout and metadata a Model has.
type Form int

// HF is the Hugging Face checkpoint form: config.json, tokenizer files and
// PyTorch tensor names. GGUF is llama.cpp's: key-value metadata and its names,
// Q and K rows permuted where the architecture wants it. KMCU is the
// microcontroller container's. Needle is a training checkpoint of a Needle model,
// one file with tensors stacked over layers; Cact is its .cact archive, whose CQ
// matrices are two tensors each, packed indices and their norms.
const (
	HF Form = iota + 1
	GGUF
	KMCU
	Needle
	Cact
)

// String names the form in messages.
func (f Form) String() string {
	switch f {
	case HF:
		return "Hugging Face"
	case GGUF:
		return "GGUF"
	case KMCU:
		return "KMCU"
	case Needle:
		return "Needle checkpoint"
	case Cact:
		return ".cact"
	}
	return fmt.Sprintf("Form(%d)", int(f))
}

// FileInfo names one file of a FileSet. SHA256 is lower-case hex, empty when
// the set does not know it without reading.
type FileInfo struct {
	Path   string
	Size   int64
	SHA256 string
}

// FileSet is a folder of model files, local or remote. Paths use slashes and
// are relative. Listing order is by path, byte-wise.
type FileSet interface {
	// Name is the folder's or repository's last name, which converters put
	// into general.name.
	Name() string
	List(ctx context.Context) ([]FileInfo, error)
	// ReadFile returns a whole small file and fails, before reading, when it
	// is larger than limit. A missing file is fs.ErrNotExist.
	ReadFile(ctx context.Context, path string, limit int64) ([]byte, error)
	// Open gives random access to a large file.
	Open(ctx context.Context, path string) (tensor.Blob, error)
}

// Note is something the user should know about a model: what was assumed,
// ignored or lost. Subject names a tensor, a key or a file, and may be empty.
type Note struct {
	Subject string
	Text    string
}

// String writes the note as one sentence.
func (n Note) String() string {
	if n.Subject == "" {
		return n.Text
	}
	return n.Subject + ": " + n.Text
}

// PlanInfo says where a tensor of a converted model comes from, for plans: the
// type of its source and why it has its own.
type PlanInfo struct {
	From   tensor.Type
	Reason string
}

// Model is a language model without its weights at hand: they are lazy. A Model
// is immutable; what changes one returns a copy, and slices in it are never
// written to after it has been handed out.
type Model struct {
	Form Form
	// Name is the folder's or repository's last name in HF form, the file's in
	// the others.
	Name string
	// Config is config.json in HF form, the config in the file's metadata in
	// Needle form, nil in the others.
	Config *Config
	// Files are the side files, such as those of the tokenizer, in HF form
	// only.
	Files FileSet
	// Meta is the metadata, in GGUF form only.
	Meta *gguf.Metadata
	// Pruned is what the model has lost of its vocabulary, in HF form only; nil for
	// nothing.
	Pruned *Pruned
	// Archive is the header and what else follows from it, in Cact form only.
	Archive *Archive
	// Tensors are in file order.
	Tensors []*tensor.Tensor
	// Stored is what the files hold where Tensors are made of it: a checkpoint
	// in 8-bit floats, with its scales. Else it is nil.
	Stored []*tensor.Tensor
	// Plan has one entry a tensor, or is empty.
	Plan []PlanInfo
	// Notes gather from the source on.
	Notes []Note
	// Ignored lists weight files of the source that are no part of the model
	// and were not read, in HF form only.
	Ignored []string
}

// Info gives the plan entry of the i-th tensor; without one, the tensor's own
// type and no reason.
func (m *Model) Info(i int) PlanInfo {
	if i < len(m.Plan) {
		return m.Plan[i]
	}
	return PlanInfo{From: m.Tensors[i].Type}
}

// Tensor finds a tensor by name, or nil.
func (m *Model) Tensor(name string) *tensor.Tensor {
	for _, t := range m.Tensors {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// ID says what a tensor name stands for in this model.
func (m *Model) ID(name string) (ID, bool) {
	switch m.Form {
	case GGUF:
		return GGUFID(name)
	case HF:
		if f, ok := FamilyOf(m.Config.Architecture()); ok {
			return HFID(f, name)
		}
	}
	return ID{}, false
}

// ByRole finds the tensor of a role, layer and suffix; layer is -1 for those
// outside layers. It gives nil when there is none.
func (m *Model) ByRole(r Role, layer int, suffix string) *tensor.Tensor {
	for _, t := range m.Tensors {
		if id, ok := m.ID(t.Name); ok && id.Role == r && id.Layer == layer && id.Suffix == suffix {
			return t
		}
	}
	return nil
}

// WithTensors returns a copy with other tensors. Plan entries follow their
// tensors by name; new tensors get one that says only their type.
func (m *Model) WithTensors(ts []*tensor.Tensor) *Model {
	c := *m
	c.Tensors = ts
	if len(m.Plan) > 0 {
		at := make(map[string]int, len(m.Tensors))
		for i, t := range m.Tensors {
			at[t.Name] = i
		}
		c.Plan = make([]PlanInfo, len(ts))
		for i, t := range ts {
			if old, ok := at[t.Name]; ok {
				c.Plan[i] = m.Info(old)
			} else {
				c.Plan[i] = PlanInfo{From: t.Type}
			}
		}
	}
	return &c
}

// WithPlan returns a copy with other tensors and their plan entries.
func (m *Model) WithPlan(ts []*tensor.Tensor, plan []PlanInfo) *Model {
	c := *m
	c.Tensors, c.Plan = ts, plan
	return &c
}

// WithConfig returns a copy with changed config values.
func (m *Model) WithConfig(settings ...Setting) (*Model, error) {
	if m.Form != HF && m.Form != Needle {
		return nil, fmt.Errorf("%w: a %s model has no config", ErrForm, m.Form)
	}
	cfg, err := m.Config.With(settings...)
	if err != nil {
		return nil, err
	}
	c := *m
	c.Config = cfg
	return &c, nil
}

// WithMeta returns a copy with other metadata.
func (m *Model) WithMeta(meta *gguf.Metadata) *Model {
	c := *m
	c.Meta = meta
	return &c
}

// WithNotes returns a copy with more notes.
func (m *Model) WithNotes(notes ...Note) *Model {
	c := *m
	c.Notes = append(append([]Note(nil), m.Notes...), notes...)
	return &c
}

package needle

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"quern/formats/safetensors"
	"quern/model"
	"quern/tensor"
)

// Names of checkpoint tensors that tell what a file is.
const (
	nameEmbedding = "embedding/embedding"
	nameThird     = "stack/layers/block/hadamard_mlp/w1a" // of generation 3 only
	blockPrefix   = "stack/layers/block/"
)

// FromSafetensors makes a model of an opened safetensors file, or nil when it is no
// Needle checkpoint: one has a config and a format version in its metadata and its
// embedding under Needle's name.
func FromSafetensors(f *safetensors.File) (*model.Model, error) {
	meta := map[string]string{}
	for _, kv := range f.Metadata {
		meta[kv.Key] = kv.Value
	}
	config, ok := meta["config"]
	isOurs := func(t *tensor.Tensor) bool { return t.Name == nameEmbedding || strings.HasPrefix(t.Name, "stack/") }
	if !ok || !slices.ContainsFunc(f.Tensors, isOurs) {
		return nil, nil
	}
	return FromParts(f.Name, []byte(config), meta["format_version"], f.Tensors)
}

// FromParts makes a model of what a checkpoint file holds: the config as JSON, the
// format version as text, and tensors by their path. Tensors whose names begin with
// mtp_, which only training uses, are left out.
func FromParts(name string, config []byte, version string, tensors []*tensor.Tensor) (*model.Model, error) {
	if version != "2" {
		return nil, fmt.Errorf("%s: %w: format_version is %q; checkpoints of version 2 are read", name, model.ErrConfig, version)
	}
	cfg, err := model.ParseConfig(name+": config", config)
	if err != nil {
		return nil, err
	}
	m := &model.Model{Form: model.Needle, Name: path.Base(name), Config: cfg}
	dropped := 0
	for _, t := range tensors {
		if strings.HasPrefix(t.Name, "mtp_") {
			dropped++
			continue
		}
		m.Tensors = append(m.Tensors, t)
	}
	slices.SortFunc(m.Tensors, func(a, b *tensor.Tensor) int { return strings.Compare(a.Name, b.Name) })
	if dropped > 0 {
		m = m.WithNotes(model.Note{Subject: name, Text: fmt.Sprintf("%d tensors of the heads for training (mtp_) are left out", dropped)})
	}
	if _, err := ConfigOf(m); err != nil {
		return nil, err
	}
	return m, nil
}

// ConfigOf reads the geometry of a checkpoint. Its generation is told by the
// tensors; a config that says otherwise is an error.
func ConfigOf(m *model.Model) (*Config, error) {
	if m.Form != model.Needle {
		return nil, fmt.Errorf("%w: the model is in %s form, a Needle checkpoint is needed", model.ErrForm, m.Form)
	}
	if m.Tensor(nameStem) != nil {
		return parseSpeech(m.Config)
	}
	generation := 2
	if m.Tensor(nameThird) != nil {
		generation = 3
	}
	_, _, attn := m.Config.Find("attn_dim")
	_, _, qk := m.Config.Find("qk_head_dim")
	if generation == 3 && attn && !qk {
		return nil, fmt.Errorf("%s: %w: it is that of generation 2 (attn_dim, no qk_head_dim), the tensors are of generation 3", m.Config.File(), model.ErrConfig)
	}
	return ParseConfig(m.Config, generation)
}

// LoadSafetensors opens a checkpoint; it gives nil for other safetensors files.
func LoadSafetensors(ctx context.Context, name string, blob tensor.Blob, opt safetensors.Options) (*model.Model, error) {
	f, err := safetensors.Open(ctx, name, blob, opt)
	if err != nil {
		return nil, err
	}
	return FromSafetensors(f)
}

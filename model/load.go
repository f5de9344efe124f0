package model

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"quern/formats/gguf"
	"quern/formats/safetensors"
	"quern/tensor"
)

// Limits on side files; the largest published ones are far below.
const maxConfig = 16 << 20

// ConfigName is the file that describes a Hugging Face model.
const ConfigName = "config.json"

// HFOptions change how a Hugging Face folder is loaded. The zero value is right
// for most.
type HFOptions struct {
	// Source is the recipe's name of the source, put into Tensor.Origin.
	Source string
	// FileKey gives the key of a weight file's content; nil derives keys from
	// the digests that the file set knows.
	FileKey func(FileInfo) tensor.Key
	// FromHeaders leaves a stale index aside.
	FromHeaders bool
	// MaxHeader is the longest safetensors header accepted, 0 for the default.
	MaxHeader int64
}

// LoadHF opens a Hugging Face folder: config.json and the headers of its
// safetensors files. No weights are read. Weights in 8-bit floats come as float32
// with their scales multiplied in.
func LoadHF(ctx context.Context, files FileSet, opt HFOptions) (*Model, error) {
	text, err := files.ReadFile(ctx, ConfigName, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: a Hugging Face model needs this file", ConfigName, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ConfigName, err)
	}
	cfg, err := ParseConfig(ConfigName, text)
	if err != nil {
		return nil, err
	}
	list, err := files.List(ctx)
	if err != nil {
		return nil, err
	}
	infos := make([]safetensors.FileInfo, len(list))
	for i, fi := range list {
		infos[i] = safetensors.FileInfo(fi)
	}
	st := safetensors.ModelOptions{MaxHeader: opt.MaxHeader, Source: opt.Source, FromHeaders: opt.FromHeaders}
	if opt.FileKey != nil {
		st.FileKey = func(fi safetensors.FileInfo) tensor.Key { return opt.FileKey(FileInfo(fi)) }
	}
	w, err := safetensors.OpenModel(ctx, files, infos, st)
	if err != nil {
		return nil, err
	}
	m := &Model{Form: HF, Name: files.Name(), Config: cfg, Files: files, Tensors: w.Tensors, Ignored: w.Ignored}
	for _, n := range cfg.Notes() {
		m.Notes = append(m.Notes, Note{ConfigName, n})
	}
	for _, n := range w.Warnings {
		m.Notes = append(m.Notes, Note{"", n})
	}
	if err := m.rescale(); err != nil {
		return nil, err
	}
	return m, nil
}

// FromGGUF makes a model of a GGUF file's metadata and tensors. name is the
// file's, without folder.
func FromGGUF(name string, meta *gguf.Metadata, tensors []*tensor.Tensor) *Model {
	return &Model{Form: GGUF, Name: name, Meta: meta, Tensors: tensors}
}

// LoadGGUF opens a GGUF file, all shards of a split one, by the name of any.
// The set must be closed when the model is done.
func LoadGGUF(ctx context.Context, name string, open gguf.Opener, opt gguf.Options) (*Model, *gguf.Set, error) {
	set, err := gguf.OpenSet(ctx, name, open, opt)
	if err != nil {
		return nil, nil, err
	}
	ts, err := set.All()
	if err != nil {
		return nil, nil, errors.Join(err, set.Close())
	}
	return FromGGUF(path.Base(name), set.Meta, ts), set, nil
}

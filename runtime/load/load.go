// Package load opens any model that can be run, by what its first bytes say.
package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"quern/formats/cact"
	"quern/formats/gguf"
	"quern/formats/kmcu"
	"quern/formats/safetensors"
	"quern/model"
	checkpoint "quern/model/needle"
	infer "quern/runtime"
	"quern/runtime/mapped"
	"quern/runtime/needle"
	"quern/runtime/transformer"
	"quern/tensor"
	"quern/tokenizer"
)

// Open opens a GGUF file (all shards of a split one), a KMCU file, a .cact archive,
// a Needle checkpoint or a Hugging Face folder. Weights are mapped, not read, but for
// those of checkpoints. Close the model when done.
func Open(ctx context.Context, path string) (infer.Model, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return openFolder(ctx, path)
	}
	f, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	head := make([]byte, min(f.Size(), 9))
	if err := f.ReadAt(ctx, head, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if bytes.HasPrefix(head, []byte("KMCU")) {
		return openKMCU(ctx, path, f)
	}
	if cact.IsCact(head) {
		return openCact(ctx, path, f)
	}
	if len(head) == 9 && head[8] == '{' {
		return openCheckpoint(ctx, path, f)
	}
	// What is none of the formats gets the GGUF reader's error, which tells
	// other kinds of files apart.
	if err := f.Close(); err != nil {
		return nil, err
	}
	return openGGUF(ctx, path)
}

func openKMCU(ctx context.Context, path string, f *mapped.File) (infer.Model, error) {
	k, err := kmcu.Open(ctx, filepath.Base(path), f, kmcu.Options{})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m, err := transformer.FromKMCU(ctx, k)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m.Closers = append(m.Closers, f.Close)
	return m, nil
}

func openCact(ctx context.Context, path string, f *mapped.File) (infer.Model, error) {
	a, err := cact.Open(ctx, filepath.Base(path), f, cact.Options{})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m, err := needle.FromArchive(ctx, a)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m.Closers = append(m.Closers, f.Close)
	return m, nil
}

// openCheckpoint opens a Needle checkpoint, the only safetensors file that is a whole
// model.
func openCheckpoint(ctx context.Context, path string, f *mapped.File) (infer.Model, error) {
	c, err := checkpoint.LoadSafetensors(ctx, filepath.Base(path), f, safetensors.Options{})
	if err == nil && c == nil {
		err = fmt.Errorf("%s: %w: weights without their config; open the folder they are in", path, infer.ErrModel)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m, err := needle.FromCheckpoint(ctx, c)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m.Closers = append(m.Closers, f.Close)
	return m, nil
}

func openGGUF(ctx context.Context, path string) (infer.Model, error) {
	dir := filepath.Dir(path)
	open := func(_ context.Context, name string) (tensor.Blob, error) {
		return mapped.Open(filepath.Join(dir, name))
	}
	g, set, err := model.LoadGGUF(ctx, filepath.Base(path), open, gguf.Options{})
	if err != nil {
		return nil, err
	}
	m, err := transformer.FromGGUF(ctx, g)
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	m.Closers = append(m.Closers, set.Close)
	return m, nil
}

func openFolder(ctx context.Context, path string) (infer.Model, error) {
	d := &folder{root: path}
	h, err := model.LoadHF(ctx, d, model.HFOptions{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), d.close())
	}
	m, err := transformer.FromHF(ctx, h)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), d.close())
	}
	m.Closers = append(m.Closers, d.close)
	return m, nil
}

// Tokenizer opens the tokenizer alone, of a file that need not hold weights.
func Tokenizer(ctx context.Context, path string) (_ infer.Tokenizer, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		f, err := mapped.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if g, gerr := gguf.Open(ctx, filepath.Base(path), f, gguf.Options{Partial: true}); gerr == nil {
			v, err := tokenizer.FromGGUF(g.Meta)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			return tokenizer.New(v)
		}
	}
	m, err := Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return m.Tokenizer()
}

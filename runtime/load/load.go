// Package load opens any model that can be run, by what its first bytes say.
package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"quern/formats/cact"
	"quern/formats/gguf"
	"quern/formats/kmcu"
	"quern/formats/pickle"
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
// a Needle checkpoint, or a folder with a Hugging Face model or one of Needle's.
// Weights are mapped, not read, but for
// those of checkpoints. Close the model when done.
func Open(ctx context.Context, path string) (infer.Model, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return openFolder(ctx, path)
	}
	dir := filepath.Dir(path)
	return FromBlob(ctx, filepath.Base(path), func(_ context.Context, name string) (tensor.Blob, error) {
		return mapped.Open(filepath.Join(dir, name))
	})
}

// FromBlob opens a file as Open does that open finds by name, as it finds the
// other shards of a split GGUF file. Blobs that can be closed are closed with the
// model.
func FromBlob(ctx context.Context, name string, open gguf.Opener) (infer.Model, error) {
	f, err := open(ctx, name)
	if err != nil {
		return nil, err
	}
	head := make([]byte, min(f.Size(), 9))
	if err := f.ReadAt(ctx, head, 0); err != nil {
		return nil, errors.Join(err, closeBlob(f))
	}
	if bytes.HasPrefix(head, []byte("KMCU")) {
		return openKMCU(ctx, name, f)
	}
	if cact.IsCact(head) {
		return openCact(ctx, name, f)
	}
	if len(head) == 9 && head[8] == '{' || pickle.IsPickle(head) {
		return openCheckpoint(ctx, name, f, pickle.IsPickle(head))
	}
	// What is none of the formats gets the GGUF reader's error, which tells
	// other kinds of files apart.
	if err := closeBlob(f); err != nil {
		return nil, err
	}
	return openGGUF(ctx, name, open)
}

func closeBlob(b tensor.Blob) error {
	if c, ok := b.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func openKMCU(ctx context.Context, name string, f tensor.Blob) (infer.Model, error) {
	k, err := kmcu.Open(ctx, name, f, kmcu.Options{})
	if err != nil {
		return nil, errors.Join(err, closeBlob(f))
	}
	m, err := transformer.FromKMCU(ctx, k)
	if err != nil {
		return nil, errors.Join(err, closeBlob(f))
	}
	m.Closers = append(m.Closers, func() error { return closeBlob(f) })
	return m, nil
}

func openCact(ctx context.Context, name string, f tensor.Blob) (infer.Model, error) {
	a, err := cact.Open(ctx, name, f, cact.Options{})
	if err != nil {
		return nil, errors.Join(err, closeBlob(f))
	}
	m, err := needle.FromArchive(ctx, a)
	if err != nil {
		return nil, errors.Join(err, closeBlob(f))
	}
	m.Closers = append(m.Closers, func() error { return closeBlob(f) })
	return m, nil
}

// openCheckpoint opens a Needle checkpoint, the only safetensors or pickle file that is
// a whole model.
func openCheckpoint(ctx context.Context, name string, f tensor.Blob, pickled bool) (infer.Model, error) {
	var c *model.Model
	var err error
	if pickled {
		c, err = checkpoint.LoadPickle(ctx, name, f, pickle.Options{})
	} else {
		c, err = checkpoint.LoadSafetensors(ctx, name, f, safetensors.Options{})
	}
	if err == nil && c == nil {
		err = fmt.Errorf("%s: %w: weights without their config; open the folder they are in", name, infer.ErrModel)
	}
	if err != nil {
		return nil, errors.Join(err, closeBlob(f))
	}
	m, err := needle.FromCheckpoint(ctx, c)
	if err != nil {
		return nil, errors.Join(err, closeBlob(f))
	}
	m.Closers = append(m.Closers, func() error { return closeBlob(f) })
	return m, nil
}

func openGGUF(ctx context.Context, name string, open gguf.Opener) (infer.Model, error) {
	g, set, err := model.LoadGGUF(ctx, name, open, gguf.Options{})
	if err != nil {
		return nil, err
	}
	m, err := transformer.FromGGUF(ctx, g)
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	m.Closers = append(m.Closers, set.Closer())
	return m, nil
}

func openFolder(ctx context.Context, path string) (infer.Model, error) {
	d := &folder{root: path}
	h, err := model.LoadHF(ctx, d, model.HFOptions{})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, safetensors.ErrNoWeights) {
		_, file, nerr := checkpoint.LoadFolder(ctx, d, checkpoint.FolderOptions{})
		if nerr != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, nerr), d.close())
		}
		if file != "" {
			if err := d.close(); err != nil {
				return nil, err
			}
			return Open(ctx, filepath.Join(path, filepath.FromSlash(file)))
		}
	}
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
	if st.IsDir() {
		m, err := openFolder(ctx, path)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		return m.Tokenizer()
	}
	dir := filepath.Dir(path)
	return TokenizerFromBlob(ctx, filepath.Base(path), func(_ context.Context, name string) (tensor.Blob, error) {
		return mapped.Open(filepath.Join(dir, name))
	})
}

// TokenizerFromBlob opens the tokenizer alone of a file that open finds by name.
// Of a GGUF file only the header is read, and the runtime need not know the model.
func TokenizerFromBlob(ctx context.Context, name string, open gguf.Opener) (_ infer.Tokenizer, err error) {
	f, err := open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeBlob(f)) }()
	if g, gerr := gguf.Open(ctx, name, f, gguf.Options{Partial: true}); gerr == nil {
		v, err := tokenizer.FromGGUF(g.Meta)
		if errors.Is(err, tokenizer.ErrNoTokenizer) {
			return nil, fmt.Errorf("%s: %w", name, infer.ErrNoTokenizer)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return tokenizer.New(v)
	}
	m, err := FromBlob(ctx, name, open)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return m.Tokenizer()
}

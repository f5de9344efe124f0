package load

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"quern/formats/gguf"
	"quern/formats/repacked"
	"quern/model"
	"quern/model/punch"
	infer "quern/runtime"
	"quern/runtime/mapped"
	"quern/runtime/transformer"
)

// Options change how a model is opened. The zero value is right for most.
type Options struct {
	// Repack are paths of repack caches of the GGUF file. The matrices that they
	// have are computed on as they lie there; results are the same to the last
	// bit. File and caches are read once to make sure that they belong together.
	Repack []string
}

// OpenWith is Open with options.
func OpenWith(ctx context.Context, path string, opt Options) (infer.Model, error) {
	if len(opt.Repack) == 0 {
		return Open(ctx, path)
	}
	if _, _, n, ok := gguf.ParseSplitName(filepath.Base(path)); ok && n > 1 {
		return nil, fmt.Errorf("%s: %w: repack caches go with a GGUF file in one piece, not with shards", path, punch.ErrCache)
	}
	var closers []func() error
	m, err := openRepacked(ctx, path, opt.Repack, &closers)
	if err != nil {
		for _, c := range closers {
			err = errors.Join(err, c())
		}
		return nil, err
	}
	m.Closers = append(m.Closers, closers...)
	return m, nil
}

func openRepacked(ctx context.Context, path string, caches []string, closers *[]func() error) (*transformer.Model, error) {
	open := func(path string) (*mapped.File, error) {
		b, err := mapped.Open(path)
		if err == nil {
			*closers = append(*closers, b.Close)
		}
		return b, err
	}
	b, err := open(path)
	if err != nil {
		return nil, err
	}
	f, err := punch.Open(ctx, filepath.Base(path), b)
	if err != nil {
		return nil, err
	}
	for _, p := range caches {
		b, err := open(p)
		if err != nil {
			return nil, err
		}
		c, err := repacked.Open(ctx, filepath.Base(p), b, repacked.Options{})
		if err != nil {
			return nil, err
		}
		if err := f.Add(c); err != nil {
			return nil, err
		}
	}
	if err := f.Verify(ctx); err != nil {
		return nil, err
	}
	ts, err := f.Model()
	if err != nil {
		return nil, err
	}
	return transformer.FromGGUF(ctx, model.FromGGUF(filepath.Base(path), f.GGUF.Meta, ts))
}

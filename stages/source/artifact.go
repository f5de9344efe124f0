package source

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"quern/artifacts"
	"quern/model"
	"quern/pipeline"
	"quern/tensor"
)

// FromStore opens artifact: sources out of a store. A reference is the name of a
// build, or NAME/FILE for one of several outputs.
func FromStore(s artifacts.ReadStore) Artifacts { return stored{s} }

type stored struct{ s artifacts.ReadStore }

func (a stored) Artifact(ctx context.Context, name, ref string, h Headers) (*pipeline.Source, error) {
	d, file, err := a.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	b, err := artifacts.ReadBuild(ctx, a.s, d)
	if err != nil {
		return nil, err
	}
	out, err := pickOutput(b, file)
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %w", ref, err)
	}
	blob, err := a.s.Open(ctx, out.Digest)
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %s: %w", ref, out.File, err)
	}
	src := &pipeline.Source{
		Commit: d.Digest.Hex(),
		Files:  []pipeline.SourceFile{{Path: out.File, Size: out.Size, SHA256: out.Digest.Hex()}},
		Close:  blob.Close,
	}
	open := func(context.Context, string) (tensor.Blob, error) {
		return marked{tensor.ReaderAtBlob(out.File, blob, blob.Size())}, nil
	}
	m, _, err := model.LoadGGUF(ctx, out.File, open, h.gguf(name, tensor.Derive("file", out.Digest.Hex())))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("artifact %s: %w", ref, err), blob.Close())
	}
	src.Model = m
	return src, nil
}

// resolve finds the build of a reference. A name may hold slashes itself, so
// the whole is tried first.
func (a stored) resolve(ctx context.Context, ref string) (artifacts.Descriptor, string, error) {
	d, err := a.s.Resolve(ctx, ref)
	if err == nil {
		return d, "", nil
	}
	if i := strings.LastIndexByte(ref, '/'); i > 0 && errors.Is(err, artifacts.ErrNotFound) {
		if d, err := a.s.Resolve(ctx, ref[:i]); err == nil {
			return d, ref[i+1:], nil
		}
	}
	if errors.Is(err, artifacts.ErrNotFound) {
		return d, "", fmt.Errorf("artifact %s: %w; quern store ls lists what there is, and building a recipe of that name makes it", ref, err)
	}
	return d, "", err
}

// pickOutput chooses the output that is meant: the one named, else the only
// GGUF file.
func pickOutput(b *artifacts.Build, file string) (*artifacts.BuildOutput, error) {
	var found *artifacts.BuildOutput
	for i := range b.Outputs {
		o := &b.Outputs[i]
		if file != "" && o.File == file {
			return o, nil
		}
		if file == "" && o.Format == "gguf" {
			if found != nil {
				return nil, fmt.Errorf("%w: it has several GGUF files; name one as NAME/FILE", ErrKind)
			}
			found = o
		}
	}
	if found == nil {
		var have []string
		for _, o := range b.Outputs {
			have = append(have, o.File)
		}
		return nil, fmt.Errorf("%w: no GGUF file %q in it; it has %s", ErrKind, file, strings.Join(have, ", "))
	}
	return found, nil
}

package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"quern/artifacts"
	"quern/artifacts/pack"
	"quern/model"
	"quern/pipeline"
	"quern/tensor"
)

// FromStore opens artifact: sources out of a store. A reference is the name of a
// build or of an artifact that was pulled, or NAME/FILE for one of several files.
func FromStore(s artifacts.ReadStore) Artifacts {
	return &stored{s: s, builds: map[string]found{}, proved: map[artifacts.Digest]bool{}}
}

// stored remembers what names stood for, so that a build that opens its sources
// twice means the same, and which blobs it has hashed.
type stored struct {
	s artifacts.ReadStore

	mu     sync.Mutex
	builds map[string]found
	proved map[artifacts.Digest]bool
}

// found is what a reference led to: a manifest and one file of it.
type found struct {
	manifest artifacts.Digest
	file     string
	artifacts.Info
}

func (a *stored) Artifact(ctx context.Context, name, ref string, h Headers) (*pipeline.Source, error) {
	f, err := a.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	blob, err := a.s.Open(ctx, f.Digest)
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %s: %w", ref, f.file, err)
	}
	content := tensor.ReaderAtBlob(f.file, blob, blob.Size())
	src := &pipeline.Source{
		Commit: f.manifest.Hex(),
		Files:  []pipeline.SourceFile{{Path: f.file, Size: f.Size}},
		Close:  blob.Close,
	}
	if a.isProved(f.Digest) {
		src.Files[0].SHA256 = f.Digest.Hex()
	}
	src.Digest = func(ctx context.Context) error {
		if err := a.prove(ctx, f.Digest, content); err != nil {
			return fmt.Errorf("artifact %s: %s: %w", ref, f.file, err)
		}
		src.Files[0].SHA256 = f.Digest.Hex()
		return nil
	}
	key := tensor.Derive("file", f.Digest.Hex())
	if src.Model, err = loadArtifact(ctx, f.file, marked{content}, name, key, h); err != nil {
		return nil, errors.Join(fmt.Errorf("artifact %s: %w", ref, err), blob.Close())
	}
	if src.Model == nil {
		src.Content = marked{content} // a plain file, named as such
	}
	return src, nil
}

// loadArtifact opens a file of the store by its first bytes. It gives nil for one
// that is no model.
func loadArtifact(ctx context.Context, file string, content tensor.Blob, source string, key tensor.Key, h Headers) (*model.Model, error) {
	head := make([]byte, min(content.Size(), headBytes))
	if err := content.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(head, []byte("GGUF")) {
		return loadSingle(ctx, head, file, content, source, key, h)
	}
	open := func(context.Context, string) (tensor.Blob, error) { return content, nil }
	m, _, err := model.LoadGGUF(ctx, file, open, h.gguf(source, key))
	return m, err
}

// ErrDamaged marks an artifact whose bytes are not those that were kept.
var ErrDamaged = errors.New("the store's copy is damaged")

// prove hashes a blob: the store says what it is, the disk may have changed it.
func (a *stored) prove(ctx context.Context, want artifacts.Digest, content tensor.Blob) error {
	if a.isProved(want) {
		return nil
	}
	got, err := hashBlob(ctx, content)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%w: SHA-256 is %s, not %s; quern store verify finds what else is, and building the artifact again makes it whole", ErrDamaged, got.Hex(), want.Hex())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proved[want] = true
	return nil
}

func (a *stored) isProved(d artifacts.Digest) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proved[d]
}

// find gives the file that a reference means.
func (a *stored) find(ctx context.Context, ref string) (found, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f, ok := a.builds[ref]; ok {
		return f, nil
	}
	d, file, err := a.resolve(ctx, ref)
	if err != nil {
		return found{}, err
	}
	f := found{manifest: d.Digest}
	b, err := artifacts.ReadBuild(ctx, a.s, d)
	switch {
	case err == nil:
		out, err := pickOutput(b, file)
		if err != nil {
			return found{}, fmt.Errorf("artifact %s: %w", ref, err)
		}
		f.file, f.Info = out.File, artifacts.Info{Digest: out.Digest, Size: out.Size}
	case errors.Is(err, artifacts.ErrNoBuild) && artifacts.IsManifest(d.MediaType):
		l, err := a.pickLayer(ctx, d, file)
		if err != nil {
			return found{}, fmt.Errorf("artifact %s: %w", ref, err)
		}
		f.file, f.Info = l.Path, artifacts.Info{Digest: l.Digest, Size: l.Size}
	default:
		return found{}, err
	}
	a.builds[ref] = f
	return f, nil
}

// pickLayer chooses the file that is meant of what another tool has packed.
func (a *stored) pickLayer(ctx context.Context, d artifacts.Descriptor, file string) (*pack.File, error) {
	raw, err := artifacts.ReadAll(ctx, a.s, d, artifacts.MaxManifest)
	if err != nil {
		return nil, err
	}
	m, err := pack.Read(raw)
	if err != nil {
		return nil, err
	}
	l, err := m.Model(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKind, err)
	}
	if pack.IsShard(l.Path) {
		return nil, fmt.Errorf("%w: %s is a shard; put the artifact's files into a folder (quern store export, quern pull --out) and take that", ErrKind, l.Path)
	}
	return l, nil
}

// resolve finds the build of a reference. Names and files may both hold slashes,
// so the longest name is tried first.
func (a *stored) resolve(ctx context.Context, ref string) (artifacts.Descriptor, string, error) {
	d, err := a.s.Resolve(ctx, ref)
	if err == nil {
		return d, "", nil
	}
	for i := len(ref) - 1; i > 0 && notThere(err); i-- {
		if ref[i] != '/' {
			continue
		}
		if d, err = a.s.Resolve(ctx, ref[:i]); err == nil {
			return d, ref[i+1:], nil
		}
	}
	if errors.Is(err, artifacts.ErrNotFound) {
		return d, "", fmt.Errorf("artifact %s: %w; quern store ls lists what there is; building a recipe of that name makes it, and quern pull fetches what is in a registry", ref, err)
	}
	return d, "", err
}

// notThere reports whether a store has nothing under a name, or can have nothing: a
// name and a file together need not be a name.
func notThere(err error) bool {
	return errors.Is(err, artifacts.ErrNotFound) || errors.Is(err, artifacts.ErrName)
}

// modelFormats are those of files that a build can start from.
var modelFormats = []string{"gguf", "cact", "safetensors", "pickle"}

// pickOutput chooses the output that is meant: the one named, else the only
// model file.
func pickOutput(b *artifacts.Build, file string) (*artifacts.BuildOutput, error) {
	var found *artifacts.BuildOutput
	for i := range b.Outputs {
		o := &b.Outputs[i]
		if file != "" && o.File == file {
			return o, nil
		}
		if file == "" && slices.Contains(modelFormats, o.Format) {
			if found != nil {
				return nil, fmt.Errorf("%w: it has several model files; name one as NAME/FILE", ErrKind)
			}
			found = o
		}
	}
	if found == nil {
		var have []string
		for _, o := range b.Outputs {
			have = append(have, o.File)
		}
		return nil, fmt.Errorf("%w: no model file %q in it; it has %s", ErrKind, file, strings.Join(have, ", "))
	}
	return found, nil
}

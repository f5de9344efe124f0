package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"quern/artifacts"
	"quern/internal/digest"
	"quern/tensor"
)

// Keep makes a Store of an artifact store. tool names the program in
// provenance. A finished build gets the recipe's name.
func Keep(s artifacts.Store, tool artifacts.Tool) Store { return &keep{s, tool} }

type keep struct {
	s    artifacts.Store
	tool artifacts.Tool
}

// Hold asks the store to hold still, if it is of a kind that removes anything.
func (k *keep) Hold(ctx context.Context) (func(), error) {
	if h, ok := k.s.(interface {
		Hold(context.Context) (func(), error)
	}); ok {
		return h.Hold(ctx)
	}
	return func() {}, nil
}

func (k *keep) FreeBytes() (int64, error) {
	if f, ok := k.s.(interface{ FreeBytes() (int64, error) }); ok {
		return f.FreeBytes()
	}
	return 0, errors.ErrUnsupported
}

func (k *keep) Tensors(ctx context.Context, keys []tensor.Key) ([]Kept, error) {
	ask := make([]artifacts.Key, 0, len(keys))
	for _, key := range keys {
		if !key.IsZero() {
			ask = append(ask, artifacts.Key(key))
		}
	}
	found, err := k.s.Lookup(ctx, ask)
	if err != nil {
		return nil, err
	}
	out := make([]Kept, len(keys))
	for i, key := range keys {
		if r, ok := found[artifacts.Key(key)]; ok && !key.IsZero() {
			out[i] = Kept{Blob: r.Blob, Offset: r.Offset, Bytes: r.Bytes, SHA256: r.Sum}
		}
	}
	return out, nil
}

// File finds the manifest that a layout's key leads to and, in its build, the
// output that has the key.
func (k *keep) File(ctx context.Context, key tensor.Key) (*KeptFile, error) {
	d, ok, err := artifacts.FindOutput(ctx, k.s, artifacts.Key(key))
	if err != nil || !ok {
		return nil, err
	}
	b, err := artifacts.ReadBuild(ctx, k.s, d)
	if errors.Is(err, artifacts.ErrManifest) || errors.Is(err, artifacts.ErrCorrupt) || errors.Is(err, artifacts.ErrNotFound) {
		return nil, nil // damaged: build again
	}
	if err != nil {
		return nil, err
	}
	for _, o := range b.Outputs {
		if o.Key != artifacts.Key(key) {
			continue
		}
		f := &KeptFile{Digest: o.Digest, Size: o.Size}
		for _, t := range o.Tensors {
			f.Tensors = append(f.Tensors, TensorRecord{Name: t.Name, SHA256: t.Digest})
		}
		return f, nil
	}
	return nil, nil
}

// storedBlob reads an artifact's blob as a tensor.Blob.
type storedBlob struct {
	*tensor.FileBlob
	b artifacts.Blob
}

func (s storedBlob) Close() error { return s.b.Close() }

func (k *keep) OpenBlob(ctx context.Context, d digest.Digest) (StoredBlob, error) {
	b, err := k.s.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	return storedBlob{tensor.ReaderAtBlob("blob "+d.String(), b, b.Size()), b}, nil
}

type blobWriter struct{ artifacts.BlobWriter }

func (w blobWriter) Commit(want digest.Digest) error {
	_, err := w.BlobWriter.Commit(want)
	return err
}

func (k *keep) NewBlob(ctx context.Context, size int64) (BlobWriter, error) {
	w, err := k.s.NewBlob(ctx, artifacts.BlobOptions{Size: size})
	if err != nil {
		return nil, err
	}
	return blobWriter{w}, nil
}

func (k *keep) Record(ctx context.Context, r *Record) (digest.Digest, error) {
	b, err := k.build(r)
	if err != nil {
		return digest.Digest{}, err
	}
	d, err := artifacts.WriteBuild(ctx, k.s, b)
	if err != nil {
		return digest.Digest{}, err
	}
	if err := k.s.Tag(ctx, r.Name, d); err != nil {
		return digest.Digest{}, err
	}
	var refs []artifacts.KeyRef
	for _, o := range r.Outputs {
		for _, t := range o.Tensors {
			if t.Key.IsZero() || t.Bytes == 0 {
				continue
			}
			refs = append(refs, artifacts.KeyRef{Key: artifacts.Key(t.Key),
				Ref: artifacts.Ref{Blob: o.Digest, Offset: t.Offset, Bytes: t.Bytes, Sum: t.SHA256}})
		}
	}
	if err := k.s.PutKeys(ctx, refs); err != nil {
		return digest.Digest{}, err
	}
	for _, o := range r.Outputs {
		if o.Key.IsZero() {
			continue
		}
		if err := artifacts.PutOutput(ctx, k.s, artifacts.Key(o.Key), d); err != nil {
			return digest.Digest{}, err
		}
	}
	return d.Digest, nil
}

func (k *keep) build(r *Record) (*artifacts.Build, error) {
	b := &artifacts.Build{Version: artifacts.BuildVersion, Tool: k.tool, Name: r.Name, Recipe: json.RawMessage(r.Recipe)}
	for _, s := range r.Sources {
		src := artifacts.BuildSource{Name: s.Name, Kind: s.Kind, Ref: s.Ref, Commit: s.Commit}
		for _, f := range s.Files {
			bf := artifacts.BuildFile{Path: f.Path, Size: f.Size, Git: f.GitOID}
			if f.SHA256 != "" {
				d, err := digest.ParseHex(f.SHA256)
				if err != nil {
					return nil, fmt.Errorf("source %s: file %s: %w", s.Name, f.Path, err)
				}
				bf.Digest = d
			}
			src.Files = append(src.Files, bf)
		}
		b.Sources = append(b.Sources, src)
	}
	for _, s := range r.Steps {
		b.Steps = append(b.Steps, artifacts.BuildStep{Stage: s.Stage, Version: s.Version, Params: s.Params})
	}
	for _, o := range r.Outputs {
		out := artifacts.BuildOutput{File: o.File, Format: o.Format, MediaType: o.MediaType, Digest: o.Digest, Size: o.Size, Key: artifacts.Key(o.Key)}
		for _, t := range o.Tensors {
			out.Tensors = append(out.Tensors, artifacts.BuildTensor{
				Name: t.Name, Type: t.Type.String(), Shape: t.Shape, Offset: t.Offset, Bytes: t.Bytes,
				Digest: t.SHA256, Key: artifacts.Key(t.Key), Reason: t.Reason,
			})
		}
		b.Outputs = append(b.Outputs, out)
	}
	for _, g := range r.Gates {
		doc, err := plainJSON(g)
		if err != nil {
			return nil, fmt.Errorf("gate %s: %w", g.Gate, err)
		}
		b.Gates = append(b.Gates, doc)
	}
	return b, nil
}

// plainJSON is JSON without HTML escapes.
func plainJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

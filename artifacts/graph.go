package artifacts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// MaxManifest is the largest manifest that registries and clients support.
const MaxManifest = 4 << 20

// The media types of manifests that other tools keep in layouts.
const (
	mediaTypeDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	mediaTypeDockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	mediaTypeOldArtifact    = "application/vnd.oci.artifact.manifest.v1+json"
)

// IsManifest reports whether content of a media type refers to other content
// that quern can follow.
func IsManifest(mediaType string) bool {
	switch mediaType {
	case ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex,
		mediaTypeDockerManifest, mediaTypeDockerList, mediaTypeOldArtifact:
		return true
	}
	return false
}

// manifestLinks are the parts of any kind of manifest that point elsewhere.
type manifestLinks struct {
	Config    *ocispec.Descriptor  `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	Blobs     []ocispec.Descriptor `json:"blobs"`
	Manifests []ocispec.Descriptor `json:"manifests"`
	Subject   *ocispec.Descriptor  `json:"subject"`
}

// links lists what a manifest needs, and its subject, which it does not: that
// may be elsewhere.
func links(raw []byte) (needs []ocispec.Descriptor, subject *ocispec.Descriptor, err error) {
	var m manifestLinks
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if m.Config != nil {
		needs = append(needs, *m.Config)
	}
	needs = append(needs, m.Layers...)
	needs = append(needs, m.Blobs...)
	needs = append(needs, m.Manifests...)
	for i, d := range needs {
		if !validOCIDigest(string(d.Digest)) || d.Size < 0 {
			return nil, nil, fmt.Errorf("%w: descriptor %d: digest %.90q, size %d", ErrManifest, i, d.Digest, d.Size)
		}
	}
	if m.Subject != nil && !validOCIDigest(string(m.Subject.Digest)) {
		return nil, nil, fmt.Errorf("%w: subject: digest %.90q", ErrManifest, m.Subject.Digest)
	}
	return needs, m.Subject, nil
}

// Reader reads a manifest's bytes, verified, of whatever digest algorithm.
type Reader func(ctx context.Context, d ocispec.Descriptor) ([]byte, error)

// ManifestReader reads manifests of a store.
func ManifestReader(s BlobReader) Reader {
	return func(ctx context.Context, o ocispec.Descriptor) ([]byte, error) {
		d, err := FromOCI(o)
		if err != nil {
			return nil, err
		}
		return ReadAll(ctx, s, d, MaxManifest)
	}
}

// Edge is a descriptor and the manifest that holds it; From is empty for roots.
type Edge struct {
	From godigest.Digest
	To   ocispec.Descriptor
}

// Walk visits every descriptor that can be reached from roots, those given
// first, each manifest's content once. A manifest that cannot be read or parsed
// is handed to bad, which decides whether the walk goes on.
func Walk(ctx context.Context, roots []ocispec.Descriptor, read Reader, visit func(Edge) error, bad func(Edge, error) error) error {
	queue := make([]Edge, 0, len(roots))
	for _, r := range roots {
		queue = append(queue, Edge{To: r})
	}
	opened := map[godigest.Digest]bool{}
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := visit(e); err != nil {
			return err
		}
		if !IsManifest(e.To.MediaType) || opened[e.To.Digest] {
			continue
		}
		opened[e.To.Digest] = true
		raw, err := read(ctx, e.To)
		var needs []ocispec.Descriptor
		if err == nil {
			needs, _, err = links(raw)
		}
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := bad(e, err); err != nil {
				return err
			}
			continue
		}
		for _, n := range needs {
			queue = append(queue, Edge{From: e.To.Digest, To: n})
		}
	}
	return nil
}

// CheckComplete makes sure that d, and everything that it refers to, is in the
// store with the right sizes. It reads manifests only.
func CheckComplete(ctx context.Context, s BlobReader, d Descriptor) error {
	return Walk(ctx, []ocispec.Descriptor{d.OCI()}, ManifestReader(s), func(e Edge) error {
		to, err := FromOCI(e.To)
		if err != nil {
			return err
		}
		in, err := s.Stat(ctx, to.Digest)
		if err != nil {
			return edgeError(e, err)
		}
		if in.Size != to.Size {
			return edgeError(e, fmt.Errorf("blob %s: %w: %d bytes, its descriptor says %d", to.Digest, ErrCorrupt, in.Size, to.Size))
		}
		return nil
	}, edgeError)
}

func edgeError(e Edge, err error) error {
	if e.From == "" {
		return err
	}
	return fmt.Errorf("manifest %s: %w", e.From, err)
}

// ignore turns errors of one kind into nil.
func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// CopyImage copies d and everything that it refers to into another store, d
// itself last, and verifies all of it. Blobs that are there already are
// not read.
func CopyImage(ctx context.Context, dst Store, src BlobReader, d Descriptor) error {
	order, err := Closure(ctx, src, d)
	if err != nil {
		return err
	}
	for i := len(order) - 1; i >= 0; i-- {
		if err := copyBlob(ctx, dst, src, order[i]); err != nil {
			return err
		}
	}
	return nil
}

// Closure lists d, first, and everything that it refers to, each once.
func Closure(ctx context.Context, s BlobReader, d Descriptor) ([]Descriptor, error) {
	var order []Descriptor
	seen := map[Digest]bool{}
	err := Walk(ctx, []ocispec.Descriptor{d.OCI()}, ManifestReader(s), func(e Edge) error {
		to, err := FromOCI(e.To)
		if err != nil {
			return edgeError(e, err)
		}
		if !seen[to.Digest] {
			seen[to.Digest] = true
			order = append(order, to)
		}
		return nil
	}, edgeError)
	return order, err
}

func copyBlob(ctx context.Context, dst Store, src BlobReader, d Descriptor) error {
	if in, err := dst.Stat(ctx, d.Digest); err == nil && in.Size == d.Size {
		return nil
	}
	w, err := dst.NewBlob(ctx, BlobOptions{MediaType: d.MediaType, Size: d.Size})
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := Copy(ctx, w, src, d); err != nil {
		return err
	}
	_, err = w.Commit(d.Digest)
	return err
}

// manifestOf decodes an image manifest of d's bytes.
func manifestOf(raw []byte) (*ocispec.Manifest, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return &m, nil
}

// ReadManifest reads any OCI image manifest.
func ReadManifest(ctx context.Context, s BlobReader, d Descriptor) (*ocispec.Manifest, error) {
	if d.MediaType != ocispec.MediaTypeImageManifest {
		return nil, fmt.Errorf("%s: %w: media type %q, want %q", d.Digest, ErrManifest, d.MediaType, ocispec.MediaTypeImageManifest)
	}
	raw, err := ReadAll(ctx, s, d, MaxManifest)
	if err != nil {
		return nil, err
	}
	m, err := manifestOf(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Digest, err)
	}
	return m, nil
}

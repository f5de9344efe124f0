package artifacts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Referrers lists the manifests of a store whose subject is d: signatures,
// provenance. An artifactType that is not empty chooses among them. A layout has
// no index of them, so all small blobs are looked at.
func Referrers(ctx context.Context, s BlobReader, d Digest, artifactType string) ([]Descriptor, error) {
	blobs, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []Descriptor
	for _, in := range blobs {
		if in.Size > MaxManifest {
			continue
		}
		r, err := referrer(ctx, s, in, d)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) {
			continue // gone meanwhile, or none that can be believed
		}
		if err != nil {
			return nil, err
		}
		if r != nil && (artifactType == "" || r.ArtifactType == artifactType) {
			out = append(out, *r)
		}
	}
	return out, nil
}

// referrer gives the descriptor of a blob that is a manifest about d.
func referrer(ctx context.Context, s BlobReader, in Info, d Digest) (*Descriptor, error) {
	b, err := s.Open(ctx, in.Digest)
	if err != nil {
		return nil, err
	}
	var first [1]byte
	_, err = b.ReadAt(first[:], 0)
	if cerr := b.Close(); err != nil || cerr != nil || first[0] != '{' {
		return nil, cerr // an empty blob is none
	}
	raw, err := ReadAll(ctx, s, Descriptor{Digest: in.Digest, Size: in.Size}, MaxManifest)
	if err != nil || !bytes.Contains(raw, []byte(d.Hex())) {
		return nil, err
	}
	var m ocispec.Manifest
	if json.Unmarshal(raw, &m) != nil || m.Subject == nil || string(m.Subject.Digest) != d.String() || !IsManifest(m.MediaType) {
		return nil, nil
	}
	r := &Descriptor{MediaType: m.MediaType, Digest: in.Digest, Size: in.Size, ArtifactType: m.ArtifactType, Annotations: m.Annotations}
	if r.ArtifactType == "" {
		r.ArtifactType = m.Config.MediaType
	}
	return r, nil
}

// FindBuild reads the build that a manifest is, or the one that says where the
// manifest's files come from. It fails with ErrNotFound if there is neither.
func FindBuild(ctx context.Context, s BlobReader, d Descriptor) (*Build, error) {
	b, err := ReadBuild(ctx, s, d)
	if err == nil || !errors.Is(err, ErrNoBuild) {
		return b, err
	}
	about, rerr := Referrers(ctx, s, d.Digest, ArtifactTypeBuild)
	if rerr != nil {
		return nil, rerr
	}
	for _, r := range about {
		if b, rerr := ReadBuild(ctx, s, r); rerr == nil {
			return b, nil
		}
	}
	return nil, fmt.Errorf("%w, and no build about it is here: %w", err, ErrNotFound)
}

// AboutBuild makes a manifest that gives another one, which holds the same files,
// the provenance of a build: the build's config and layers with that manifest as
// subject. The config must be in the store.
func AboutBuild(ctx context.Context, s BlobReader, build, subject Descriptor) (Descriptor, []byte, error) {
	b, err := ReadBuild(ctx, s, build)
	if err != nil {
		return Descriptor{}, nil, err
	}
	m, err := ReadManifest(ctx, s, build)
	if err != nil {
		return Descriptor{}, nil, err
	}
	config, err := FromOCI(m.Config)
	if err != nil {
		return Descriptor{}, nil, err
	}
	about := buildManifest(b, config)
	sub := Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}.OCI()
	about.Subject = &sub
	raw, err := encode(about)
	if err != nil {
		return Descriptor{}, nil, err
	}
	return Descriptor{
		MediaType: ocispec.MediaTypeImageManifest, Digest: DigestOf(raw), Size: int64(len(raw)), ArtifactType: ArtifactTypeBuild,
	}, raw, nil
}

package artifacts

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// WriteBuild stores the config and the manifest of a build whose outputs are in
// the store, and returns the manifest's descriptor. Tag gives it a name.
//
//	manifest  artifactType  application/vnd.quern.build.v1+json
//	├── config              application/vnd.quern.build.config.v1+json = Build
//	├── layer 0             output 0, title annotation = its file name
//	└── layer 1 ...
func WriteBuild(ctx context.Context, s Store, b *Build) (Descriptor, error) {
	config, err := b.Marshal()
	if err != nil {
		return Descriptor{}, err
	}
	if len(config) > MaxBuildConfig {
		return Descriptor{}, fmt.Errorf("%w: build %q: its config has %d bytes, the limit is %d", ErrManifest, b.Name, len(config), MaxBuildConfig)
	}
	for _, o := range b.Outputs {
		in, err := s.Stat(ctx, o.Digest)
		if err != nil {
			return Descriptor{}, fmt.Errorf("output %s: %w", o.File, err)
		}
		if in.Size != o.Size {
			return Descriptor{}, fmt.Errorf("output %s: blob %s: %w: %d bytes, the build says %d", o.File, o.Digest, ErrCorrupt, in.Size, o.Size)
		}
	}
	cd, err := PutBytes(ctx, s, MediaTypeBuildConfig, config)
	if err != nil {
		return Descriptor{}, err
	}
	raw, err := encode(buildManifest(b, cd))
	if err != nil {
		return Descriptor{}, err
	}
	if len(raw) > MaxManifest {
		return Descriptor{}, fmt.Errorf("%w: build %q: its manifest has %d bytes, the limit is %d", ErrManifest, b.Name, len(raw), MaxManifest)
	}
	d, err := PutBytes(ctx, s, ocispec.MediaTypeImageManifest, raw)
	d.ArtifactType = ArtifactTypeBuild
	return d, err
}

func buildManifest(b *Build, config Descriptor) ocispec.Manifest {
	m := ocispec.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    ocispec.MediaTypeImageManifest,
		ArtifactType: ArtifactTypeBuild,
		Config:       config.OCI(),
		Annotations:  map[string]string{ocispec.AnnotationTitle: b.Name},
	}
	for _, o := range b.Outputs {
		m.Layers = append(m.Layers, Descriptor{
			MediaType:   o.MediaType,
			Digest:      o.Digest,
			Size:        o.Size,
			Annotations: map[string]string{ocispec.AnnotationTitle: o.File},
		}.OCI())
	}
	return m
}

// ReadBuild reads the build of a manifest, verified, and checks that manifest
// and config tell the same.
func ReadBuild(ctx context.Context, s BlobReader, d Descriptor) (*Build, error) {
	if d.MediaType != ocispec.MediaTypeImageManifest {
		return nil, fmt.Errorf("%s: %w: media type %q: %w", d.Digest, ErrManifest, d.MediaType, ErrNoBuild)
	}
	m, err := ReadManifest(ctx, s, d)
	if err != nil {
		return nil, err
	}
	if m.ArtifactType != ArtifactTypeBuild || m.Config.MediaType != MediaTypeBuildConfig {
		return nil, fmt.Errorf("%s: %w: artifact type %q with config %q: %w", d.Digest, ErrManifest, m.ArtifactType, m.Config.MediaType, ErrNoBuild)
	}
	cd, err := FromOCI(m.Config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Digest, err)
	}
	raw, err := ReadAll(ctx, s, cd, MaxBuildConfig)
	if err != nil {
		return nil, fmt.Errorf("%s: config: %w", d.Digest, err)
	}
	b, err := ParseBuild(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Digest, err)
	}
	if len(m.Layers) != len(b.Outputs) {
		return nil, fmt.Errorf("%s: %w: %d layers for %d outputs", d.Digest, ErrManifest, len(m.Layers), len(b.Outputs))
	}
	for i, o := range b.Outputs {
		l := m.Layers[i]
		if string(l.Digest) != o.Digest.String() || l.Size != o.Size || l.MediaType != o.MediaType || l.Annotations[ocispec.AnnotationTitle] != o.File {
			return nil, fmt.Errorf("%s: %w: layer %d is %s, %d bytes, %q; output %q is %s, %d bytes, %q", d.Digest, ErrManifest,
				i, l.Digest, l.Size, l.MediaType, o.File, o.Digest, o.Size, o.MediaType)
		}
	}
	return b, nil
}

// PutOutput remembers under a key which manifest an output is in.
func PutOutput(ctx context.Context, s WriteStore, key Key, manifest Descriptor) error {
	return s.PutKeys(ctx, []KeyRef{{key, Ref{Blob: manifest.Digest, Bytes: manifest.Size, Sum: manifest.Digest}}})
}

// FindOutput finds the manifest that PutOutput remembered. It is a miss if
// anything that the manifest refers to is gone.
func FindOutput(ctx context.Context, s ReadStore, key Key) (manifest Descriptor, found bool, err error) {
	refs, err := s.Lookup(ctx, []Key{key})
	if err != nil {
		return Descriptor{}, false, err
	}
	r, ok := refs[key]
	if !ok {
		return Descriptor{}, false, nil
	}
	d := Descriptor{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: ArtifactTypeBuild, Digest: r.Blob, Size: r.Bytes}
	err = CheckComplete(ctx, s, d)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrManifest) {
		return Descriptor{}, false, nil
	}
	if err != nil {
		return Descriptor{}, false, err
	}
	return d, true, nil
}

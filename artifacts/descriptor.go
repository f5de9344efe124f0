package artifacts

import (
	"fmt"
	"maps"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Media types of what quern writes.
const (
	MediaTypeOctets = "application/octet-stream"
	MediaTypeGGUF   = "application/vnd.quern.gguf.v3"
	MediaTypeKMCU   = "application/vnd.quern.kmcu.v1"

	// ArtifactTypeBuild is the artifactType of a build's manifest,
	// MediaTypeBuildConfig the media type of its config.
	ArtifactTypeBuild    = "application/vnd.quern.build.v1+json"
	MediaTypeBuildConfig = "application/vnd.quern.build.config.v1+json"
)

// Descriptor names content by media type, digest and size, as OCI does.
type Descriptor struct {
	MediaType    string            `json:"mediaType"`
	Digest       Digest            `json:"digest"`
	Size         int64             `json:"size"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

// Same reports whether two descriptors name the same content.
func (d Descriptor) Same(o Descriptor) bool {
	return d.MediaType == o.MediaType && d.Digest == o.Digest && d.Size == o.Size
}

// String is for messages.
func (d Descriptor) String() string {
	return fmt.Sprintf("%s (%s, %d bytes)", d.Digest, d.MediaType, d.Size)
}

// OCI gives the descriptor in the types of the OCI specification.
func (d Descriptor) OCI() ocispec.Descriptor {
	return ocispec.Descriptor{
		MediaType:    d.MediaType,
		Digest:       godigest.Digest(d.Digest.String()),
		Size:         d.Size,
		ArtifactType: d.ArtifactType,
		Annotations:  maps.Clone(d.Annotations),
	}
}

// FromOCI reads a descriptor of the OCI specification. It fails with
// ErrManifest when the digest is not a SHA-256 or the size is negative.
func FromOCI(o ocispec.Descriptor) (Descriptor, error) {
	d, err := ParseDigest(string(o.Digest))
	if err != nil {
		return Descriptor{}, fmt.Errorf("%w: descriptor: %w", ErrManifest, err)
	}
	if d.IsZero() { // it would pass for bytes that nothing is known of
		return Descriptor{}, fmt.Errorf("%w: descriptor: a digest of zeros is that of no bytes", ErrManifest)
	}
	if o.Size < 0 {
		return Descriptor{}, fmt.Errorf("%w: descriptor %s: negative size %d", ErrManifest, d, o.Size)
	}
	return Descriptor{
		MediaType:    o.MediaType,
		Digest:       d,
		Size:         o.Size,
		ArtifactType: o.ArtifactType,
		Annotations:  maps.Clone(o.Annotations),
	}, nil
}

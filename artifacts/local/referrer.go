package local

import (
	"encoding/json"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"quern/artifacts"
)

// parseReferrer reads a manifest that has a subject.
func parseReferrer(r io.ReaderAt, size int64) (*ocispec.Manifest, bool) {
	var m ocispec.Manifest
	if json.NewDecoder(io.NewSectionReader(r, 0, size)).Decode(&m) != nil {
		return nil, false
	}
	if m.Subject == nil || !artifacts.IsManifest(m.MediaType) {
		return nil, false
	}
	return &m, true
}

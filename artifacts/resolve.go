package artifacts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Resolve finds what ref means: a name of the index, an entry of the index by
// digest, or any blob by digest. It is what stores implement NameReader with.
func Resolve(ctx context.Context, x *Index, s BlobReader, ref string) (Descriptor, error) {
	if d, found, err := x.Lookup(ref); found {
		return d, err
	}
	hex, ok, err := digestPrefix(ref)
	if err != nil {
		return Descriptor{}, err
	}
	if !ok {
		if err := CheckName(ref); err != nil {
			return Descriptor{}, err
		}
		return Descriptor{}, fmt.Errorf("name %s: %w", ref, ErrNotFound)
	}
	found := map[Digest]Descriptor{}
	for _, d := range x.Roots() {
		if strings.HasPrefix(d.Digest.Hex(), hex) {
			found[d.Digest] = d
		}
	}
	blobs, err := matching(ctx, s, hex)
	if err != nil {
		return Descriptor{}, err
	}
	for _, b := range blobs {
		if _, known := found[b.Digest]; known {
			continue
		}
		d := Descriptor{Digest: b.Digest, Size: b.Size}
		if d.MediaType, err = sniff(ctx, s, b); err != nil {
			return Descriptor{}, err
		}
		found[b.Digest] = d
	}
	switch len(found) {
	case 0:
		return Descriptor{}, fmt.Errorf("digest %s: %w", ref, ErrNotFound)
	case 1:
		for _, d := range found {
			return d, nil
		}
	}
	return Descriptor{}, fmt.Errorf("digest %s: %w: %d digests begin so; give more digits", ref, ErrAmbiguous, len(found))
}

// matching lists the blobs whose digest begins with hex. A whole digest needs
// no listing.
func matching(ctx context.Context, s BlobReader, hex string) ([]Info, error) {
	if len(hex) == 64 {
		d, err := ParseDigest("sha256:" + hex)
		if err != nil {
			return nil, err
		}
		in, err := s.Stat(ctx, d)
		if err != nil {
			return nil, ignore(err, ErrNotFound)
		}
		return []Info{in}, nil
	}
	all, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, in := range all {
		if strings.HasPrefix(in.Digest.Hex(), hex) {
			out = append(out, in)
		}
	}
	return out, nil
}

// sniff tells manifests, which name their own media type, from other blobs.
func sniff(ctx context.Context, s BlobReader, in Info) (string, error) {
	if in.Size > MaxManifest {
		return MediaTypeOctets, nil
	}
	b, err := s.Open(ctx, in.Digest)
	if err != nil {
		return "", err
	}
	defer b.Close()
	raw := make([]byte, in.Size)
	if n, err := b.ReadAt(raw, 0); n < len(raw) {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return "", fmt.Errorf("blob %s: %w", in.Digest, err)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return MediaTypeOctets, nil
	}
	var m struct {
		SchemaVersion int    `json:"schemaVersion"`
		MediaType     string `json:"mediaType"`
	}
	if json.Unmarshal(raw, &m) != nil || m.SchemaVersion != 2 || m.MediaType == "" {
		return MediaTypeOctets, nil
	}
	return m.MediaType, nil
}

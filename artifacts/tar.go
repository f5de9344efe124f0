package artifacts

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// LayoutFile is the content of an OCI layout's oci-layout file.
const LayoutFile = `{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`

// WriteTar writes an image and everything that it refers to as a tar of an OCI
// layout, which skopeo and others call oci-archive. Every blob is verified on
// the way. The same image and name give the same bytes: no times and no owners.
//
//	oci-layout
//	index.json           one entry, with the name
//	blobs/sha256/<hex>   ordered by digest
func WriteTar(ctx context.Context, w io.Writer, s BlobReader, name string, d Descriptor) error {
	blobs, err := Closure(ctx, s, d)
	if err != nil {
		return err
	}
	slices.SortFunc(blobs, func(a, b Descriptor) int { return a.Digest.Compare(b.Digest) })
	index, err := SingleIndex(name, d)
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{"oci-layout", []byte(LayoutFile)}, {"index.json", index}} {
		if err := t.WriteHeader(tarHeader(f.name, int64(len(f.data)))); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	for _, b := range blobs {
		if err := t.WriteHeader(tarHeader("blobs/sha256/"+b.Digest.Hex(), b.Size)); err != nil {
			return err
		}
		if err := Copy(ctx, t, s, b); err != nil {
			return err
		}
	}
	return t.Close()
}

func tarHeader(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}
}

// SingleIndex is the index.json of a layout with one entry.
func SingleIndex(name string, d Descriptor) ([]byte, error) {
	x := NewIndex()
	if err := x.Tag(name, d); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	return x.Marshal()
}

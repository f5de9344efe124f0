package pack

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"quern/artifacts"
)

// Overlay reads blobs that are not in a store, or not yet: bytes in memory and
// files of the user's. What it has not got itself it takes from Base.
type Overlay struct {
	Base  artifacts.BlobReader // may be nil
	bytes map[artifacts.Digest][]byte
	files map[artifacts.Digest]onDisk
}

type onDisk struct {
	path string
	size int64
}

var _ artifacts.BlobReader = (*Overlay)(nil)

// Add puts bytes over the base.
func (o *Overlay) Add(b []byte) artifacts.Digest {
	if o.bytes == nil {
		o.bytes = map[artifacts.Digest][]byte{}
	}
	d := artifacts.DigestOf(b)
	o.bytes[d] = b
	return d
}

// AddImage puts a manifest and its config over the base.
func (o *Overlay) AddImage(im *Image) {
	o.Add(im.Raw)
	o.Add(im.ConfigRaw)
}

// AddFile puts a file over the base, whose digest the caller has computed.
func (o *Overlay) AddFile(d artifacts.Digest, path string, size int64) {
	if o.files == nil {
		o.files = map[artifacts.Digest]onDisk{}
	}
	o.files[d] = onDisk{path, size}
}

type blob struct {
	*bytes.Reader
}

func (blob) Close() error  { return nil }
func (b blob) Size() int64 { return b.Reader.Size() }

type fileBlob struct {
	*os.File
	size int64
}

func (f fileBlob) Size() int64 { return f.size }

// Open opens a blob.
func (o *Overlay) Open(ctx context.Context, d artifacts.Digest) (artifacts.Blob, error) {
	if b, ok := o.bytes[d]; ok {
		return blob{bytes.NewReader(b)}, nil
	}
	if f, ok := o.files[d]; ok {
		file, err := os.Open(f.path)
		if err != nil {
			return nil, err
		}
		st, err := file.Stat()
		if err != nil {
			file.Close()
			return nil, err
		}
		return fileBlob{file, st.Size()}, nil
	}
	if o.Base == nil {
		return nil, fmt.Errorf("blob %s: %w", d, artifacts.ErrNotFound)
	}
	return o.Base.Open(ctx, d)
}

// Stat gives a blob's size.
func (o *Overlay) Stat(ctx context.Context, d artifacts.Digest) (artifacts.Info, error) {
	if b, ok := o.bytes[d]; ok {
		return artifacts.Info{Digest: d, Size: int64(len(b))}, nil
	}
	if f, ok := o.files[d]; ok {
		return artifacts.Info{Digest: d, Size: f.size}, nil
	}
	if o.Base == nil {
		return artifacts.Info{}, fmt.Errorf("blob %s: %w", d, artifacts.ErrNotFound)
	}
	return o.Base.Stat(ctx, d)
}

// List lists the base's blobs; what is over it is not listed.
func (o *Overlay) List(ctx context.Context) ([]artifacts.Info, error) {
	if o.Base == nil {
		return nil, nil
	}
	return o.Base.List(ctx)
}

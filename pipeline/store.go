package pipeline

import (
	"context"
	"io"

	"quern/internal/digest"
	"quern/tensor"
)

// Store is what a build asks of the artifact store. A nil Store is allowed:
// nothing is found and nothing is kept.
type Store interface {
	// Hold keeps what the store has from being removed until release is
	// called.
	Hold(ctx context.Context) (release func(), err error)
	// FreeBytes is the space that new content may take, and an error where
	// nobody knows.
	FreeBytes() (int64, error)
	// Tensors finds kept bytes by derivation key. A key that is zero or not
	// kept gives a Kept whose Blob is zero.
	Tensors(ctx context.Context, keys []tensor.Key) ([]Kept, error)
	// File finds a finished file by the key of its layout, or nil.
	File(ctx context.Context, key tensor.Key) (*KeptFile, error)
	// OpenBlob opens kept content.
	OpenBlob(ctx context.Context, d digest.Digest) (StoredBlob, error)
	// NewBlob starts content of exactly size bytes.
	NewBlob(ctx context.Context, size int64) (BlobWriter, error)
	// Record keeps a finished build: manifest, name, keys. It returns the
	// digest of the manifest.
	Record(ctx context.Context, r *Record) (digest.Digest, error)
}

// Kept says where the store has the bytes of a tensor.
type Kept struct {
	Blob   digest.Digest
	Offset int64
	Bytes  int64
	SHA256 digest.Digest
}

// KeptFile is a finished file in the store.
type KeptFile struct {
	Digest  digest.Digest
	Size    int64
	Tensors []TensorRecord
}

// StoredBlob is open content of the store.
type StoredBlob interface {
	tensor.Blob
	Close() error
}

// BlobWriter takes new content. Commit fails, and keeps nothing, when the
// content is not what want says. Abort after Commit does nothing.
type BlobWriter interface {
	io.Writer
	// Sum is the digest of what has been written.
	Sum() digest.Digest
	Commit(want digest.Digest) error
	Abort()
}

// Record is a finished build with its provenance. It holds nothing of the
// machine that it was made on.
type Record struct {
	Name    string
	Recipe  []byte // canonical JSON
	Sources []SourceRecord
	Steps   []StepRecord
	Outputs []OutputRecord
	Gates   []GateResult // what the outputs were held to
}

// StepRecord is a stage with its parameters in JSON.
type StepRecord struct {
	Stage   string
	Version string
	Params  []byte
}

// SourceRecord says what a source was.
type SourceRecord struct {
	Name   string       `json:"name"`
	Kind   string       `json:"kind"`
	Ref    string       `json:"ref"`
	Commit string       `json:"commit,omitempty"`
	Files  []SourceFile `json:"files"`
}

// OutputRecord says what an output is.
type OutputRecord struct {
	File      string
	Format    string
	MediaType string
	Digest    digest.Digest
	Size      int64
	Key       tensor.Key // of the layout; zero when not keyed
	Tensors   []OutputTensor
}

// OutputTensor is one tensor of an output.
type OutputTensor struct {
	Name   string
	Type   tensor.Type
	Shape  tensor.Shape
	From   tensor.Type
	Reason string
	Offset int64
	Bytes  int64
	SHA256 digest.Digest
	Key    tensor.Key
}

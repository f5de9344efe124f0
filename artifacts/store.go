// Package artifacts keeps the results of builds: blobs named by their digest,
// manifests that say what they are and where they come from, names, and keys
// that find the bytes of work done before.
//
// The model of data is that of OCI images. Package local keeps it on disk as an
// OCI image layout, package mem in memory, and package storetest holds what
// every store must pass.
package artifacts

import (
	"context"
	"encoding/hex"
	"io"
)

// Info is what a store knows about a blob without reading it.
type Info struct {
	Digest Digest
	Size   int64
}

// Blob is an open blob. ReadAt is safe for several goroutines and does not
// verify; see Copy and ReadAll for that.
type Blob interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// BlobReader is random access to blobs.
type BlobReader interface {
	// Open opens a blob, or fails with ErrNotFound.
	Open(ctx context.Context, d Digest) (Blob, error)
	// Stat gives a blob's size, or ErrNotFound.
	Stat(ctx context.Context, d Digest) (Info, error)
	// List gives all blobs ordered by digest.
	List(ctx context.Context) ([]Info, error)
}

// BlobOptions describe a blob that is about to be written.
type BlobOptions struct {
	// MediaType goes into the Descriptor; empty means MediaTypeOctets.
	MediaType string
	// Size is the exact size, checked by Commit and reserved on disk where
	// that is possible; zero means unknown.
	Size int64
}

// BlobWriter receives a blob's bytes. Nothing of them is in the store before
// Commit has returned without error, and nothing is left of them after a failed
// Write, a failed Commit or Abort. It belongs to one goroutine.
type BlobWriter interface {
	io.Writer
	// Size is the number of bytes written so far.
	Size() int64
	// Sum is the digest of the bytes written so far.
	Sum() Digest
	// Commit makes the blob durable under its digest. It fails with
	// ErrMismatch if want is not zero and differs, or if the size does.
	// Committing what is there already is no error.
	Commit(want Digest) (Descriptor, error)
	// Abort drops the bytes. After Commit or Abort it does nothing, so it
	// can be deferred.
	Abort()
}

// Named is a name and what it stands for.
type Named struct {
	Name string
	Descriptor
}

// NameReader finds descriptors by name.
type NameReader interface {
	// Resolve finds a name, else a digest or its beginning of at least
	// MinPrefix hex digits, with or without "sha256:". It fails with
	// ErrNotFound, ErrAmbiguous or ErrName.
	Resolve(ctx context.Context, ref string) (Descriptor, error)
	// Names lists all names in order.
	Names(ctx context.Context) ([]Named, error)
	// Roots lists every entry of the index in its order, those without a
	// name included: what they reach is kept.
	Roots(ctx context.Context) ([]Descriptor, error)
}

// Key is a derivation key as package tensor makes them: equal keys promise
// equal bytes.
type Key [32]byte

// IsZero reports whether k is the zero Key, which stands for "no key".
func (k Key) IsZero() bool { return k == Key{} }

// String gives the key in lower-case hex.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Ref is a range of a blob and the digest of that range.
type Ref struct {
	Blob   Digest
	Offset int64
	Bytes  int64
	Sum    Digest
}

// KeyRef says where the bytes of a key are.
type KeyRef struct {
	Key
	Ref
}

// KeyReader finds bytes by derivation key.
type KeyReader interface {
	// Lookup finds those of the keys whose bytes are in the store. A key
	// whose blob is gone, or too short, is not found. Thousands of keys in
	// one call are quick.
	Lookup(ctx context.Context, keys []Key) (map[Key]Ref, error)
	// Keys lists everything that Lookup might find, and what it would not
	// because the blob is gone or too short, ordered by key.
	Keys(ctx context.Context) ([]KeyRef, error)
}

// ReadStore is the half of a Store that a read-only folder has too.
type ReadStore interface {
	BlobReader
	NameReader
	KeyReader
}

// WriteStore is the half of a Store that changes it. Every method is atomic:
// after a crash its change is there or it is not.
type WriteStore interface {
	// NewBlob starts a blob. ctx also governs the writer: after it is
	// cancelled Write and Commit fail with its cause and leave nothing.
	NewBlob(ctx context.Context, opt BlobOptions) (BlobWriter, error)
	// Delete removes a blob whoever refers to it, or fails with ErrNotFound.
	Delete(ctx context.Context, d Digest) error
	// Tag gives a name to a blob that is in the store, a manifest as a rule,
	// in place of what the name stood for. Everything that a manifest refers
	// to must be in the store too.
	Tag(ctx context.Context, name string, d Descriptor) error
	// Untag forgets a name, or fails with ErrNotFound.
	Untag(ctx context.Context, name string) error
	// PutKeys remembers where the bytes of keys are. Zero keys are ignored.
	PutKeys(ctx context.Context, refs []KeyRef) error
}

// Store is a content-addressed store with names and derivation keys. It is
// safe for several goroutines.
type Store interface {
	ReadStore
	WriteStore
}

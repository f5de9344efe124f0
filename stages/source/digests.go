package source

import (
	"context"
	"io/fs"
	"sync"

	"quern/internal/digest"
	"quern/tensor"
)

// Keeper remembers the digests of local files from one run to the next;
// artifacts/local has one.
type Keeper interface {
	// KnownDigest gives a digest without reading, if the file has not changed
	// since it was hashed.
	KnownDigest(path string) (digest.Digest, int64, bool)
	// FileDigest reads the file if need be.
	FileDigest(ctx context.Context, path string, progress func(n int64)) (digest.Digest, int64, error)
}

// Digests knows the digests of local files for the length of a run, and by its
// Keeper beyond. A Keeper forgets files that were written a moment ago, since
// their time stamps may not tell a later change; within one run the build
// itself checks for changes at its end.
type Digests struct {
	Keeper Keeper // may be nil

	mu   sync.Mutex
	seen map[string]seenFile
}

type seenFile struct {
	st  fs.FileInfo
	sum digest.Digest
}

// known gives the digest of the file with that stat, or false.
func (d *Digests) known(path string, st fs.FileInfo) (digest.Digest, bool) {
	d.mu.Lock()
	s, ok := d.seen[path]
	d.mu.Unlock()
	if ok && sameState(s.st, st) {
		return s.sum, true
	}
	if d.Keeper == nil {
		return digest.Digest{}, false
	}
	sum, size, ok := d.Keeper.KnownDigest(path)
	return sum, ok && size == st.Size()
}

// sum hashes the open file, through the Keeper where there is one.
func (d *Digests) sum(ctx context.Context, path string, st fs.FileInfo, blob tensor.Blob) (digest.Digest, error) {
	var sum digest.Digest
	var err error
	if d.Keeper != nil {
		sum, _, err = d.Keeper.FileDigest(ctx, path, nil)
	} else {
		sum, err = hashBlob(ctx, blob)
	}
	if err != nil {
		return sum, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen = map[string]seenFile{}
	}
	d.seen[path] = seenFile{st, sum}
	return sum, nil
}

func hashBlob(ctx context.Context, b tensor.Blob) (digest.Digest, error) {
	h := digest.New()
	buf := make([]byte, 1<<20)
	for off := int64(0); off < b.Size(); {
		n := b.Size() - off
		if n > int64(len(buf)) {
			n = int64(len(buf))
		}
		if err := b.ReadAt(ctx, buf[:n], off); err != nil {
			return digest.Digest{}, err
		}
		h.Write(buf[:n])
		off += n
	}
	return digest.Sum(h), nil
}

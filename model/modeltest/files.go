// Package modeltest holds file sets in memory for tests.
package modeltest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync/atomic"

	"quern/internal/testmodel"
	"quern/model"
	"quern/tensor"
)

// Files is a folder in memory. Reads counts the calls that read from opened
// files.
type Files struct {
	Folder string
	Files  map[string][]byte
	Reads  atomic.Int64
	// Fail, when not nil, is asked before every read of an opened file.
	Fail func(path string, off, n int64) error
}

var _ model.FileSet = (*Files)(nil)

// New makes a folder of files.
func New(name string, files map[string][]byte) *Files { return &Files{Folder: name, Files: files} }

// Build makes a model folder of the project's test data.
func Build(name string) (*Files, error) {
	files, err := testmodel.Build(name)
	if err != nil {
		return nil, err
	}
	return New(name, files), nil
}

// Name is the folder's name.
func (f *Files) Name() string { return f.Folder }

// List gives all files with their digests.
func (f *Files) List(context.Context) ([]model.FileInfo, error) {
	var out []model.FileInfo
	for _, p := range slices.Sorted(maps.Keys(f.Files)) {
		sum := sha256.Sum256(f.Files[p])
		out = append(out, model.FileInfo{Path: p, Size: int64(len(f.Files[p])), SHA256: hex.EncodeToString(sum[:])})
	}
	return out, nil
}

// ReadFile gives a whole file.
func (f *Files) ReadFile(_ context.Context, path string, limit int64) ([]byte, error) {
	b, ok := f.Files[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: %d bytes, limit %d", path, len(b), limit)
	}
	return b, nil
}

// Open gives access to a file.
func (f *Files) Open(_ context.Context, path string) (tensor.Blob, error) {
	b, ok := f.Files[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return &blob{tensor.BytesBlob(path, b), f, path}, nil
}

type blob struct {
	tensor.Blob
	f    *Files
	path string
}

// ReadAt counts and reads.
func (b *blob) ReadAt(ctx context.Context, p []byte, off int64) error {
	b.f.Reads.Add(1)
	if b.f.Fail != nil {
		if err := b.f.Fail(b.path, off, int64(len(p))); err != nil {
			return err
		}
	}
	return b.Blob.ReadAt(ctx, p, off)
}

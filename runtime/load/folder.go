package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"quern/model"
	"quern/runtime/mapped"
	"quern/tensor"
)

// folder is a local model folder whose weight files are mapped.
type folder struct {
	root   string
	opened map[string]*mapped.File
}

var _ model.FileSet = (*folder)(nil)

// Name is the folder's last name.
func (d *folder) Name() string {
	if abs, err := filepath.Abs(d.root); err == nil {
		return filepath.Base(abs)
	}
	return filepath.Base(d.root)
}

// List gives the regular files, in the order of their paths.
func (d *folder) List(context.Context) ([]model.FileInfo, error) {
	var out []model.FileInfo
	err := fs.WalkDir(os.DirFS(d.root), ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		// Caches keep files as links to blobs.
		st, err := os.Stat(filepath.Join(d.root, filepath.FromSlash(p)))
		if err != nil || !st.Mode().IsRegular() {
			return nil //nolint:nilerr // a link to nothing is no file of the model
		}
		out = append(out, model.FileInfo{Path: p, Size: st.Size()})
		return nil
	})
	return out, err
}

// ReadFile reads a whole small file.
func (d *folder) ReadFile(_ context.Context, path string, limit int64) (_ []byte, err error) {
	f, err := os.Open(filepath.Join(d.root, filepath.FromSlash(path)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s: more than %d bytes", path, limit)
	}
	return b, err
}

// Open maps a file, once.
func (d *folder) Open(_ context.Context, path string) (tensor.Blob, error) {
	if f := d.opened[path]; f != nil {
		return f, nil
	}
	f, err := mapped.Open(filepath.Join(d.root, filepath.FromSlash(path)))
	if err != nil {
		return nil, err
	}
	if d.opened == nil {
		d.opened = map[string]*mapped.File{}
	}
	d.opened[path] = f
	return f, nil
}

func (d *folder) close() error {
	var errs []error
	for _, f := range d.opened {
		errs = append(errs, f.Close())
	}
	d.opened = nil
	return errors.Join(errs...)
}

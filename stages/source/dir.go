// Package source opens what a recipe's sources: section names: folders, files,
// GGUF files, repositories of the Hugging Face Hub, addresses and artifacts of
// the store.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"quern/internal/digest"
	"quern/model"
	"quern/pipeline"
	"quern/tensor"
)

// folder is a local folder as a model.FileSet. It remembers which files were
// opened, hashes them on demand and notices when they change.
type folder struct {
	root  string
	name  string
	cache *Digests

	read   atomic.Int64
	mu     sync.Mutex
	opened map[string]*opened
	listed []model.FileInfo
}

type opened struct {
	stat fs.FileInfo
	blob *tensor.FileBlob // nil when the file was read whole
	sha  digest.Digest
	has  bool
}

// watched counts the bytes that are read through it. When reading fails it looks
// whether the file has changed, which is the better message then.
type watched struct {
	tensor.Blob
	n    *atomic.Int64
	full string
	was  fs.FileInfo
}

func (w watched) ReadAt(ctx context.Context, p []byte, off int64) error {
	w.n.Add(int64(len(p)))
	err := w.Blob.ReadAt(ctx, p, off)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if changed := unchanged(w.full, w.was); changed != nil {
		err = changed
	}
	return pipeline.SourceFault(err)
}

func openFolder(root string, cache *Digests) (*folder, error) {
	st, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s: not a folder; a single file goes under file: or gguf:", root)
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	return &folder{root: root, name: filepath.Base(abs), cache: cache, opened: map[string]*opened{}}, nil
}

// maxEntries bounds the listing of a folder that is no model.
const maxEntries = 100_000

func (d *folder) Name() string { return d.name }

// List gives the folder's regular files two levels deep, hidden ones left out.
// Links count as what they point to.
func (d *folder) List(ctx context.Context) ([]model.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listed != nil {
		return d.listed, nil
	}
	var out []model.FileInfo
	var walk func(rel string, depth int) error
	walk = func(rel string, depth int) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		entries, err := os.ReadDir(filepath.Join(d.root, filepath.FromSlash(rel)))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue
			}
			p := path.Join(rel, e.Name())
			full := filepath.Join(d.root, filepath.FromSlash(p))
			st, err := os.Stat(full)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a dangling link, as a cache that was cleaned leaves
			}
			if err != nil {
				return err
			}
			switch {
			case st.IsDir() && depth < 2 && e.Type()&fs.ModeSymlink == 0:
				if err := walk(p, depth+1); err != nil {
					return err
				}
			case st.Mode().IsRegular():
				fi := model.FileInfo{Path: p, Size: st.Size()}
				if sum, ok := d.lookup(full, st); ok {
					fi.SHA256 = sum.Hex()
				}
				out = append(out, fi)
			}
			if len(out) > maxEntries {
				return fmt.Errorf("%s: over %d files; is this a model's folder?", d.root, maxEntries)
			}
		}
		return nil
	}
	if err := walk("", 0); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b model.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	d.listed = out
	return out, nil
}

func (d *folder) lookup(full string, st fs.FileInfo) (digest.Digest, bool) {
	abs, err := filepath.Abs(full)
	if err != nil {
		return digest.Digest{}, false
	}
	return d.cache.known(abs, st)
}

// full maps a slash path inside the folder to a name on this machine.
func (d *folder) full(p string) (string, error) {
	if !fs.ValidPath(p) || p == "." {
		return "", fmt.Errorf("%q: %w: not a path inside %s", p, fs.ErrInvalid, d.root)
	}
	return filepath.Join(d.root, filepath.FromSlash(p)), nil
}

func (d *folder) ReadFile(ctx context.Context, p string, limit int64) ([]byte, error) {
	full, err := d.full(p)
	if err != nil {
		return nil, err
	}
	b, st, err := readWhole(ctx, full, limit)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.opened[p]; !ok {
		d.opened[p] = &opened{stat: st, sha: digest.Of(b), has: true}
	}
	return b, nil
}

// readWhole reads a file that must not be larger than limit.
func readWhole(ctx context.Context, full string, limit int64) ([]byte, fs.FileInfo, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	f, err := os.Open(full)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s: not a regular file", full)
	}
	if st.Size() > limit {
		return nil, nil, fmt.Errorf("%s: %d bytes, more than the %d that a file of its kind may have", full, st.Size(), limit)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", full, err)
	}
	if int64(len(b)) > limit {
		return nil, nil, fmt.Errorf("%s: grew past %d bytes while it was read", full, limit)
	}
	return b, st, nil
}

func (d *folder) Open(ctx context.Context, p string) (tensor.Blob, error) {
	full, err := d.full(p)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o, ok := d.opened[p]; ok && o.blob != nil {
		return watched{o.blob, &d.read, full, o.stat}, nil
	}
	st, err := os.Stat(full)
	if err != nil {
		return nil, err
	}
	if o, ok := d.opened[p]; ok && !sameState(st, o.stat) {
		return nil, changed(full, o.stat, st) // since it was read whole
	}
	blob, err := tensor.OpenFile(full)
	if err != nil {
		return nil, err
	}
	o := &opened{stat: st, blob: blob}
	o.sha, o.has = d.lookup(full, st)
	d.opened[p] = o
	return watched{blob, &d.read, full, st}, nil
}

// used lists the opened files by path.
func (d *folder) used() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]string, 0, len(d.opened))
	for p := range d.opened {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func (d *folder) file(p string) *opened {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened[p]
}

// hash computes the digests that are missing.
func (d *folder) hash(ctx context.Context) error {
	for _, p := range d.used() {
		o := d.file(p)
		if o.has || o.blob == nil {
			continue
		}
		full, err := d.full(p)
		if err != nil {
			return err
		}
		abs, err := filepath.Abs(full)
		if err != nil {
			return err
		}
		sum, err := d.cache.sum(ctx, abs, o.stat, o.blob)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := unchanged(full, o.stat); err != nil {
			return err
		}
		if err != nil {
			return fmt.Errorf("%s: %w", full, err)
		}
		d.mu.Lock()
		o.sha, o.has = sum, true
		d.mu.Unlock()
	}
	return nil
}

// sourceFiles lists what was opened.
func (d *folder) sourceFiles() []pipeline.SourceFile {
	var out []pipeline.SourceFile
	for _, p := range d.used() {
		o := d.file(p)
		f := pipeline.SourceFile{Path: p, Size: o.stat.Size()}
		if o.has {
			f.SHA256 = o.sha.Hex()
		}
		out = append(out, f)
	}
	return out
}

// local lists the absolute names of what was opened.
func (d *folder) local() []string {
	var out []string
	for _, p := range d.used() {
		if full, err := d.full(p); err == nil {
			if abs, err := filepath.Abs(full); err == nil {
				out = append(out, abs)
			}
		}
	}
	return out
}

// check fails when an opened file is no longer what it was.
func (d *folder) check() error {
	for _, p := range d.used() {
		full, err := d.full(p)
		if err != nil {
			return err
		}
		if err := unchanged(full, d.file(p).stat); err != nil {
			return err
		}
	}
	return nil
}

// ErrChanged marks a local file that was written to during a build.
var ErrChanged = errors.New("the file changed during the build")

func unchanged(full string, was fs.FileInfo) error {
	st, err := os.Stat(full)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	if !sameState(st, was) {
		return changed(full, was, st)
	}
	return nil
}

// sameState: the same file, also after a rename over it, with no write between.
func sameState(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

func changed(full string, was, is fs.FileInfo) error {
	return fmt.Errorf("%s: %w: %d bytes of %s before, %d bytes of %s now; build again when it is at rest",
		full, ErrChanged, was.Size(), was.ModTime().UTC().Format("15:04:05.000"), is.Size(), is.ModTime().UTC().Format("15:04:05.000"))
}

func (d *folder) close() error {
	var errs []error
	for _, p := range d.used() {
		if o := d.file(p); o.blob != nil {
			errs = append(errs, o.blob.Close())
		}
	}
	return errors.Join(errs...)
}

package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"quern/internal/digest"
	"quern/pipeline"
	"quern/tensor"
)

// textFolder is a folder of texts. Its files are opened one after the other, as
// they are read, since there may be any number of them.
type textFolder struct {
	root  string
	cache *Digests
	files []textFile

	mu   sync.Mutex
	sums map[string]digest.Digest
}

type textFile struct {
	path string // slashes, below root
	full string
	stat fs.FileInfo
}

// openTexts lists the files of a folder and of those below it, in the order of
// their paths. What begins with a dot, links and what is no regular file are left
// out.
func openTexts(root string, cache *Digests) (*pipeline.Source, error) {
	d := &textFolder{root: root, cache: cache, sums: map[string]digest.Digest{}}
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p != root && strings.HasPrefix(e.Name(), ".") {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() {
			return nil
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		full, err := filepath.Abs(p)
		if err != nil {
			return err
		}
		d.files = append(d.files, textFile{filepath.ToSlash(rel), full, st})
		if len(d.files) > maxEntries {
			return fmt.Errorf("%s: over %d files; put texts together into larger files", root, maxEntries)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(d.files) == 0 {
		return nil, fmt.Errorf("%s: no files in the folder, where texts are wanted", root)
	}
	slices.SortFunc(d.files, func(a, b textFile) int { return strings.Compare(a.path, b.path) })
	src := &pipeline.Source{Check: d.check}
	for _, f := range d.files {
		if sum, ok := cache.known(f.full, f.stat); ok {
			d.sums[f.path] = sum
		}
		src.Local = append(src.Local, f.full)
		src.Texts = append(src.Texts, pipeline.Text{Name: f.path, Open: func(context.Context) (io.ReadCloser, error) { return d.open(f) }})
	}
	src.Files = d.sourceFiles()
	src.Digest = func(ctx context.Context) error {
		if err := d.hash(ctx); err != nil {
			return err
		}
		src.Files = d.sourceFiles()
		return nil
	}
	return src, nil
}

func (d *textFolder) open(f textFile) (io.ReadCloser, error) {
	r, err := os.Open(f.full)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	if st, err := r.Stat(); err != nil || !sameState(st, f.stat) {
		if err == nil {
			err = changed(f.full, f.stat, st)
		}
		return nil, pipeline.SourceFault(errors.Join(err, r.Close()))
	}
	return r, nil
}

func (d *textFolder) hash(ctx context.Context) error {
	for _, f := range d.files {
		d.mu.Lock()
		_, ok := d.sums[f.path]
		d.mu.Unlock()
		if ok {
			continue
		}
		sum, err := d.sum(ctx, f)
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.sums[f.path] = sum
		d.mu.Unlock()
	}
	return nil
}

func (d *textFolder) sum(ctx context.Context, f textFile) (digest.Digest, error) {
	blob, err := tensor.OpenFile(f.full)
	if err != nil {
		return digest.Digest{}, err
	}
	defer blob.Close()
	sum, err := d.cache.sum(ctx, f.full, f.stat, blob)
	if ctx.Err() != nil {
		return sum, context.Cause(ctx)
	}
	if err := unchanged(f.full, f.stat); err != nil {
		return sum, err
	}
	return sum, err
}

func (d *textFolder) sourceFiles() []pipeline.SourceFile {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []pipeline.SourceFile
	for _, f := range d.files {
		s := pipeline.SourceFile{Path: f.path, Size: f.stat.Size()}
		if sum, ok := d.sums[f.path]; ok {
			s.SHA256 = sum.Hex()
		}
		out = append(out, s)
	}
	return out
}

func (d *textFolder) check() error {
	for _, f := range d.files {
		if err := unchanged(f.full, f.stat); err != nil {
			return err
		}
	}
	return nil
}

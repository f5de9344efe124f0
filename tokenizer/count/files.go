package count

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files lists the texts at a path: the file itself, or the files of a folder and
// of those below it, in the order of their paths. What begins with a dot, links
// and what is no regular file are left out of folders.
func Files(path string) ([]File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	open := func(p string) func(context.Context) (io.ReadCloser, error) {
		return func(context.Context) (io.ReadCloser, error) { return os.Open(p) }
	}
	if !st.IsDir() {
		return []File{{filepath.Base(path), open(path)}}, nil
	}
	var out []File
	err = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p != path && strings.HasPrefix(e.Name(), ".") {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if e.Type().IsRegular() {
			rel, err := filepath.Rel(path, p)
			if err != nil {
				return err
			}
			out = append(out, File{filepath.ToSlash(rel), open(p)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %w: no files in the folder", path, ErrCorpus)
	}
	return out, nil
}

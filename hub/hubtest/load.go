package hubtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// lfsSuffixes are those that the public hub keeps in large file storage by
// default.
var lfsSuffixes = []string{".bin", ".gguf", ".h5", ".model", ".msgpack", ".npy", ".npz", ".onnx", ".ot", ".parquet", ".pt", ".pth", ".safetensors", ".tflite", ".zip"}

// lfsSize is the length from which any file is.
const lfsSize = 10 << 20

// LoadRepo makes a repository of one commit from the files of a folder.
// Content is read from disk when it is asked for.
func LoadRepo(id, dir string) (*Repo, error) {
	files := map[string]*File{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		st, err := f.Stat()
		if err != nil {
			f.Close()
			return err
		}
		large := st.Size() >= lfsSize || slices.Contains(lfsSuffixes, strings.ToLower(filepath.Ext(path)))
		files[filepath.ToSlash(rel)] = &File{Reader: f, Size: st.Size(), LFS: large}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no files", dir)
	}
	r := NewRepo(id)
	r.Commit(files)
	return r, nil
}

// LoadRepos makes a repository of every ORG/NAME folder below root.
func LoadRepos(root string) ([]*Repo, error) {
	dirs, err := filepath.Glob(filepath.Join(root, "*", "*"))
	if err != nil {
		return nil, err
	}
	var out []*Repo
	for _, dir := range dirs {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			continue
		}
		id := filepath.Base(filepath.Dir(dir)) + "/" + filepath.Base(dir)
		r, err := LoadRepo(id, dir)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no ORG/NAME folders", root)
	}
	return out, nil
}

package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"quern/internal/atomicfile"
	"quern/internal/digest"
)

// Lock is what a build wrote and what it was made from. The file of a recipe
// x.yaml is x.lock beside it.
type Lock struct {
	Version int            `json:"version"`
	Recipe  digest.Digest  `json:"recipe"` // of the canonical recipe
	Sources []SourceRecord `json:"sources"`
	Outputs []LockOutput   `json:"outputs"`
}

// LockOutput is one file of a Lock.
type LockOutput struct {
	File    string         `json:"file"`
	Size    int64          `json:"size"`
	SHA256  digest.Digest  `json:"sha256"`
	Tensors []TensorRecord `json:"tensors"`
}

const lockVersion = 1

// maxLock bounds a lock file that is read; a tensor takes about 120 bytes.
const maxLock = 64 << 20

// LockPath is the lock file of a recipe file.
func LockPath(recipe string) string {
	ext := filepath.Ext(recipe)
	if strings.EqualFold(ext, ".yaml") || strings.EqualFold(ext, ".yml") {
		recipe = strings.TrimSuffix(recipe, ext)
	}
	return recipe + ".lock"
}

// ReadLock reads a lock file. A missing file is fs.ErrNotExist, one that nothing
// can be compared with is ErrLocked.
func ReadLock(path string) (*Lock, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxLock {
		return nil, unusableLock{fmt.Errorf("%s: %d bytes; a lock file has at most %d", path, st.Size(), int64(maxLock))}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var l Lock
	if err := dec.Decode(&l); err != nil {
		return nil, unusableLock{fmt.Errorf("%s: not a lock file: %w; delete it and build without --locked to make a new one", path, err)}
	}
	if l.Version != lockVersion {
		return nil, unusableLock{fmt.Errorf("%s: lock version %d; this quern reads version %d", path, l.Version, lockVersion)}
	}
	return &l, nil
}

func (l *Lock) encode() ([]byte, error) {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// writeLock puts the lock at path unless it stands there already.
func writeLock(path string, l *Lock, opt atomicfile.Options) error {
	b, err := l.encode()
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, b) {
		return nil
	}
	return atomicfile.WriteFile(path, b, opt)
}

// folderWritable reports whether files may be put into a folder by its
// permissions. The bits are asked as well as the system, since root may write
// where the owner has said that nobody should.
func folderWritable(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.IsDir() && st.Mode().Perm()&0o222 != 0
}

// unusableLock is a lock file that nothing can be compared with.
type unusableLock struct{ error }

func (unusableLock) Is(target error) bool { return target == ErrLocked }
func (u unusableLock) Unwrap() error      { return u.error }

// findLock gives the lock file to compare with: beside the recipe, else in the
// output folder, where it goes when the recipe's folder is read-only.
func findLock(paths []string) (*Lock, string, error) {
	for _, p := range paths {
		l, err := ReadLock(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return l, p, err
	}
	return nil, "", fmt.Errorf("%w: there is no lock file (%s); build once without --locked to make it", ErrLocked, strings.Join(paths, " or "))
}

// checkSources compares what is about to be read with the lock. Files without a
// known digest are compared by size now and by digest when the build is done.
func (l *Lock) checkSources(path string, sources []SourceRecord) error {
	old := map[string]SourceRecord{}
	for _, s := range l.Sources {
		old[s.Name] = s
	}
	for _, s := range sources {
		o, ok := old[s.Name]
		if !ok {
			return fmt.Errorf("%w %s: source %s is not in it", ErrLocked, path, s.Name)
		}
		delete(old, s.Name)
		if o.Commit != s.Commit {
			return fmt.Errorf("%w %s: source %s is at commit %s, locked to %s", ErrLocked, path, s.Name, s.Commit, o.Commit)
		}
		was := map[string]SourceFile{}
		for _, f := range o.Files {
			was[f.Path] = f
		}
		for _, f := range s.Files {
			w, ok := was[f.Path]
			switch {
			case !ok:
				return fmt.Errorf("%w %s: source %s: file %s is not in it", ErrLocked, path, s.Name, f.Path)
			case w.Size != f.Size:
				return fmt.Errorf("%w %s: source %s: file %s has %d bytes, locked to %d", ErrLocked, path, s.Name, f.Path, f.Size, w.Size)
			case f.SHA256 != "" && w.SHA256 != "" && f.SHA256 != w.SHA256, f.GitOID != "" && w.GitOID != "" && f.GitOID != w.GitOID:
				return fmt.Errorf("%w %s: source %s: file %s has SHA-256 %s, locked to %s", ErrLocked, path, s.Name, f.Path, f.SHA256, w.SHA256)
			}
			delete(was, f.Path)
		}
		for _, f := range o.Files {
			if _, left := was[f.Path]; left {
				return fmt.Errorf("%w %s: source %s: file %s is locked but not read", ErrLocked, path, s.Name, f.Path)
			}
		}
	}
	for _, s := range l.Sources {
		if _, left := old[s.Name]; left {
			return fmt.Errorf("%w %s: source %s is locked but not in the recipe", ErrLocked, path, s.Name)
		}
	}
	return nil
}

// checkOutputs compares what was written with the lock.
func (l *Lock) checkOutputs(path string, outs []LockOutput) error {
	old := map[string]LockOutput{}
	for _, o := range l.Outputs {
		old[o.File] = o
	}
	for _, o := range outs {
		w, ok := old[o.File]
		if !ok {
			return fmt.Errorf("%w %s: output %s is not in it", ErrLocked, path, o.File)
		}
		if w.SHA256 == o.SHA256 && w.Size == o.Size {
			continue
		}
		was := map[string]digest.Digest{}
		for _, t := range w.Tensors {
			was[t.Name] = t.SHA256
		}
		for _, t := range o.Tensors {
			if was[t.Name] != t.SHA256 {
				return fmt.Errorf("%w %s: output %s has SHA-256 %s, locked to %s; the first tensor that differs is %s",
					ErrLocked, path, o.File, o.SHA256.Hex(), w.SHA256.Hex(), t.Name)
			}
		}
		return fmt.Errorf("%w %s: output %s has SHA-256 %s, locked to %s; the tensors are equal, so it is the metadata that differs",
			ErrLocked, path, o.File, o.SHA256.Hex(), w.SHA256.Hex())
	}
	return nil
}

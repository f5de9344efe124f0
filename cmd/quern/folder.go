package main

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/pack"
	"quern/internal/atomicfile"
	"quern/pipeline"
)

// folder is where the files of an artifact go, under names that a stranger has
// chosen: nothing gets out of it, by .. or by a link that is there, and nothing
// that is there is replaced unless that was asked for.
type folder struct {
	dir     string
	root    *os.Root
	replace bool
	before  func(atomicfile.Step, string) error
	files   map[artifacts.Digest][]*pulledFile // to be fetched, of each blob those that are not packed first
	planned map[string]*pulledFile             // by their names in small letters, those in archives too
}

func newFolder(c *cli.Context, s *local.Store, dir string, replace bool) (*folder, error) {
	if s != nil {
		if err := s.Outside(filepath.Join(dir, "x")); err != nil {
			return nil, fmt.Errorf("--out %s: %w", dir, err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &folder{
		dir: dir, root: root, replace: replace, before: programOf(c).hooks.before,
		files: map[artifacts.Digest][]*pulledFile{}, planned: map[string]*pulledFile{},
	}, nil
}

func (o *folder) path(file string) string { return filepath.Join(o.dir, filepath.FromSlash(file)) }

// plan looks at the place of a file before anything is fetched. A file that is
// there with the same bytes stays. No file takes the place of another one of the
// artifact, as one out of an archive might.
func (o *folder) plan(f *pulledFile) error {
	if f.packed {
		return nil // its own files are looked at when it is unpacked
	}
	low := strings.ToLower(f.File)
	if was := o.planned[low]; was != nil && (was.File != f.File || was.SHA256 != f.SHA256) {
		return pipeline.SourceFault(fmt.Errorf("%w: two layers have files %q and %q, with other bytes or letters", pack.ErrPath, was.File, f.File))
	}
	o.planned[low] = f
	st, err := o.root.Lstat(filepath.FromSlash(f.File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.path(f.File), err)
	}
	if st.Mode().IsRegular() && st.Size() == f.Size {
		file, err := o.root.Open(filepath.FromSlash(f.File))
		if err != nil {
			return err
		}
		defer file.Close()
		h := artifacts.NewHash()
		if _, err := io.Copy(h, file); err == nil && artifacts.SumHash(h) == f.SHA256 {
			f.Path, f.Method = o.path(f.File), "present"
			return nil
		}
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", o.path(f.File), atomicfile.ErrNotRegular)
	}
	if !o.replace {
		return fmt.Errorf("%s: %w with other bytes; choose another folder, or --replace replaces it", o.path(f.File), artifacts.ErrExists)
	}
	return nil
}

// parent makes the folder that a file goes into.
func (o *folder) parent(f *pulledFile) error {
	dir := path.Dir(f.File)
	if dir == "." || f.packed {
		return nil
	}
	if err := o.root.MkdirAll(filepath.FromSlash(dir), 0o755); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(o.dir, filepath.FromSlash(dir)), err)
	}
	// A link that is there may lead out: a root does not follow those.
	if _, err := o.root.Stat(filepath.FromSlash(dir)); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(o.dir, filepath.FromSlash(dir)), err)
	}
	return nil
}

// want enters a file that is to be fetched, and reports whether its blob is not to
// be fetched already.
func (o *folder) want(f *pulledFile) bool {
	same := o.files[f.SHA256]
	if f.packed {
		o.files[f.SHA256] = append(same, f)
	} else {
		o.files[f.SHA256] = append([]*pulledFile{f}, same...)
	}
	return len(same) == 0
}

// The folder has no blobs to offer, so that all are fetched.

func (o *folder) Open(context.Context, artifacts.Digest) (artifacts.Blob, error) {
	return nil, artifacts.ErrNotFound
}

func (o *folder) Stat(context.Context, artifacts.Digest) (artifacts.Info, error) {
	return artifacts.Info{}, artifacts.ErrNotFound
}

func (o *folder) List(context.Context) ([]artifacts.Info, error) { return nil, nil }

// Start opens the file that a blob goes into.
func (o *folder) Start(ctx context.Context, d artifacts.Descriptor) (artifacts.BlobWriter, error) {
	f := o.files[d.Digest][0]
	create := func() (*atomicfile.File, error) { return atomicfile.Create(o.path(f.File), o.options(d.Size)) }
	if f.packed {
		create = func() (*atomicfile.File, error) { return atomicfile.CreateIn(o.dir, o.options(d.Size)) }
	}
	w, err := create()
	if err != nil {
		return nil, err
	}
	return &folderWriter{o: o, ctx: ctx, f: f, w: w, h: artifacts.NewHash()}, nil
}

func (o *folder) options(size int64) atomicfile.Options {
	return atomicfile.Options{Size: size, NoReplace: !o.replace, Before: o.before}
}

type folderWriter struct {
	o   *folder
	ctx context.Context
	f   *pulledFile
	w   *atomicfile.File
	h   hash.Hash
	n   int64
}

func (w *folderWriter) Size() int64           { return w.n }
func (w *folderWriter) Sum() artifacts.Digest { return artifacts.SumHash(w.h) }
func (w *folderWriter) Abort()                { w.w.Abort() }

func (w *folderWriter) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.w.Write(p)
	w.h.Write(p[:n])
	w.n += int64(n)
	return n, err
}

// Commit gives the file its name, and copies or unpacks it for the other names that
// the artifact has for the same bytes.
func (w *folderWriter) Commit(want artifacts.Digest) (artifacts.Descriptor, error) {
	d := artifacts.Descriptor{Digest: w.Sum(), Size: w.n}
	if err := artifacts.CheckPromise(d, artifacts.BlobOptions{Size: w.f.Size}, want); err != nil {
		w.w.Abort()
		return d, err
	}
	same := w.o.files[d.Digest]
	if w.f.packed {
		defer w.w.Abort()
		for _, f := range same {
			if err := w.o.unpack(w.ctx, f, w.w); err != nil {
				return d, err
			}
		}
		return d, nil
	}
	if err := w.w.Commit(); err != nil {
		return d, err
	}
	w.f.Path, w.f.Method = w.o.path(w.f.File), "fetched"
	for _, f := range same[1:] {
		if err := w.o.again(w.ctx, w.f, f); err != nil {
			return d, err
		}
	}
	return d, nil
}

// again copies or unpacks a file that was fetched for another of its names.
func (o *folder) again(ctx context.Context, from, to *pulledFile) error {
	src, err := os.Open(from.Path)
	if err != nil {
		return err
	}
	defer src.Close()
	if to.packed {
		return o.unpack(ctx, to, src)
	}
	if err := o.parent(to); err != nil {
		return err
	}
	if err := atomicfile.Copy(o.path(to.File), src, to.Size, o.options(to.Size)); err != nil {
		return err
	}
	to.Path, to.Method = o.path(to.File), "copy"
	return nil
}

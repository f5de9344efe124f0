package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"quern/artifacts"
	"quern/internal/atomicfile"
)

// ExportMethod says how a file gets its bytes from the store.
type ExportMethod string

// The methods. Each falls back to the next one that works, down to ExportCopy.
const (
	// ExportAuto is a reflink or else a copy: the file is the user's own.
	ExportAuto ExportMethod = ""
	// ExportLink is a hard link, else a reflink, else a copy. A hard link
	// takes no space at all, but whoever changes the file changes the store;
	// it is read-only for that reason.
	ExportLink ExportMethod = "link"
	// ExportReflink shares blocks until one side is changed, where the file
	// system can (btrfs, XFS, bcachefs).
	ExportReflink ExportMethod = "reflink"
	// ExportCopy copies every byte.
	ExportCopy ExportMethod = "copy"
)

// ExportOptions change how a blob leaves the store.
type ExportOptions struct {
	Method ExportMethod
	// Replace allows an existing file to be replaced.
	Replace bool
}

// Export puts a blob under a file name of the user's. The bytes are verified,
// whatever the method. It returns the method that was used: ExportLink,
// ExportReflink or ExportCopy. An existing file is artifacts.ErrExists.
func (s *Store) Export(ctx context.Context, d artifacts.Descriptor, path string, opt ExportOptions) (ExportMethod, error) {
	used, err := s.export(ctx, d, path, opt)
	switch {
	case errors.Is(err, fs.ErrExist):
		return "", fmt.Errorf("export %s: %w; choose another name or ask to replace it", path, artifacts.ErrExists)
	case err != nil:
		return "", fmt.Errorf("export %s: %w", path, err)
	}
	return used, nil
}

func (s *Store) export(ctx context.Context, d artifacts.Descriptor, path string, opt ExportOptions) (ExportMethod, error) {
	if err := s.outside(path); err != nil {
		return "", err
	}
	fo := s.fileOptions()
	fo.NoReplace = !opt.Replace
	switch opt.Method {
	case ExportAuto, ExportReflink, ExportCopy:
	case ExportLink:
		if err := s.exportLink(ctx, d, path, fo); !errors.Is(err, errNoLink) {
			return ExportLink, err
		}
	default:
		return "", fmt.Errorf("unknown method %q", opt.Method)
	}
	fo.Size = d.Size
	f, err := atomicfile.Create(path, fo)
	if err != nil {
		return "", err
	}
	defer f.Abort()
	used := ExportReflink
	if opt.Method == ExportCopy || s.clone(d, f) != nil {
		used = ExportCopy
		if err := artifacts.Copy(ctx, f, s, d); err != nil {
			return "", err
		}
	} else if got, err := artifacts.HashRange(ctx, f, 0, d.Size); err != nil || got != d.Digest {
		if err == nil {
			err = fmt.Errorf("blob %s: %w: its bytes have digest %s", d.Digest, artifacts.ErrCorrupt, got)
		}
		return "", err
	}
	return used, f.Commit()
}

func (s *Store) clone(d artifacts.Descriptor, f *atomicfile.File) error {
	src, err := os.Open(s.blobPath(d.Digest))
	if err != nil {
		return err
	}
	defer src.Close()
	return f.CloneFrom(src)
}

// errNoLink says that a hard link cannot be made, for reasons that a copy does
// not have.
var errNoLink = errors.New("no hard link")

func (s *Store) exportLink(ctx context.Context, d artifacts.Descriptor, path string, fo atomicfile.Options) error {
	if err := artifacts.Copy(ctx, io.Discard, s, d); err != nil {
		return err
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return atomicfile.ErrNotRegular
	}
	err := atomicfile.Link(s.blobPath(d.Digest), path, fo)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Another file system, one without links, or too many links to one file.
	return fmt.Errorf("%w: %w", errNoLink, err)
}

// Outside refuses a path in the store itself, with artifacts.ErrName.
func (s *Store) Outside(path string) error { return s.outside(path) }

// outside refuses a path in the store itself.
func (s *Store) outside(path string) error {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return err
	}
	dir = realPath(dir)
	root := realPath(s.dir)
	if dir == root || strings.HasPrefix(dir, root+string(filepath.Separator)) {
		return fmt.Errorf("%w: it is inside the store", artifacts.ErrName)
	}
	return nil
}

func realPath(p string) string {
	if r, err := filepath.EvalSymlinks(p); err == nil {
		return r
	}
	return p
}

// ExportLayout writes an image and everything that it refers to into a new
// folder, as an OCI layout of its own with one name. The folder must be missing
// or empty, or a layout if Replace is set: then the blobs are added to it and
// the name is put there. A new layout that fails leaves nothing.
func (s *Store) ExportLayout(ctx context.Context, name string, d artifacts.Descriptor, dir string, opt ExportOptions) error {
	err := s.exportLayout(ctx, name, d, dir, opt)
	if err != nil {
		return fmt.Errorf("export %s: %w", dir, err)
	}
	return nil
}

func (s *Store) exportLayout(ctx context.Context, name string, d artifacts.Descriptor, dir string, opt ExportOptions) error {
	if err := s.outside(filepath.Join(dir, "x")); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if len(entries) > 0 {
		if !opt.Replace {
			return fmt.Errorf("%w and is not empty; choose another folder or ask to replace", artifacts.ErrExists)
		}
		dst, err := Open(ctx, dir, Options{Before: s.opt.Before})
		if err != nil {
			return err
		}
		if err := artifacts.CopyImage(ctx, dst, s, d); err != nil {
			return err
		}
		return dst.Tag(ctx, name, d)
	}
	err = s.newLayout(ctx, name, d, dir, opt)
	if err != nil && missing {
		os.Remove(dir)
	}
	return err
}

// newLayout fills an empty folder; oci-layout, written last, makes it a layout.
func (s *Store) newLayout(ctx context.Context, name string, d artifacts.Descriptor, dir string, opt ExportOptions) (err error) {
	blobs, err := artifacts.Closure(ctx, s, d)
	if err != nil {
		return err
	}
	index, err := artifacts.SingleIndex(name, d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, blobsDir), 0o755); err != nil {
		return err
	}
	var made []string
	defer func() {
		if err == nil {
			return
		}
		for _, p := range made {
			os.Remove(p)
		}
		// Only if empty, which they are if they were ours.
		os.Remove(filepath.Join(dir, blobsDir))
		os.Remove(filepath.Join(dir, "blobs"))
	}()
	for _, b := range blobs {
		p := filepath.Join(dir, blobsDir, b.Digest.Hex())
		if _, err := s.export(ctx, b, p, ExportOptions{Method: opt.Method}); err != nil {
			return err
		}
		made = append(made, p)
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{indexFile, index}, {layoutFile, []byte(artifacts.LayoutFile)}} {
		p := filepath.Join(dir, f.name)
		if err := atomicfile.WriteFile(p, f.data, s.fileOptions()); err != nil {
			return err
		}
		made = append(made, p)
	}
	return nil
}

// ExportTar writes an image as a tar of an OCI layout. See artifacts.WriteTar.
func (s *Store) ExportTar(ctx context.Context, name string, d artifacts.Descriptor, path string, opt ExportOptions) error {
	err := s.exportTar(ctx, name, d, path, opt)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("export %s: %w; choose another name or ask to replace it", path, artifacts.ErrExists)
	case err != nil:
		return fmt.Errorf("export %s: %w", path, err)
	}
	return nil
}

func (s *Store) exportTar(ctx context.Context, name string, d artifacts.Descriptor, path string, opt ExportOptions) error {
	if err := s.outside(path); err != nil {
		return err
	}
	fo := s.fileOptions()
	fo.NoReplace = !opt.Replace
	f, err := atomicfile.Create(path, fo)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := artifacts.WriteTar(ctx, f, s, name, d); err != nil {
		return err
	}
	return f.Commit()
}

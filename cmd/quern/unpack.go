package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"quern/artifacts"
	"quern/artifacts/pack"
	"quern/internal/atomicfile"
	"quern/internal/inflate"
	"quern/pipeline"
)

const (
	// maxEntries is how many files a packed folder may have.
	maxEntries = 100_000
	// maxGrowth is how much longer than the archive its files may be: more than
	// models compress, less than it takes to fill a disk by surprise.
	maxGrowth = 200
)

// unpack puts the files of a packed folder where their names say, below the folder
// of --out. The archive is read twice: nothing is written before all names are
// known to be good. Files and folders are all that an archive may have; owners,
// times and modes in it count nothing.
func (o *folder) unpack(ctx context.Context, f *pulledFile, r io.ReaderAt) error {
	var entries []*pulledFile
	var names []pack.File
	err := o.eachEntry(ctx, f, r, func(e *pulledFile, content io.Reader) error {
		h := artifacts.NewHash()
		if _, err := io.Copy(h, content); err != nil {
			return err
		}
		e.SHA256 = artifacts.SumHash(h)
		entries, names = append(entries, e), append(names, pack.File{Path: e.File})
		return o.plan(e)
	})
	if err != nil {
		return err
	}
	if err := pack.CheckPaths(names); err != nil {
		return pipeline.SourceFault(fmt.Errorf("%s: %w", f.File, err))
	}
	err = o.eachEntry(ctx, f, r, func(again *pulledFile, content io.Reader) error {
		if len(entries) == 0 || entries[0].File != again.File || entries[0].Size != again.Size {
			return pipeline.SourceFault(fmt.Errorf("%s: it changed while it was read", f.File))
		}
		e := entries[0]
		entries = entries[1:]
		if e.Method == "present" {
			return nil
		}
		if err := o.parent(e); err != nil {
			return err
		}
		return atomicfile.Copy(o.path(e.File), content, e.Size, o.options(e.Size))
	})
	if err == nil {
		f.Path, f.Method = o.dir, "unpacked"
	}
	return err
}

// eachEntry goes through the files of an archive and checks their names.
func (o *folder) eachEntry(ctx context.Context, f *pulledFile, r io.ReaderAt, do func(*pulledFile, io.Reader) error) error {
	bad := func(err error) error { return pipeline.SourceFault(fmt.Errorf("%s: %w", f.File, err)) }
	plain, done, err := inflate.NewReader(io.NewSectionReader(r, 0, f.Size))
	if err != nil {
		return bad(err)
	}
	defer done()
	left := f.Size*maxGrowth + 1<<20
	t := tar.NewReader(plain)
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return bad(err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		switch {
		case h.Typeflag == tar.TypeXGlobalHeader, h.Typeflag == tar.TypeDir && (name == "" || name == "."):
			continue
		case h.Typeflag == tar.TypeDir:
		case h.Typeflag != tar.TypeReg:
			return bad(fmt.Errorf("%w: %q is neither a file nor a folder", pack.ErrPath, h.Name))
		case n >= maxEntries:
			return bad(fmt.Errorf("more than %d files are in it", maxEntries))
		}
		if err := pack.CheckPaths([]pack.File{{Path: name}}); err != nil {
			return bad(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if left -= h.Size; left < 0 {
			return bad(fmt.Errorf("its files are over %d times as long as it is", maxGrowth))
		}
		e := &pulledFile{File: name, Size: h.Size}
		if err := do(e, &ctxReader{ctx, t}); err != nil {
			if errors.Is(err, inflate.ErrData) || errors.Is(err, io.ErrUnexpectedEOF) {
				return bad(err)
			}
			return err
		}
	}
}

// ctxReader ends with its context.
type ctxReader struct {
	ctx context.Context
	io.Reader
}

func (r *ctxReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}

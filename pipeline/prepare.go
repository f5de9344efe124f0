package pipeline

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"quern/artifacts/sink"
	"quern/internal/atomicfile"
)

// prepare checks what can fail before any work: folders, names that are taken,
// inputs that would be overwritten.
func (b *build) prepare() error {
	if err := b.routes(); err != nil {
		return err
	}
	guarded := b.guarded()
	for _, o := range b.outs {
		for _, path := range o.localTargets() {
			me := place(path)
			for _, g := range guarded {
				if g.is(me) {
					return fmt.Errorf("%w: target %s is %s; choose another", g.fault, path, g.what)
				}
			}
			me.what, me.fault = "a target of output "+o.layout.File, ErrOutput
			guarded = append(guarded, me)
		}
		if o.streamed() {
			continue
		}
		l, path := o.layout, o.path
		if err := b.makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		st, err := os.Stat(path)
		if err == nil && st.IsDir() {
			return fmt.Errorf("%w: %s is a folder; choose another name, or another folder with -o", ErrOutput, path)
		}
		if err == nil && !st.Mode().IsRegular() {
			return fmt.Errorf("%w: %s is no regular file; choose another name, or another folder with -o", ErrOutput, path)
		}
		me := place(path)
		for _, g := range guarded {
			if g.is(me) {
				return fmt.Errorf("%w: %s is %s; choose another name, or another folder with -o", g.fault, path, g.what)
			}
		}
		me.what, me.fault = "also output "+l.File, ErrOutput
		guarded = append(guarded, me)
	}
	return nil
}

// localTargets are the files of this machine that sinks write.
func (o *output) localTargets() []string {
	var out []string
	for _, t := range o.targets {
		if t.Kind == sink.File || t.Kind == sink.Flash {
			out = append(out, t.Path)
		}
	}
	return out
}

// guard is a file that an output must not be.
type guard struct {
	path  string      // absolute, links in its folder resolved
	info  os.FileInfo // nil when there is no such file yet
	what  string
	fault error
}

// place finds out what a path means.
func place(path string) guard {
	g := guard{path: path}
	if abs, err := filepath.Abs(path); err == nil {
		g.path = abs
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(g.path)); err == nil {
		g.path = filepath.Join(dir, filepath.Base(g.path))
	}
	if st, err := os.Stat(path); err == nil {
		g.info = st
	}
	return g
}

// is reports whether two names mean one file, or would on a file system that
// does not tell letter case apart.
func (g guard) is(o guard) bool {
	return strings.EqualFold(g.path, o.path) || g.info != nil && o.info != nil && os.SameFile(g.info, o.info)
}

func (b *build) guarded() []guard {
	var out []guard
	add := func(path, what string, fault error) {
		g := place(path)
		g.what, g.fault = what, fault
		out = append(out, g)
	}
	for _, s := range b.plan.Sources {
		for _, p := range s.Local {
			add(p, "file "+p+" of source "+s.Name, ErrSameFile)
		}
	}
	for _, p := range b.opt.Inputs {
		add(p, "the input "+p, ErrSameFile)
	}
	for _, p := range b.opt.LockPaths {
		add(p, "where the lock file goes", ErrOutput)
	}
	return out
}

// makeFolder makes a folder and those above it, and remembers them.
func (b *build) makeFolder(dir string) error {
	var missing []string
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		st, err := os.Stat(d)
		if err == nil && !st.IsDir() {
			return fmt.Errorf("%w: %s is a file, where a folder is needed; choose another folder with -o", ErrOutput, d)
		}
		if err == nil || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, d)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		err := os.Mkdir(missing[i], 0o755)
		if errors.Is(err, os.ErrExist) {
			continue // another process was quicker
		}
		if err != nil {
			return fmt.Errorf("output folder: %w", writeFault(missing[i], 0, err))
		}
		b.folders = append(b.folders, missing[i])
	}
	return nil
}

// removeFolders takes the folders back that a failed build has made, those that
// are empty.
func (b *build) removeFolders() {
	for i := len(b.folders) - 1; i >= 0; i-- {
		os.Remove(b.folders[i])
	}
}

// space says where the outputs do not fit the free space, as far as that can be
// known. It is a warning and no fault: space may become free meanwhile, and
// what is reserved for each file fails in time.
func (b *build) space() []string {
	var files, kept int64
	for _, o := range b.outs {
		if o.streamed() {
			continue // its targets are asked themselves
		}
		st, err := os.Stat(o.path)
		if o.cached && err == nil && st.Size() == o.layout.Size {
			continue // stands there already, in all likelihood
		}
		files += o.layout.Size
		if !o.cached && b.keeping() && !b.streams {
			kept += o.layout.Size
		}
	}
	return spaceNotes(b.opt.OutDir, files, b.opt.Store, kept)
}

// Space says where the outputs of a plan do not fit the free space of the
// output folder and of the store.
func (r *PlanReport) Space(outDir string, store Store) []string {
	var files, kept int64
	for _, o := range r.Outputs {
		if o.streamed {
			continue
		}
		files += o.Size
		if !o.Kept && store != nil {
			kept += o.Size
		}
	}
	return spaceNotes(outDir, files, store, kept)
}

func spaceNotes(outDir string, files int64, store Store, kept int64) []string {
	free, err := atomicfile.FreeBytes(existing(outDir))
	var storeFree int64
	known := false
	if kept > 0 {
		n, serr := store.FreeBytes()
		storeFree, known = n, serr == nil
	}
	// The same number twice: one file system, which both share.
	if err == nil && known && storeFree == free {
		files += kept
		known = false
	}
	var out []string
	if err == nil && files > free {
		out = append(out, fmt.Sprintf("%d bytes are needed and %d are free in folder %s; make room, or choose another with -o", files, free, outDir))
	}
	if known && kept > storeFree {
		out = append(out, fmt.Sprintf("%d bytes are needed and %d are free in the store; make room, choose another with --store, or keep nothing with --no-store", kept, storeFree))
	}
	return out
}

// existing is the nearest folder upwards that exists.
func existing(dir string) string {
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || d == filepath.Dir(d) {
			return d
		}
	}
}

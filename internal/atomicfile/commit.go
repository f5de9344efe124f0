package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Commit finishes the file under its final name. After an error the old file
// is untouched and nothing of the new one is left, with one exception: if only
// the sync of the folder failed the new file is there, whole, but a power cut
// may still bring the old one back.
func (w *File) Commit() error {
	if w.path == "" {
		w.Abort()
		return fmt.Errorf("write in %s: no final name (use CommitAs)", w.dir)
	}
	return w.CommitAs(w.path)
}

// CommitAs finishes the file under another name than planned, in a folder of
// the same file system.
func (w *File) CommitAs(path string) error {
	w.mu.Lock()
	if w.done {
		w.mu.Unlock()
		return fmt.Errorf("write %s: committed or aborted before", path)
	}
	w.done = true
	err := w.err
	w.mu.Unlock()
	if err == nil {
		err = w.finish(path)
	}
	if err != nil {
		w.keep = false
		w.drop()
		return fmt.Errorf("write %s: %w", path, err)
	}
	if w.lock != nil {
		w.lock.Close()
	}
	return syncDir(filepath.Dir(path), path, w.opt)
}

// finish makes the content durable and then gives it its name.
func (w *File) finish(path string) error {
	if w.opt.Size > 0 {
		st, err := w.f.Stat()
		if err != nil {
			return err
		}
		if st.Size() != w.opt.Size {
			return fmt.Errorf("%w: %d bytes, planned %d", ErrLength, st.Size(), w.opt.Size)
		}
	}
	if w.keep {
		st, err := w.f.Stat()
		if err == nil {
			err = w.f.Chmod(st.Mode().Perm() & w.opt.Mode) // what the umask has left of it
		}
		if err != nil {
			return err
		}
	}
	if err := w.opt.before(StepSync, path); err != nil {
		return err
	}
	if err := w.f.Sync(); err != nil {
		return err
	}
	if err := w.opt.before(StepRename, path); err != nil {
		return err
	}
	if w.tmp == "" {
		placed, err := w.giveName(path)
		if err != nil {
			return err
		}
		if placed {
			// The content is synced: a failing close can no longer lose it.
			w.f.Close()
			return nil
		}
	}
	if err := w.opt.before(StepClose, path); err != nil {
		return err
	}
	if err := w.f.Close(); err != nil {
		return err
	}
	return w.place(path)
}

// giveName links a file without a name: straight to its final name when that
// must be free, else to a temporary one beside it. Where links cannot be made
// the content is copied.
func (w *File) giveName(path string) (placed bool, err error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	target := path
	if !w.opt.NoReplace {
		if target, err = tempName(dir, base); err != nil {
			return false, err
		}
	}
	if err = w.opt.before(StepLink, path); err == nil {
		err = linkUnnamed(w.f, target)
	}
	switch {
	case err == nil && w.opt.NoReplace:
		return true, nil
	case err == nil:
		w.tmp = target
		return false, nil
	case errors.Is(err, fs.ErrExist):
		return false, fs.ErrExist
	}
	return false, w.copyToNamed(dir, base)
}

// copyToNamed goes on with a copy of the file that has a temporary name.
func (w *File) copyToNamed(dir, base string) error {
	n := &File{opt: w.opt}
	if err := n.createNamed(dir, base); err != nil {
		return err
	}
	_, err := io.Copy(n.f, io.NewSectionReader(w.f, 0, 1<<62))
	if err == nil {
		err = n.f.Sync()
	}
	if err != nil {
		n.drop()
		return err
	}
	w.f.Close()
	if w.lock != nil {
		w.lock.Close()
	}
	w.f, w.tmp, w.lock = n.f, n.tmp, n.lock
	return nil
}

// place moves the closed temporary file to its final name.
func (w *File) place(path string) error {
	if !w.opt.NoReplace {
		return rename(w.tmp, path)
	}
	// A hard link fails when the name exists, which a rename would not. Where
	// links are not to be had the check is made first: a lost race then
	// replaces a file of the same name, as a rename does.
	err := w.opt.before(StepLink, path)
	if err == nil {
		err = os.Link(w.tmp, path)
	}
	switch {
	case err == nil:
		os.Remove(w.tmp)
		return nil
	case errors.Is(err, fs.ErrExist):
		return fs.ErrExist
	}
	if _, serr := os.Lstat(path); serr == nil {
		return fs.ErrExist
	}
	return rename(w.tmp, path)
}

func syncDir(dir, path string, opt Options) error {
	if err := opt.before(StepSyncDir, path); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return SyncDir(dir)
}

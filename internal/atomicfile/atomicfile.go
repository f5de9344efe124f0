// Package atomicfile is the one place that puts bytes under a final file name.
//
// A file is written apart from its name in the same folder, checked for
// length, synced, closed, renamed and its folder synced. Until Commit returns
// nil the old file, if any, is untouched, and a failed or aborted write leaves
// nothing.
//
//	           Create          Write...   Commit
//	Linux      no name         ........   sync, link to temp name, close, rename, sync folder
//	elsewhere  temp name       ........   sync,                    close, rename, sync folder
//
// On Linux the unfinished file has no name at all, so that even a killed
// process leaves nothing of it. Elsewhere, and on file systems that cannot do
// that, a killed process leaves a file ".NAME.XXXXXXXX.quern-tmp". The next
// Create of the same NAME removes it: a lock that dies with the process tells
// it from files that are still being written.
package atomicfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// TempMark is part of every temporary name, so that cleaners and readers can
// tell unfinished files: ".NAME.XXXXXXXX.quern-tmp".
const TempMark = ".quern-tmp"

// IsTemp reports whether a base name is that of an unfinished file.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, TempMark)
}

// ErrLength marks a file whose written length is not the promised one.
var ErrLength = errors.New("written length differs from the planned one")

// ErrNotRegular marks a name that belongs to a folder or a device, which must
// not be replaced by a file.
var ErrNotRegular = errors.New("the name is taken by something that is not a regular file")

// Step is a part of a write that can fail, as Options.Before sees it.
type Step string

// The steps in the order in which a file goes through them.
const (
	StepCreate  Step = "create"
	StepWrite   Step = "write"
	StepSync    Step = "sync"
	StepClose   Step = "close"
	StepRename  Step = "rename"
	StepLink    Step = "link" // fails where there are no links; most writes go on without
	StepSyncDir Step = "sync folder"
	StepRemove  Step = "remove"
)

// Options change how a file is finished. The zero value is right for most.
type Options struct {
	// Mode is the permission of the final file; 0 means 0644. The umask
	// applies.
	Mode fs.FileMode
	// Size is the exact length promised, checked at Commit; negative or
	// zero means unknown. The disk space is reserved before the first byte
	// is written where the file system can do so, so a full disk is known
	// then and not hours later.
	Size int64
	// NoReplace makes Create and Commit fail with fs.ErrExist when the name
	// is taken.
	NoReplace bool
	// Before, if set, is called before each step with the final path (the
	// folder for a file made by CreateIn); its error becomes that of the
	// step. Tests inject faults with it.
	Before func(Step, string) error

	// named keeps Linux from writing files without a name; for tests.
	named bool
}

func (o *Options) before(s Step, path string) error {
	if o.Before == nil {
		return nil
	}
	return o.Before(s, path)
}

// File is an unfinished file. Commit, CommitAs or Abort must be called once;
// Abort after Commit does nothing, so it can be deferred. Write, WriteAt and
// ReadAt belong to one goroutine; Commit and Abort may come from others.
type File struct {
	f    *os.File
	lock io.Closer // keeps others from taking the file for abandoned
	tmp  string    // the temporary name, empty while there is none
	dir  string
	path string // the final name, empty for CreateIn
	opt  Options

	reserved bool
	keep     bool // Abort leaves the temporary file, see Resume

	mu   sync.Mutex
	done bool
	err  error
}

// Create starts a file that Commit will put at path. The folder must exist.
func Create(path string, opt Options) (*File, error) {
	dir, base := filepath.Split(path)
	if base == "" || base == "." || base == ".." {
		return nil, fmt.Errorf("write %s: not a file name", path)
	}
	// Both are known here hours before Commit would find them.
	if _, err := os.Lstat(path); err == nil && opt.NoReplace {
		return nil, fmt.Errorf("write %s: %w", path, fs.ErrExist)
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("write %s: %w", path, ErrNotRegular)
	}
	f, err := create(dir, base, path, opt)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	f.path = path
	return f, nil
}

// CreateIn starts a file whose name is not known yet, as it is when the name
// is a digest of the content. CommitAs names it. The folder should be on the
// file system of the final one.
func CreateIn(dir string, opt Options) (*File, error) {
	f, err := create(dir, "new", dir, opt)
	if err != nil {
		return nil, fmt.Errorf("write in %s: %w", dir, err)
	}
	return f, nil
}

func create(dir, base, what string, opt Options) (*File, error) {
	if dir == "" {
		dir = "."
	}
	if opt.Mode == 0 {
		opt.Mode = 0o644
	}
	if err := opt.before(StepCreate, what); err != nil {
		return nil, err
	}
	removeAbandoned(dir, base)
	w := &File{dir: dir, opt: opt}
	if !opt.named {
		if f := createUnnamed(dir, opt.Mode); f != nil {
			w.f = f
			w.lock, _ = tryLock(f)
			return w, nil
		}
	}
	if err := w.createNamed(dir, base); err != nil {
		return nil, err
	}
	return w, nil
}

// createNamed opens a file with a temporary name and locks it. A cleaner can
// take the lock first, in the moment between the two, and remove the file:
// then the name is gone or the lock is not to be had, and another is tried.
func (w *File) createNamed(dir, base string) error {
	for range 16 {
		name, err := tempName(dir, base)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, w.opt.Mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		lock, lost := lockNew(f, name)
		if lost {
			f.Close()
			continue
		}
		w.f, w.lock, w.tmp = f, lock, name
		return nil
	}
	return errors.New("no free temporary name")
}

// maxName is the longest base name that all common file systems take.
const maxName = 255

func tempName(dir, base string) (string, error) {
	var r [4]byte
	if _, err := rand.Read(r[:]); err != nil {
		return "", err
	}
	return filepath.Join(dir, tempPrefix(base)+hex.EncodeToString(r[:])+TempMark), nil
}

// tempPrefix starts the temporary names of base. A long base is cut so that
// the whole stays a legal name.
func tempPrefix(base string) string {
	if limit := maxName - len("..XXXXXXXX"+TempMark); len(base) > limit {
		base = base[:limit]
	}
	return "." + base + "."
}

// Write appends bytes. The first error sticks and makes Commit fail.
func (w *File) Write(p []byte) (int, error) {
	if err := w.ready(); err != nil {
		return 0, err
	}
	n, err := w.f.Write(p)
	return n, w.stick(err)
}

// WriteAt writes at an offset; it may be mixed with Write only by callers that
// know what they do.
func (w *File) WriteAt(p []byte, off int64) (int, error) {
	if err := w.ready(); err != nil {
		return 0, err
	}
	n, err := w.f.WriteAt(p, off)
	return n, w.stick(err)
}

// ready reserves the promised space before the first write.
func (w *File) ready() error {
	if err := w.opt.before(StepWrite, w.what()); err != nil {
		return w.stick(err)
	}
	if w.reserved || w.opt.Size <= 0 {
		return nil
	}
	w.reserved = true
	return w.stick(reserve(w.f, w.opt.Size))
}

// CloneFrom makes the file share the blocks of src, all of it, where the file
// system can (Linux FICLONE). It returns errors.ErrUnsupported, and leaves the
// file empty and usable, where it cannot.
func (w *File) CloneFrom(src *os.File) error {
	if err := w.opt.before(StepWrite, w.what()); err != nil {
		return w.stick(err)
	}
	return cloneFile(w.f, src)
}

// ReadAt reads back what was written.
func (w *File) ReadAt(p []byte, off int64) (int, error) { return w.f.ReadAt(p, off) }

// Name is a path under which this process can open the unfinished file. It is
// not a name in the folder where the file has none yet.
func (w *File) Name() string {
	if w.tmp != "" {
		return w.tmp
	}
	return unnamedPath(w.f)
}

func (w *File) what() string {
	if w.path != "" {
		return w.path
	}
	return w.dir
}

func (w *File) stick(err error) error {
	if err == nil {
		return nil
	}
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	return err
}

// Abort drops the file, unless Resume gave it. It is a no-op after Commit or
// Abort.
func (w *File) Abort() {
	w.mu.Lock()
	done := w.done
	w.done = true
	w.mu.Unlock()
	if !done {
		w.drop()
	}
}

func (w *File) drop() {
	w.f.Close()
	if w.tmp != "" && !w.keep {
		os.Remove(w.tmp)
	}
	if w.lock != nil {
		w.lock.Close()
	}
}

// WriteFile writes data under path in one go.
func WriteFile(path string, data []byte, opt Options) error {
	if opt.Size == 0 {
		opt.Size = int64(len(data))
	}
	f, err := Create(path, opt)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Commit()
}

// Copy writes everything from r under path, expecting exactly size bytes when
// size is not negative.
func Copy(path string, r io.Reader, size int64, opt Options) error {
	if size > 0 {
		opt.Size = size
	}
	f, err := Create(path, opt)
	if err != nil {
		return err
	}
	defer f.Abort()
	n, err := io.Copy(f, r)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if size >= 0 && n != size {
		return fmt.Errorf("write %s: %w: %d bytes, planned %d", path, ErrLength, n, size)
	}
	return f.Commit()
}

// Link makes path a hard link to the finished file old, with the same
// guarantees as Commit. Both must be on one file system.
func Link(old, path string, opt Options) error {
	err := link(old, path, opt)
	if err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	return nil
}

func link(old, path string, opt Options) error {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	if err := opt.before(StepRename, path); err != nil {
		return err
	}
	if err := opt.before(StepLink, path); err != nil {
		return err
	}
	if opt.NoReplace {
		if err := os.Link(old, path); err != nil {
			return err
		}
		return syncDir(dir, path, opt)
	}
	// The temporary name is not locked, as the lock is the finished file's. A
	// cleaner may remove it, so it is made again.
	for range 16 {
		tmp, err := tempName(dir, base)
		if err != nil {
			return err
		}
		if err := os.Link(old, tmp); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return err
		}
		err = rename(tmp, path)
		// Rename does nothing when both names are the same file already.
		os.Remove(tmp)
		if err == nil {
			return syncDir(dir, path, opt)
		}
		if _, serr := os.Lstat(old); serr != nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.New("no free temporary name")
}

// Remove deletes a finished file for good: the folder is synced.
func Remove(path string, opt Options) error {
	if err := opt.before(StepRemove, path); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path), path, opt)
}

package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ErrBusy marks an unfinished file that another writer has open.
var ErrBusy = errors.New("another process is writing it")

// Resume opens the unfinished file tmp, or starts it, for bytes that take long to
// get: Abort keeps it, and so does the end of the process, so that a later Resume
// goes on behind the have bytes that are there. Discard removes it, CommitAs
// gives it its name, in a folder of the same file system. Only one writer gets
// it; the others fail with ErrBusy. After a power cut the bytes may be wrong: who
// resumes proves the whole before it is committed.
func Resume(tmp string, opt Options) (f *File, have int64, err error) {
	fail := func(err error) (*File, int64, error) { return nil, 0, fmt.Errorf("write %s: %w", tmp, err) }
	if opt.Mode == 0 {
		opt.Mode = 0o644
	}
	if err := opt.before(StepCreate, tmp); err != nil {
		return fail(err)
	}
	for range 16 {
		if st, err := os.Lstat(tmp); err == nil && !st.Mode().IsRegular() {
			return fail(ErrNotRegular)
		}
		o, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE, opt.Mode|0o600)
		if err != nil {
			return fail(err)
		}
		lock, busy := tryLock(o)
		if busy {
			o.Close()
			return fail(ErrBusy)
		}
		w := &File{f: o, lock: lock, tmp: tmp, dir: filepath.Dir(tmp), opt: opt, keep: true}
		// Who had the lock before may have given the file its name or removed it.
		open, err := o.Stat()
		if named, nerr := os.Lstat(tmp); err == nil && (nerr != nil || !os.SameFile(open, named)) {
			w.Abort()
			continue
		}
		if err == nil {
			have, err = o.Seek(0, io.SeekEnd)
		}
		if err != nil {
			w.Abort()
			return fail(err)
		}
		return w, have, nil
	}
	return fail(ErrBusy)
}

// Discard drops the file, also one that Resume would find again.
func (w *File) Discard() {
	w.mu.Lock()
	if !w.done {
		w.keep = false
	}
	w.mu.Unlock()
	w.Abort()
}

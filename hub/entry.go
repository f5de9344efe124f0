package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"quern/internal/atomicfile"
	"quern/internal/digest"
)

// dataFile is the sparse file of an entry.
type dataFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// openFile holds a dataFile, so that it can be exchanged under its readers.
type openFile struct{ dataFile }

// hooks are the places where tests put faults.
type hooks struct {
	openData  func(path string) (dataFile, error)
	freeBytes func(dir string) (int64, error)
	locks     locks
}

func (h hooks) withDefaults() hooks {
	if h.openData == nil {
		h.openData = func(path string) (dataFile, error) {
			return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		}
	}
	if h.freeBytes == nil {
		h.freeBytes = atomicfile.FreeBytes
	}
	if h.locks.flock == nil {
		h.locks.flock = newFlock
	}
	return h
}

// entryInfo describes an entry to people and to the lister.
type entryInfo struct {
	Version int    `json:"version"`
	What    string `json:"what"`
	Digest  string `json:"digest,omitempty"`
	Size    int64  `json:"size"`
}

const (
	entryVersion   = 1
	infoName       = "info"
	dataName       = "data"
	journalName    = "journal"
	lockName       = "lock"
	appendLockName = "append"
)

// entry is one content in the spool: a sparse file and the journal of which
// of its bytes are there. Several processes may use it at once.
type entry struct {
	dir   string
	size  int64
	hooks hooks
	inUse func() // releases the shared lock that keeps cleaners out

	file    atomic.Pointer[openFile]
	journal *os.File

	mu      sync.Mutex
	m       extentMap
	seen    int64 // bytes of the journal that m has seen
	trusted spans // hashed or written by this process
	closed  bool
}

// openEntry opens or makes the entry in dir.
func openEntry(dir string, info entryInfo, hk hooks) (*entry, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, spoolError(dir, err)
	}
	inUse, err := hk.locks.shared(filepath.Join(dir, lockName))
	if err != nil {
		return nil, spoolError(dir, err)
	}
	e := &entry{dir: dir, size: info.Size, hooks: hk, inUse: inUse}
	if err := e.open(info); err != nil {
		e.close()
		return nil, spoolError(dir, err)
	}
	return e, nil
}

func (e *entry) open(info entryInfo) error {
	if err := e.describe(info); err != nil {
		return err
	}
	data, err := e.hooks.openData(e.dataPath())
	if err != nil {
		return err
	}
	e.file.Store(&openFile{data})
	if e.journal, err = os.OpenFile(filepath.Join(e.dir, journalName), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.catchUp()
}

func (e *entry) dataPath() string { return filepath.Join(e.dir, dataName) }

func (e *entry) data() dataFile {
	if f := e.file.Load(); f != nil {
		return f.dataFile
	}
	return nil
}

// describe writes the entry's description, and empties an entry whose
// description is unreadable, of another version, or of another size (two
// servers disagree about one digest): what is there is not to be trusted.
func (e *entry) describe(info entryInfo) error {
	unlock, err := e.hooks.locks.exclusive(context.Background(), filepath.Join(e.dir, appendLockName))
	if err != nil {
		return err
	}
	defer unlock()
	info.Version = entryVersion
	old, err := readInfo(e.dir)
	if err == nil && old.Version == info.Version && old.Size == info.Size {
		return nil
	}
	if err := os.Remove(filepath.Join(e.dir, journalName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(e.dir, infoName), append(b, '\n'), atomicfile.Options{})
}

func readInfo(dir string) (entryInfo, error) {
	var info entryInfo
	b, err := readLimited(filepath.Join(dir, infoName), 64<<10)
	if err != nil {
		return info, err
	}
	err = json.Unmarshal(b, &info)
	return info, err
}

// catchUp reads what other processes have appended. It is called with e.mu
// held.
func (e *entry) catchUp() error {
	st, err := e.journal.Stat()
	if err != nil {
		return err
	}
	end := st.Size() - st.Size()%recordBytes
	for e.seen < end {
		b := make([]byte, min(end-e.seen, 1<<20))
		if _, err := readFullAt(e.journal, b, e.seen); err != nil {
			return err
		}
		e.m.apply(b, e.size)
		e.seen += int64(len(b))
	}
	// What others dropped is not to be used here either.
	for _, gone := range missingOf(e.trusted, e.m.claimed) {
		e.trusted = e.trusted.remove(gone)
	}
	return nil
}

// missingOf lists the parts of a that b does not hold.
func missingOf(a, b spans) []span {
	var out []span
	for _, x := range a {
		out = append(out, b.missing(x)...)
	}
	return out
}

// append writes records at the journal's end and reads what came before them.
func (e *entry) append(recs ...record) error {
	unlock, err := e.hooks.locks.exclusive(context.Background(), filepath.Join(e.dir, appendLockName))
	if err != nil {
		return err
	}
	defer unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	if err := e.catchUp(); err != nil {
		return err
	}
	var b []byte
	for _, r := range recs {
		b = append(b, r.encode()...)
	}
	// e.seen is a whole number of records: a torn record of a writer that
	// died is written over.
	if _, err := e.journal.WriteAt(b, e.seen); err != nil {
		return err
	}
	e.m.apply(b, e.size)
	e.seen += int64(len(b))
	return nil
}

// write stores fetched bytes and journals them.
func (e *entry) write(off int64, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), maxExtent)
		if _, err := e.data().WriteAt(p[:n], off); err != nil {
			return spoolError(e.dir, err)
		}
		x := span{off, off + int64(n)}
		if err := e.append(record{kind: recordExtent, span: x, sum: digest.Of(p[:n])}); err != nil {
			return spoolError(e.dir, err)
		}
		e.mu.Lock()
		e.trusted = e.trusted.add(x)
		e.mu.Unlock()
		off, p = off+int64(n), p[n:]
	}
	return nil
}

// missing returns the parts of x that have to be fetched. Bytes that an
// earlier process left are hashed first; what does not hash right is missing.
func (e *entry) missing(ctx context.Context, x span) ([]span, error) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, ErrClosed
	}
	if e.trusted.has(x) {
		e.mu.Unlock()
		return nil, nil
	}
	err := e.catchUp()
	var doubt []record
	for _, u := range e.trusted.missing(x) {
		doubt = append(doubt, e.m.touching(u)...)
	}
	e.mu.Unlock()
	if err != nil {
		return nil, spoolError(e.dir, err)
	}
	for i, r := range doubt {
		if i > 0 && r == doubt[i-1] {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if err := e.settle(r); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.trusted.missing(x), nil
}

// settle hashes one extent of an earlier process.
func (e *entry) settle(r record) error {
	b := make([]byte, r.span.len())
	n, err := readFullAt(e.data(), b, r.span.lo)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return spoolError(e.dir, err)
	}
	if n == len(b) && sameSum(digest.Of(b), r.sum) {
		e.mu.Lock()
		e.trusted = e.trusted.add(r.span)
		e.mu.Unlock()
		return nil
	}
	return e.drop(r.span)
}

// drop makes the bytes of x, and of every extent that touches it, missing.
func (e *entry) drop(x span) error {
	if err := e.append(record{kind: recordDrop, span: x}); err != nil {
		return spoolError(e.dir, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, gone := range missingOf(e.trusted, e.m.claimed) {
		e.trusted = e.trusted.remove(gone)
	}
	return nil
}

// readAt fills p with bytes that missing has found to be there.
func (e *entry) readAt(p []byte, off int64) error {
	if _, err := readFullAt(e.data(), p, off); err != nil {
		return spoolError(e.dir, err)
	}
	return nil
}

// read copies the bytes from off on that are there without a gap; 0 when the
// first one is missing.
func (e *entry) read(ctx context.Context, p []byte, off int64) (int, error) {
	miss, err := e.missing(ctx, span{off, off + int64(len(p))})
	if err != nil {
		return 0, err
	}
	if len(miss) > 0 {
		p = p[:miss[0].lo-off]
	}
	if len(p) == 0 {
		return 0, nil
	}
	return len(p), e.readAt(p, off)
}

// held counts the bytes of x that the journal claims, without hashing them.
func (e *entry) held(x spans) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	var n int64
	for _, s := range x {
		n += e.m.claimed.within(s)
	}
	return n
}

// verified reports whether the whole content was hashed, by any process, and
// nothing was dropped since.
func (e *entry) verified() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.m.verified
}

func (e *entry) markVerified() error {
	if err := e.append(record{kind: recordVerified}); err != nil {
		return spoolError(e.dir, err)
	}
	return nil
}

func (e *entry) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	var errs []error
	if f := e.data(); f != nil {
		errs = append(errs, f.Close())
	}
	if e.journal != nil {
		errs = append(errs, e.journal.Close())
	}
	e.inUse()
	return errors.Join(errs...)
}

// spoolError names the folder, and a full disk as such.
func spoolError(dir string, err error) error {
	if err == nil || errors.Is(err, ErrNoSpace) {
		return err
	}
	if diskFull(err) {
		return &Error{Kind: ErrNoSpace, What: filepath.Dir(dir), Err: err, Hint: "free some space or choose another spool folder; what was fetched so far is kept"}
	}
	return fmt.Errorf("spool %s: %w", dir, err)
}

// readFullAt fills p; io.ErrUnexpectedEOF or io.EOF when the file is short.
func readFullAt(r io.ReaderAt, p []byte, off int64) (int, error) {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

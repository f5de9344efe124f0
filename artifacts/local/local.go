// Package local is a store on disk: an OCI image layout, which any OCI tool
// reads, with one more folder for what only quern needs.
//
//	oci-layout               {"imageLayoutVersion":"1.0.0"}
//	index.json               names and other roots
//	blobs/sha256/<hex>       outputs, manifests, configs; never changed, mode 0444
//	quern/ingest/            blobs being written
//	quern/keys/<hex>         derivation keys, see keyfile.go
//	quern/stat/<hex>         digests of local source files, see statcache.go
//	quern/spool/             downloads being made, the hub client's own
//	quern/lock-index         held while index.json is changed
//	quern/lock-keys          held while key files are merged
//	quern/lock-gc            shared by writers, exclusive for gc
//
// All names are of [a-z0-9-], plus those that OCI sets, so the folder works on
// file systems without letter case and without symbolic links. Every change is
// one rename of a synced file: a killed process or a full disk leaves a valid
// store. Several processes may use it at once.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"quern/artifacts"
	"quern/internal/atomicfile"
)

// Options change how a store is used. The zero value is right for most.
type Options struct {
	// ReadOnly opens a store that must exist and writes nothing, not even
	// locks.
	ReadOnly bool
	// Now is the clock of the stat cache and of gc; nil means time.Now.
	Now func() time.Time
	// Before, if set, is called before each step of each change with the
	// path; its error becomes that of the change. Tests inject faults with
	// it.
	Before func(atomicfile.Step, string) error
}

// Store is an artifacts.Store on disk. Make one with Open; it holds nothing
// that must be closed.
type Store struct {
	dir      string
	opt      Options
	readOnly bool

	indexMu sync.Mutex // one change of the index at a time in this process
	keys    keyCache
}

var _ artifacts.Store = (*Store)(nil)

const (
	blobsDir  = "blobs/sha256"
	ingestDir = "quern/ingest"
	keysDir   = "quern/keys"
	statDir   = "quern/stat"
	spoolDir  = "quern/spool"
	sendDir   = "quern/sends"
	uploadDir = "quern/uploads"

	layoutFile = "oci-layout"
	indexFile  = "index.json"
)

// Open opens the store in dir, or makes one if dir is empty or missing. A
// folder with other content is refused with artifacts.ErrNotStore. A store on a
// read-only file system opens too; writes then fail with artifacts.ErrReadOnly.
func Open(ctx context.Context, dir string, opt Options) (*Store, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", dir, err)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	s := &Store{dir: abs, opt: opt, readOnly: opt.ReadOnly}
	exists, err := s.checkLayout()
	if err != nil {
		return nil, err
	}
	if s.readOnly {
		if !exists {
			return nil, fmt.Errorf("store %s: %w: there is no %s", s.dir, artifacts.ErrNotStore, layoutFile)
		}
		return s, nil
	}
	err = s.init(exists)
	if err != nil && exists && atomicfile.IsReadOnly(err) {
		s.readOnly = true
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: cannot be made: %w", s.dir, err)
	}
	return s, nil
}

// Dir is the store's folder.
func (s *Store) Dir() string { return s.dir }

// SpoolDir is the folder in which the hub client keeps unfinished downloads.
// The store makes it and never looks into it.
func (s *Store) SpoolDir() string { return s.path(spoolDir) }

// SendDir is the folder in which builds keep how far their outputs were sent. The
// store looks at the age of its files alone.
func (s *Store) SendDir() string { return s.path(sendDir) }

// UploadDir is the folder in which pushes keep where their unfinished uploads are.
// The store looks at the age of its files alone.
func (s *Store) UploadDir() string { return s.path(uploadDir) }

// ReadOnly reports whether the store is known to take nothing. One that is not
// may still turn out so at its first write.
func (s *Store) ReadOnly() bool { return s.readOnly }

// FreeBytes is the space left on the store's file system.
func (s *Store) FreeBytes() (int64, error) { return atomicfile.FreeBytes(s.dir) }

func (s *Store) path(rel ...string) string {
	return filepath.Join(append([]string{s.dir}, rel...)...)
}

// checkLayout reports whether dir is a layout already, and refuses a folder
// that is neither a layout, nor empty, nor one whose making was interrupted.
func (s *Store) checkLayout() (exists bool, err error) {
	exists, err = s.readLayout()
	if exists || err != nil {
		return exists, err
	}
	return s.checkUnmade()
}

// readLayout reports whether dir says that it is a layout of the known version.
func (s *Store) readLayout() (exists bool, err error) {
	raw, err := readSmall(s.path(layoutFile), 4096)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("store %s: %w", s.dir, err)
	}
	var l ocispec.ImageLayout
	if err := json.Unmarshal(raw, &l); err != nil || l.Version != ocispec.ImageLayoutVersion {
		return false, fmt.Errorf("store %s: %w: %s says version %q, want %q", s.dir, artifacts.ErrNotStore, layoutFile, l.Version, ocispec.ImageLayoutVersion)
	}
	return true, nil
}

// checkUnmade looks at what is in a folder that did not say that it is a layout. If it
// does now, another process has made it meanwhile.
func (s *Store) checkUnmade() (exists bool, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("store %s: %w", s.dir, err)
	}
	for _, e := range entries {
		switch n := e.Name(); {
		case n == layoutFile:
			return s.readLayout()
		case n == indexFile, n == "blobs", n == "quern", n == "lost+found", atomicfile.IsTemp(n):
		default:
			return false, fmt.Errorf("store %s: %w: it has %q but no %s; choose an empty or new folder", s.dir, artifacts.ErrNotStore, n, layoutFile)
		}
	}
	return false, nil
}

// init makes what is missing. oci-layout comes last: it makes the rest valid.
func (s *Store) init(exists bool) error {
	for _, d := range []string{blobsDir, ingestDir, keysDir, statDir, spoolDir} {
		if err := s.mkdir(s.path(d)); err != nil {
			return err
		}
	}
	// Locks exist from the start: a full disk must not keep gc from running.
	for _, l := range []string{lockGC, lockKeys, lockIndex} {
		if _, err := os.Stat(s.path(l)); err == nil {
			continue
		}
		if err := s.writeNew(l, nil); err != nil {
			return err
		}
	}
	if exists {
		return nil
	}
	index, err := artifacts.NewIndex().Marshal()
	if err != nil {
		return err
	}
	if err := s.writeNew(indexFile, index); err != nil {
		return err
	}
	return s.writeNew(layoutFile, []byte(artifacts.LayoutFile))
}

func (s *Store) mkdir(path string) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil
	}
	if err := s.before(atomicfile.StepCreate, path); err != nil {
		return err
	}
	return os.MkdirAll(path, 0o755)
}

// writeNew writes a file unless another process has just done so.
func (s *Store) writeNew(name string, data []byte) error {
	opt := s.fileOptions()
	opt.NoReplace = true
	err := atomicfile.WriteFile(s.path(name), data, opt)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func (s *Store) fileOptions() atomicfile.Options {
	return atomicfile.Options{Before: s.opt.Before}
}

func (s *Store) before(step atomicfile.Step, path string) error {
	if s.opt.Before == nil {
		return nil
	}
	return s.opt.Before(step, path)
}

// writable fails in a store that is known to be read-only.
func (s *Store) writable() error {
	if s.readOnly {
		return s.readOnlyError(nil)
	}
	return nil
}

func (s *Store) readOnlyError(cause error) error {
	const advice = "make the folder writable, or use another store"
	if cause == nil {
		return fmt.Errorf("store %s: %w: %s", s.dir, artifacts.ErrReadOnly, advice)
	}
	return fmt.Errorf("store %s: %w: %s: %w", s.dir, artifacts.ErrReadOnly, advice, cause)
}

// changeError explains why a change failed.
func (s *Store) changeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, artifacts.ErrReadOnly):
		return err
	case atomicfile.IsDiskFull(err):
		return fmt.Errorf("store %s: the disk is full; make room, with gc for one: %w", s.dir, err)
	case atomicfile.IsReadOnly(err):
		return s.readOnlyError(err)
	}
	return fmt.Errorf("store %s: %w", s.dir, err)
}

// readSmall reads a whole file that must not be larger than limit.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f, path, limit)
}

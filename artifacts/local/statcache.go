package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"quern/artifacts"
	"quern/internal/atomicfile"
	"quern/internal/digest"
)

// The stat cache saves reading a source file again only to find that it is the
// same. A file in quern/stat, named by the SHA-256 of a source's absolute path,
// holds what the system said about that source when it was hashed.
//
// A write within the same tick of the file system's clock as the look at its
// times would not show in them. So an entry counts only if the file had been
// left alone for racyWindow before it was hashed.
const racyWindow = 2 * time.Second

// fileID is everything that the system tells about a file's content without
// reading it. Any difference means: read it again.
type fileID struct {
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime"` // nanoseconds since 1970
	CTime  int64  `json:"ctime"` // the same; 0 where there is none
	Inode  uint64 `json:"inode"`
	Device uint64 `json:"device"`
}

// statEntry is an entry of the cache.
type statEntry struct {
	fileID
	At     int64            `json:"at"` // when it was hashed
	Digest artifacts.Digest `json:"digest"`
}

// settled reports whether the file had been left alone before it was hashed.
func (e statEntry) settled() bool {
	return e.At-e.MTime >= int64(racyWindow) && e.At-e.CTime >= int64(racyWindow)
}

// ErrChanged marks a source file that was written to while it was read.
var ErrChanged = errors.New("the file changed while it was read")

// KnownDigest is the digest and size of a local file, if it is known without
// reading it.
func (s *Store) KnownDigest(path string) (d artifacts.Digest, size int64, known bool) {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return artifacts.Digest{}, 0, false
	}
	e, ok := s.readStat(path)
	if !ok || e.fileID != identify(st) || !e.settled() {
		return artifacts.Digest{}, 0, false
	}
	return e.Digest, e.Size, true
}

// FileDigest is the digest and size of a local file, read only if it is not
// known. progress, if not nil, is told how many bytes have been read. A store
// that cannot be written to gives the same answers and remembers nothing.
func (s *Store) FileDigest(ctx context.Context, path string, progress func(n int64)) (artifacts.Digest, int64, error) {
	if d, size, ok := s.KnownDigest(path); ok {
		return d, size, context.Cause(ctx)
	}
	f, err := os.Open(path)
	if err != nil {
		return artifacts.Digest{}, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return artifacts.Digest{}, 0, err
	}
	if !st.Mode().IsRegular() {
		return artifacts.Digest{}, 0, fmt.Errorf("%s: not a regular file", path)
	}
	e := statEntry{fileID: identify(st), At: s.opt.Now().UnixNano()}
	h := artifacts.NewHash()
	w := &progressWriter{w: h, f: progress}
	if n, err := artifacts.CopyRange(ctx, w, f, 0, st.Size()); err != nil {
		return artifacts.Digest{}, 0, fmt.Errorf("%s: at offset %d of %d: %w", path, n, st.Size(), err)
	}
	e.Digest = artifacts.SumHash(h)
	// The same question, by name this time: another file may have taken it.
	after, err := os.Stat(path)
	if err != nil {
		return artifacts.Digest{}, 0, err
	}
	if identify(after) != e.fileID {
		return artifacts.Digest{}, 0, fmt.Errorf("%s: %w", path, ErrChanged)
	}
	if e.settled() && !s.readOnly {
		// A cache that cannot be written costs time, not correctness.
		_ = s.writeStat(path, e)
	}
	return e.Digest, e.Size, nil
}

type progressWriter struct {
	w interface{ Write([]byte) (int, error) }
	f func(int64)
}

func (p *progressWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	if p.f != nil {
		p.f(int64(n))
	}
	return n, err
}

func (s *Store) statPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return s.path(statDir, digest.Of([]byte(abs)).Hex()), nil
}

func (s *Store) readStat(path string) (statEntry, bool) {
	var e statEntry
	p, err := s.statPath(path)
	if err != nil {
		return e, false
	}
	raw, err := readSmall(p, 4096)
	if err != nil {
		return e, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if d.Decode(&e) != nil || e.Digest.IsZero() {
		return statEntry{}, false
	}
	if _, err := d.Token(); err != io.EOF {
		return statEntry{}, false // more than one value
	}
	return e, true
}

func (s *Store) writeStat(path string, e statEntry) error {
	p, err := s.statPath(path)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(p, raw, s.fileOptions())
}

func identify(st fs.FileInfo) fileID {
	id := fileID{Size: st.Size(), MTime: st.ModTime().UnixNano()}
	identifySys(st, &id)
	return id
}

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"quern/internal/atomicfile"
	"quern/internal/digest"
)

// The spool folder:
//
//	CACHEDIR.TAG          for backup tools: this can be made again
//	lock                  shared while an entry is opened, exclusive while one is removed
//	sha256-HEX/           one content: info, data (sparse), journal, lock, append
//	git-HEX/              the same for files kept in git
//	HEX-kind entries      for sources without a digest, keyed by a validator
//	sha256-HEX.bad        what was there when a digest was wrong twice
//	snapshots/HEX.json    which files of a commit are wanted, for listings
const (
	badSuffix     = ".bad"
	snapshotsName = "snapshots"
	cacheTagName  = "CACHEDIR.TAG"
	cacheTag      = "Signature: 8a477f597d28d172789f06886806bc55\n# Parts of downloaded files; they can be fetched again.\n"
)

// entryName is the folder of a content.
func entryName(d Digest) string {
	if d.IsZero() {
		return ""
	}
	return string(d.Algorithm) + "-" + d.Hex
}

// keyedName is the folder of a content that only other things identify.
func keyedName(kind string, parts ...string) string {
	h := digest.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s,", len(p), p)
	}
	return fmt.Sprintf("%s-%x", kind, h.Sum(nil))
}

func digestText(d Digest) string {
	if d.IsZero() {
		return ""
	}
	return d.String()
}

// openSpool opens an entry while no cleaner is at work.
func openSpool(dir, name string, info entryInfo, hk hooks) (*entry, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, spoolError(filepath.Join(dir, name), err)
	}
	tag := filepath.Join(dir, cacheTagName)
	if _, err := os.Lstat(tag); errors.Is(err, fs.ErrNotExist) {
		if err := atomicfile.WriteFile(tag, []byte(cacheTag), atomicfile.Options{}); err != nil {
			return nil, spoolError(filepath.Join(dir, name), err)
		}
	}
	unlock, err := hk.locks.shared(filepath.Join(dir, lockName))
	if err != nil {
		return nil, spoolError(filepath.Join(dir, name), err)
	}
	defer unlock()
	return openEntry(filepath.Join(dir, name), info, hk)
}

// room compares what is missing with the free space of the spool's disk, where
// that is known.
func (s *Snapshot) room() error {
	dir := s.c.opt.SpoolDir
	if dir == "" {
		return nil
	}
	var lack int64
	for _, h := range s.all() {
		h.mu.Lock()
		f := h.remote
		h.mu.Unlock()
		if f == nil {
			continue
		}
		f.eng.mu.Lock()
		needs := append(spans(nil), f.needs...)
		f.eng.mu.Unlock()
		lack += needs.total() - f.spool.held(needs)
	}
	free, err := s.c.opt.hooks.freeBytes(dir)
	if err != nil || lack <= free {
		return nil
	}
	return &Error{Kind: ErrNoSpace, What: dir, Err: fmt.Errorf("%d bytes are to be fetched and %d are free", lack, free), Hint: "free some space or choose another spool folder"}
}

// snapshotRecord says what of a commit is wanted, so that an interrupted fetch
// shows up in listings and an offline run knows the commit.
type snapshotRecord struct {
	Version  int            `json:"version"`
	Repo     string         `json:"repo"`
	Revision string         `json:"revision"`
	Commit   string         `json:"commit"`
	Files    []recordedFile `json:"files"`
}

type recordedFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
	GitOID string `json:"git,omitempty"`
	// Wanted files have the folder of their entry and the ranges to be read,
	// as offset and length.
	Entry string     `json:"entry,omitempty"`
	Need  [][2]int64 `json:"need,omitempty"`
}

// recorder says when a snapshot's record must be written.
type recorder struct {
	dir   string
	dirty bool // it has changed
	soon  bool // it must be on disk before more is fetched
}

func recordPath(dir string, ref Ref, commit string) string {
	name := strings.TrimPrefix(keyedName("", ref.Repo, ref.Revision, commit), "-")
	return filepath.Join(dir, snapshotsName, name[:32]+".json")
}

// saveSoon is save for readers: a file that was merely opened can wait.
func (s *Snapshot) saveSoon() error {
	s.mu.Lock()
	soon := s.record.soon
	s.mu.Unlock()
	if !soon {
		return nil
	}
	return s.save()
}

// save writes the record if anything is wanted that it does not say yet.
func (s *Snapshot) save() error {
	s.mu.Lock()
	dirty := s.record.dirty && s.record.dir != ""
	s.record.dirty, s.record.soon = false, false
	s.mu.Unlock()
	if !dirty {
		return nil
	}
	rec := snapshotRecord{Version: entryVersion, Repo: s.ref.Repo, Revision: s.ref.Revision, Commit: s.Commit}
	wanted := map[string]*handle{}
	for _, h := range s.all() {
		wanted[h.file.Path] = h
	}
	for _, f := range s.files {
		r := recordedFile{Path: f.Path, Size: f.Size, SHA256: f.SHA256, GitOID: f.GitOID}
		if h := wanted[f.Path]; h != nil {
			r.Entry, r.Need = h.wanted()
		}
		rec.Files = append(rec.Files, r)
	}
	b, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		return err
	}
	path := recordPath(s.record.dir, s.ref, s.Commit)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return spoolError(path, err)
	}
	return spoolError(path, atomicfile.WriteFile(path, append(b, '\n'), atomicfile.Options{}))
}

// wanted gives the entry and ranges of a file that is read by ranges.
func (h *handle) wanted() (string, [][2]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.remote
	if f == nil || f.spool == nil {
		return "", nil
	}
	f.eng.mu.Lock()
	defer f.eng.mu.Unlock()
	needs := f.needs
	if len(needs) == 0 || f.whole {
		// Opened and not read yet means all of it, as far as anyone knows.
		needs = spans{{0, f.size}}
	}
	var out [][2]int64
	for _, x := range needs {
		out = append(out, [2]int64{x.lo, x.len()})
	}
	return filepath.Base(f.spool.dir), out
}

const maxRecord = 256 << 20

func readRecord(path string) (snapshotRecord, error) {
	var rec snapshotRecord
	b, err := readLimited(path, maxRecord)
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, fmt.Errorf("%s: %w: %w", path, ErrListing, err)
	}
	if rec.Version != entryVersion || !IsCommit(rec.Commit) {
		return rec, fmt.Errorf("%s: %w: not a record of this version", path, ErrListing)
	}
	return rec, nil
}

// records reads all records of a spool, newest first; unreadable ones are
// left out.
func records(dir string) []snapshotRecord {
	if dir == "" {
		return nil
	}
	list, err := os.ReadDir(filepath.Join(dir, snapshotsName))
	if err != nil {
		return nil
	}
	type aged struct {
		snapshotRecord
		at int64
	}
	var out []aged
	for _, d := range list {
		info, err := d.Info()
		if err != nil || atomicfile.IsTemp(d.Name()) {
			continue
		}
		if rec, err := readRecord(filepath.Join(dir, snapshotsName, d.Name())); err == nil {
			out = append(out, aged{rec, info.ModTime().UnixNano()})
		}
	}
	slices.SortStableFunc(out, func(a, b aged) int {
		if a.at != b.at {
			return int(min(max(b.at-a.at, -1), 1))
		}
		return strings.Compare(a.Commit, b.Commit)
	})
	recs := make([]snapshotRecord, len(out))
	for i, a := range out {
		recs[i] = a.snapshotRecord
	}
	return recs
}

// spooledCommit is the commit that we used last for a revision.
func spooledCommit(dir string, ref Ref) (string, bool) {
	for _, rec := range records(dir) {
		if rec.Repo == ref.Repo && rec.Revision == ref.Revision {
			return rec.Commit, true
		}
	}
	return "", false
}

// spooledListing is the listing that a record keeps of a commit.
func spooledListing(dir string, ref Ref, commit string) ([]File, bool) {
	for _, rec := range records(dir) {
		if rec.Repo != ref.Repo || rec.Commit != commit {
			continue
		}
		var files []File
		for _, r := range rec.Files {
			f := File{Path: r.Path, Size: r.Size, SHA256: r.SHA256, GitOID: r.GitOID}
			if d := f.Digest(); checkPath(f.Path) != nil || !d.IsZero() && !d.valid() {
				return nil, false
			}
			files = append(files, f)
		}
		files, err := sortFiles("record", files)
		return files, err == nil
	}
	return nil, false
}

// RemoveSpool removes what the spool holds for this snapshot, after a build
// that does not want to keep it. The snapshot is closed first. Entries that
// other processes use stay.
func (s *Snapshot) RemoveSpool(ctx context.Context) error {
	err := s.Close()
	dir := s.c.opt.SpoolDir
	if dir == "" {
		return err
	}
	var names []string
	for _, h := range s.all() {
		if h.remote != nil && h.remote.spool != nil {
			names = append(names, filepath.Base(h.remote.spool.dir))
		}
	}
	_, rerr := removeEntries(ctx, dir, names, s.c.opt.hooks)
	if rerr == nil {
		rerr = os.Remove(recordPath(dir, s.ref, s.Commit))
		if errors.Is(rerr, fs.ErrNotExist) {
			rerr = nil
		}
	}
	return errors.Join(err, rerr)
}

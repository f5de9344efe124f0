package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"quern/internal/atomicfile"
)

// SpoolSnapshot is a commit that the spool has something of.
type SpoolSnapshot struct {
	Repo, Revision, Commit string
	// Files are wanted ones, Done those whose wanted bytes are all there.
	Files, Done int
	// Need and Have count wanted bytes and those that are there.
	Need, Have int64
	// Missing are the paths that are not done.
	Missing []string
}

// Status is "complete 3/3" or "partial 1/3".
func (s SpoolSnapshot) Status() string {
	if s.Done == s.Files {
		return fmt.Sprintf("complete %d/%d", s.Done, s.Files)
	}
	return fmt.Sprintf("partial %d/%d", s.Done, s.Files)
}

// SpoolEntry is one content in the spool.
type SpoolEntry struct {
	Name string // folder, or file for evidence
	What string // repository and file that it was fetched for
	Size int64  // of the whole content
	Have int64  // bytes that are there
	Bad  bool   // evidence of a wrong digest
	Used time.Time
}

// SpoolList is what a spool folder holds.
type SpoolList struct {
	Snapshots []SpoolSnapshot // newest first
	Entries   []SpoolEntry    // by name
}

// ListSpool reads a spool folder without changing it. A missing folder is
// empty.
func ListSpool(dir string) (SpoolList, error) {
	var out SpoolList
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("spool %s: %w", dir, err)
	}
	claimed := map[string]spans{}
	for _, d := range list {
		e, m, ok := listEntry(dir, d)
		if ok {
			out.Entries = append(out.Entries, e)
			claimed[e.Name] = m
		}
	}
	for _, rec := range records(dir) {
		s := SpoolSnapshot{Repo: rec.Repo, Revision: rec.Revision, Commit: rec.Commit}
		for _, f := range rec.Files {
			if f.Entry == "" {
				continue
			}
			var need, have int64
			for _, r := range f.Need {
				if r[0] < 0 || r[1] < 0 || r[0] > r[0]+r[1] {
					continue
				}
				need += r[1]
				have += claimed[f.Entry].within(span{r[0], r[0] + r[1]})
			}
			s.Files++
			s.Need += need
			s.Have += have
			if have >= need {
				s.Done++
			} else {
				s.Missing = append(s.Missing, f.Path)
			}
		}
		if s.Files > 0 {
			out.Snapshots = append(out.Snapshots, s)
		}
	}
	return out, nil
}

func listEntry(dir string, d fs.DirEntry) (SpoolEntry, spans, bool) {
	e := SpoolEntry{Name: d.Name()}
	path := filepath.Join(dir, d.Name())
	if !d.IsDir() {
		st, err := os.Stat(path)
		if err != nil || !strings.HasSuffix(d.Name(), badSuffix) {
			return e, nil, false
		}
		e.Bad, e.Size, e.Have, e.Used = true, st.Size(), st.Size(), st.ModTime()
		return e, nil, true
	}
	info, err := readInfo(path)
	if err != nil {
		return e, nil, false
	}
	e.What, e.Size = info.What, info.Size
	e.Used = lastUse(path)
	b, err := readLimited(filepath.Join(path, journalName), maxJournal)
	if err != nil {
		return e, nil, true
	}
	var m extentMap
	m.apply(b, info.Size)
	e.Have = m.claimed.total()
	return e, m.claimed, true
}

// maxJournal is the journal of some hundred terabytes in pieces.
const maxJournal = 1 << 30

// lastUse is the newest change of an entry's files.
func lastUse(dir string) time.Time {
	var t time.Time
	for _, name := range []string{infoName, dataName, journalName} {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.ModTime().After(t) {
			t = st.ModTime()
		}
	}
	return t
}

// CleanOptions choose what CleanSpool removes.
type CleanOptions struct {
	// OlderThan spares entries that changed since; 0 means 24 hours, negative
	// spares none.
	OlderThan time.Duration
	// Now is the time to count from; zero means the system's.
	Now time.Time
	// DryRun only tells what would be removed.
	DryRun bool
}

// CleanResult tells what CleanSpool did.
type CleanResult struct {
	Removed []SpoolEntry
	// InUse are entries that another process has open.
	InUse []SpoolEntry
}

// CleanSpool removes entries that nobody uses and that are old enough, with
// the evidence files and leftovers of writers that died.
func CleanSpool(ctx context.Context, dir string, opt CleanOptions) (CleanResult, error) {
	return cleanSpool(ctx, dir, opt, hooks{}.withDefaults())
}

func cleanSpool(ctx context.Context, dir string, opt CleanOptions, hk hooks) (CleanResult, error) {
	var res CleanResult
	if opt.OlderThan == 0 {
		opt.OlderThan = 24 * time.Hour
	}
	if opt.Now.IsZero() {
		opt.Now = time.Now()
	}
	list, err := ListSpool(dir)
	if err != nil {
		return res, err
	}
	old := func(t time.Time) bool { return opt.OlderThan < 0 || opt.Now.Sub(t) >= opt.OlderThan }
	var names []string
	byName := map[string]SpoolEntry{}
	for _, e := range list.Entries {
		if old(e.Used) {
			names = append(names, e.Name)
			byName[e.Name] = e
		}
	}
	if opt.DryRun {
		for _, n := range names {
			res.Removed = append(res.Removed, byName[n])
		}
		return res, nil
	}
	inUse, err := removeEntries(ctx, dir, names, hk)
	for _, n := range names {
		switch {
		case slices.Contains(inUse, n):
			res.InUse = append(res.InUse, byName[n])
		default:
			if _, serr := os.Lstat(filepath.Join(dir, n)); errors.Is(serr, fs.ErrNotExist) {
				res.Removed = append(res.Removed, byName[n])
			}
		}
	}
	if err != nil {
		return res, err
	}
	return res, removeLeftovers(dir, old)
}

// removeEntries removes entries by name and returns those in use.
func removeEntries(ctx context.Context, dir string, names []string, hk hooks) (inUse []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	unlock, err := hk.locks.exclusive(ctx, filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, n := range names {
		if err := context.Cause(ctx); err != nil {
			return inUse, err
		}
		path := filepath.Join(dir, n)
		if strings.HasSuffix(n, badSuffix) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return inUse, err
			}
			continue
		}
		free, ok, err := hk.locks.try(filepath.Join(path, lockName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return inUse, err
		}
		if !ok {
			inUse = append(inUse, n)
			continue
		}
		err = removeEntry(path)
		free()
		if err != nil {
			return inUse, err
		}
		// The lock file goes last, once it is no longer open: Windows
		// removes no open files.
		if err := os.RemoveAll(path); err != nil {
			return inUse, err
		}
	}
	return inUse, nil
}

// removeEntry removes the journal first: without it the data means nothing.
func removeEntry(path string) error {
	for _, name := range []string{journalName, infoName, dataName} {
		if err := os.Remove(filepath.Join(path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeLeftovers removes temporary files of writers that died, and records
// none of whose entries exist.
func removeLeftovers(dir string, old func(time.Time) bool) error {
	for _, d := range []string{dir, filepath.Join(dir, snapshotsName)} {
		list, err := os.ReadDir(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, f := range list {
			path := filepath.Join(d, f.Name())
			st, err := f.Info()
			if err != nil || !old(st.ModTime()) || f.IsDir() {
				continue
			}
			if atomicfile.IsTemp(f.Name()) || d != dir && !recordAlive(dir, path) {
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
	}
	return nil
}

func recordAlive(dir, path string) bool {
	rec, err := readRecord(path)
	if err != nil {
		return false
	}
	for _, f := range rec.Files {
		if f.Entry != "" {
			if _, err := os.Stat(filepath.Join(dir, filepath.Base(f.Entry))); err == nil {
				return true
			}
		}
	}
	return false
}

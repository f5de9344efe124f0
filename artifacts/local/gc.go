package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"quern/artifacts"
	"quern/internal/atomicfile"
	"quern/internal/digest"
)

// DefaultGrace is how old something must be before gc removes it, unless
// GCOptions say otherwise.
const DefaultGrace = 24 * time.Hour

// statLifetime is how long an unused entry of the stat cache is kept, and the record
// of what was sent: both only save time.
const statLifetime = 90 * 24 * time.Hour

// uploadLifetime is how long registries keep an upload that nothing comes for; its
// address, which may hold a secret, is of no use then.
const uploadLifetime = 7 * 24 * time.Hour

// GCOptions change what gc removes.
type GCOptions struct {
	// Grace protects what is younger: it may belong to a build that has not
	// come to its tag. Zero means DefaultGrace, negative none.
	Grace time.Duration
	// Wait is how long to wait for running builds; zero means not at all.
	Wait time.Duration
}

// Removal is a file that gc removes, with the reason.
type Removal struct {
	Path   string    `json:"path"` // relative to the store, with slashes
	Size   int64     `json:"size"`
	Age    string    `json:"age"`
	Reason string    `json:"reason"`
	mtime  time.Time // the file that was planned, not a later one
}

// GCPlan is what gc would do. It changes nothing until ExecuteGC gets it.
type GCPlan struct {
	Remove []Removal `json:"remove"`
	Bytes  int64     `json:"bytes"` // of all in Remove
	// Kept and KeptBytes count what nothing refers to but is too young.
	Kept      int   `json:"kept"`
	KeptBytes int64 `json:"keptBytes"`
	// Roots and Reachable count what stays because of the index.
	Roots     int `json:"roots"`
	Reachable int `json:"reachable"`

	opt GCOptions
}

// PlanGC finds what nothing needs: blobs that no name and no other entry of the
// index reaches, and old leftovers of writers. The spool is left to the hub
// client, which knows what belongs together there. It fails rather than plan on a damaged index or a manifest that cannot be read, whose content
// would look like garbage.
func (s *Store) PlanGC(ctx context.Context, opt GCOptions) (*GCPlan, error) {
	if opt.Grace == 0 {
		opt.Grace = DefaultGrace
	}
	x, err := s.Index(ctx)
	if err != nil {
		return nil, err
	}
	roots := x.OCI()
	reached, err := s.reached(ctx, roots)
	if err != nil {
		return nil, fmt.Errorf("%w; nothing is removed: see what verify says, and untag what is lost", err)
	}
	p := &GCPlan{Roots: len(roots), Reachable: len(reached), Remove: []Removal{}, opt: opt}
	blobs, err := s.files(blobsDir)
	if err != nil {
		return nil, err
	}
	for _, b := range blobs {
		d, err := digest.ParseHex(b.name)
		if err != nil || reached[godigest.Digest(d.String())] {
			continue // what is not a blob is not ours to remove
		}
		s.plan(p, b, "no name and no root of the index reaches it", opt.Grace)
	}
	for _, dir := range []struct {
		name, reason string
		age          time.Duration
		temp         bool // only the temporary files of it
	}{
		{ingestDir, "left by a write that was killed", opt.Grace, false},
		{statDir, "old entry of the stat cache", max(opt.Grace, statLifetime), false},
		{sendDir, "old record of what was sent", max(opt.Grace, statLifetime), false},
		{uploadDir, "upload that nobody went on with", max(opt.Grace, uploadLifetime), false},
		{blobsDir, "left by a write that was killed", opt.Grace, true},
		{keysDir, "left by a write that was killed", opt.Grace, true},
		{".", "left by a write that was killed", opt.Grace, true},
	} {
		files, err := s.files(dir.name)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if !dir.temp || atomicfile.IsTemp(f.name) {
				s.plan(p, f, dir.reason, dir.age)
			}
		}
	}
	slices.SortFunc(p.Remove, func(a, b Removal) int { return strings.Compare(a.Path, b.Path) })
	return p, nil
}

// file is a regular file of the store.
type file struct {
	name, path string // path is relative to the store
	size       int64
	mtime      time.Time
}

// files lists the regular files of a folder.
func (s *Store) files(dir string) ([]file, error) {
	entries, err := os.ReadDir(s.path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store %s: %w", s.dir, err)
	}
	out := make([]file, 0, len(entries))
	for _, e := range entries {
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("store %s: %w", s.dir, err)
		}
		if st.Mode().IsRegular() {
			out = append(out, file{e.Name(), path.Join(dir, e.Name()), st.Size(), st.ModTime()})
		}
	}
	return out, nil
}

func (s *Store) plan(p *GCPlan, f file, reason string, grace time.Duration) {
	age := s.opt.Now().Sub(f.mtime)
	if grace > 0 && age < grace {
		p.Kept++
		p.KeptBytes += f.size
		return
	}
	p.Remove = append(p.Remove, Removal{Path: f.path, Size: f.size, Age: age.Round(time.Second).String(), Reason: reason, mtime: f.mtime})
	p.Bytes += f.size
}

// reached lists what can be reached from roots, in any digest algorithm, with
// the manifests whose subject is among it.
func (s *Store) reached(ctx context.Context, roots []ocispec.Descriptor) (map[godigest.Digest]bool, error) {
	out := map[godigest.Digest]bool{}
	visit := func(e artifacts.Edge) error {
		out[e.To.Digest] = true
		return nil
	}
	bad := func(e artifacts.Edge, err error) error {
		if e.From == "" {
			return fmt.Errorf("root %s: %w", e.To.Digest, err)
		}
		return fmt.Errorf("manifest %s, needed by %s: %w", e.To.Digest, e.From, err)
	}
	if err := artifacts.Walk(ctx, roots, s.readManifest, visit, bad); err != nil {
		return nil, err
	}
	return out, s.reachReferrers(ctx, out)
}

// reachReferrers adds manifests that say something about what is reached, such
// as signatures, and what these reach in turn.
func (s *Store) reachReferrers(ctx context.Context, reached map[godigest.Digest]bool) error {
	blobs, err := s.List(ctx)
	if err != nil {
		return err
	}
	type referrer struct {
		of godigest.Digest
		d  ocispec.Descriptor
	}
	var open []referrer
	for _, b := range blobs {
		id := godigest.Digest(b.Digest.String())
		if reached[id] || b.Size > artifacts.MaxManifest {
			continue
		}
		if m, ok := s.subjectOf(ctx, b); ok {
			open = append(open, referrer{m.Subject.Digest, ocispec.Descriptor{MediaType: m.MediaType, Digest: id, Size: b.Size}})
		}
	}
	for again := true; again; {
		again = false
		for _, r := range open {
			if reached[r.d.Digest] || !reached[r.of] {
				continue
			}
			again = true
			err := artifacts.Walk(ctx, []ocispec.Descriptor{r.d}, s.readManifest,
				func(e artifacts.Edge) error { reached[e.To.Digest] = true; return nil },
				func(artifacts.Edge, error) error { return nil })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// subjectOf reads a blob that may be a manifest with a subject.
func (s *Store) subjectOf(ctx context.Context, in artifacts.Info) (*ocispec.Manifest, bool) {
	b, err := s.Open(ctx, in.Digest)
	if err != nil {
		return nil, false
	}
	defer b.Close()
	var first [1]byte
	if _, err := b.ReadAt(first[:], 0); err != nil || first[0] != '{' {
		return nil, false
	}
	return parseReferrer(b, in.Size)
}

// readManifest reads a manifest of any digest algorithm that is in the layout.
func (s *Store) readManifest(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if strings.HasPrefix(string(d.Digest), digest.Prefix) {
		return artifacts.ManifestReader(s)(ctx, d)
	}
	// The index and manifests are parsed with a grammar under which both parts
	// are plain file names.
	alg, enc, _ := strings.Cut(string(d.Digest), ":")
	raw, err := readSmall(s.path("blobs", alg, enc), artifacts.MaxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob %s: %w", d.Digest, artifacts.ErrNotFound)
	}
	return raw, err
}

// GCResult is what gc has done.
type GCResult struct {
	Removed int   `json:"removed"`
	Bytes   int64 `json:"bytes"`
	// Skipped counts planned removals that had come into use meanwhile.
	Skipped int `json:"skipped"`
}

// ExecuteGC removes what a plan of this store lists, except what has been
// written, tagged or used since. While it runs no other process writes; if one
// does already, it fails with artifacts.ErrInUse.
func (s *Store) ExecuteGC(ctx context.Context, p *GCPlan) (*GCResult, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	release, err := s.lockOut(ctx, p.opt.Wait)
	if err != nil {
		return nil, err
	}
	defer release()
	now, err := s.PlanGC(ctx, p.opt)
	if err != nil {
		return nil, err
	}
	still := map[string]time.Time{}
	for _, r := range now.Remove {
		still[r.Path] = r.mtime
	}
	res := &GCResult{}
	dirs := map[string]bool{}
	for _, r := range p.Remove {
		if err := context.Cause(ctx); err != nil {
			return res, err
		}
		if m, ok := still[r.Path]; !ok || !m.Equal(r.mtime) {
			res.Skipped++
			continue
		}
		gone, err := s.remove(r)
		if err != nil {
			return res, s.changeError(err)
		}
		if !gone {
			res.Skipped++
			continue
		}
		res.Removed++
		res.Bytes += r.Size
		dirs[filepath.Dir(s.path(r.Path))] = true
	}
	for d := range dirs {
		if err := atomicfile.SyncDir(d); err != nil {
			return res, s.changeError(err)
		}
	}
	return res, s.dropStaleKeys(ctx)
}

// remove deletes one file; temporary ones only if no process writes them.
func (s *Store) remove(r Removal) (bool, error) {
	full := s.path(r.Path)
	if err := s.before(atomicfile.StepRemove, full); err != nil {
		return false, err
	}
	if atomicfile.IsTemp(path.Base(r.Path)) {
		return atomicfile.RemoveAbandoned(full), nil
	}
	err := os.Remove(full)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// lockOut takes the lock that every writer shares.
func (s *Store) lockOut(ctx context.Context, wait time.Duration) (func(), error) {
	if wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		release, err := s.lock(waiting, lockGC, true)
		if err == nil {
			return release, nil
		}
		if context.Cause(ctx) != nil {
			return nil, context.Cause(ctx)
		}
		if waiting.Err() == nil {
			return nil, s.changeError(err)
		}
	}
	release, err := s.tryLock(lockGC)
	if err != nil {
		return nil, s.changeError(err)
	}
	if release == nil {
		return nil, fmt.Errorf("store %s: %w: another process is writing to it; try again when it is done", s.dir, artifacts.ErrInUse)
	}
	return release, nil
}

// dropStaleKeys forgets keys whose bytes are gone.
func (s *Store) dropStaleKeys(ctx context.Context) error {
	blobs, err := s.List(ctx)
	if err != nil {
		return err
	}
	sizes := map[artifacts.Digest]int64{}
	for _, b := range blobs {
		sizes[b.Digest] = b.Size
	}
	keep := func(k artifacts.KeyRef) bool {
		size, ok := sizes[k.Blob]
		return ok && k.Fits(size)
	}
	byName, bad, err := s.keyTables(ctx)
	if err != nil {
		return err
	}
	stale := len(bad) > 0
	for _, t := range byName {
		for i := range t.len() {
			stale = stale || !keep(t.at(i))
		}
	}
	if !stale {
		return nil
	}
	return s.mergeKeys(ctx, keep)
}

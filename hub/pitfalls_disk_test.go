package hub

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"quern/hub/hubtest"
)

// Pitfalls 115 and 116: no links, safe names, and nothing deleted that is not
// ours or not old.
func TestPitfall116SafeNames(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	stray := filepath.Join(r.spool, "notes.txt")
	os.MkdirAll(r.spool, 0o755)
	if err := os.WriteFile(stray, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := r.snapshot(r.client())
	fetchAll(t, s, toyFiles())
	s.Close()
	safe := regexp.MustCompile(`^[a-z0-9-]+(\.json|\.bad)?$`)
	for _, name := range listDir(t, r.spool) {
		base := filepath.Base(name)
		if base != cacheTagName && base != "notes.txt" && !safe.MatchString(base) {
			t.Errorf("name %s", name)
		}
		if st, err := os.Lstat(filepath.Join(r.spool, name)); err != nil || st.Mode()&os.ModeSymlink != 0 {
			t.Errorf("%s is a link", name)
		}
	}
	entries := func() int { l, _ := ListSpool(r.spool); return len(l.Entries) }
	before := entries()
	if _, err := CleanSpool(t.Context(), r.spool, CleanOptions{}); err != nil || entries() != before || before == 0 {
		t.Errorf("young entries were removed: %d of %d left, %v", entries(), before, err)
	}
	dry, err := CleanSpool(t.Context(), r.spool, CleanOptions{OlderThan: -1, DryRun: true})
	if err != nil || len(dry.Removed) != before || entries() != before {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	// An entry that is open stays.
	open := r.snapshot(r.client())
	read(t, open, "config.json", 0, 5)
	res, err := CleanSpool(t.Context(), r.spool, CleanOptions{OlderThan: -1})
	if err != nil || len(res.Removed) != before-1 || len(res.InUse) != 1 {
		t.Errorf("clean: %d removed, %d in use of %d, %v", len(res.Removed), len(res.InUse), before, err)
	}
	wantBytes(t, "entry in use", read(t, open, "config.json", 0, 5), toyFiles()["config.json"].Data[:5])
	open.Close()
	if _, err := CleanSpool(t.Context(), r.spool, CleanOptions{OlderThan: -1}); err != nil || entries() != 0 {
		t.Errorf("%d entries left, %v", entries(), err)
	}
	if b, err := os.ReadFile(stray); err != nil || string(b) != "mine" {
		t.Errorf("the stray file: %q, %v", b, err)
	}
}

// Pitfall 118: a mirror that reports size 0.
func TestPitfall118SizeZero(t *testing.T) {
	zero := int64(0)
	data := noise(19, 2166)
	files := map[string]*hubtest.File{
		"git":   {Data: data, ListedSize: &zero},
		"lfs":   {Data: data, LFS: true, ListedSize: &zero},
		"empty": hubtest.Git(""),
	}
	r := newRig(t, hubtest.Options{}, files)
	r.hub.Inject(hubtest.Fault{Method: "HEAD", Times: -1, ZeroLength: true})
	s := r.snapshot(r.client())
	for _, f := range s.Files() {
		want := int64(-1)
		if f.Path == "empty" {
			want = 0
		}
		if f.Size != want {
			t.Errorf("%s: size %d", f.Path, f.Size)
		}
	}
	for p, f := range files {
		got, err := s.ReadFile(t.Context(), p, 3000)
		if err != nil || !bytes.Equal(got, f.Data) {
			t.Errorf("%s: %d bytes, %v", p, len(got), err)
		}
		b, err := s.Open(t.Context(), p)
		if err != nil || b.Size() != int64(len(f.Data)) {
			t.Errorf("%s: %v", p, err)
		}
	}
	if _, err := s.ReadFile(t.Context(), "lfs", 2165); !errors.Is(err, ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	// A range without a total leaves the size unknown; one byte is not it.
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Times: -1, ContentRange: "bytes 0-0/*"})
	if _, err := r.snapshot(r.client()).Open(t.Context(), "lfs"); !errors.Is(err, ErrRange) {
		t.Errorf("no total: %v", err)
	}
}

// quotaFile fails with ENOSPC once the quota is used up, after writing what
// fits, as disks do.
type quotaFile struct {
	*os.File
	left *int64
}

func (q quotaFile) WriteAt(p []byte, off int64) (int, error) {
	n := int64(len(p))
	if n <= *q.left {
		*q.left -= n
		return q.File.WriteAt(p, off)
	}
	m, err := q.File.WriteAt(p[:*q.left], off)
	*q.left = 0
	if err == nil {
		err = &os.PathError{Op: "write", Path: q.Name(), Err: syscall.ENOSPC}
	}
	return m, err
}

// Pitfall 119: a full disk is named as such, what came before is kept and is
// right.
func TestPitfall119DiskFull(t *testing.T) {
	data := noise(21, 3_000_000)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	left := int64(1 << 20)
	s := r.snapshot(r.client(func(o *Options) {
		o.Concurrency = 1
		o.hooks.openData = func(path string) (dataFile, error) {
			f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
			return quotaFile{f, &left}, err
		}
	}))
	b, err := s.Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	err = b.ReadAt(t.Context(), make([]byte, len(data)), 0)
	if !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), r.spool) {
		t.Fatalf("%v", err)
	}
	s.Close()
	for _, name := range listDir(t, r.spool) {
		if strings.Contains(name, "tmp") {
			t.Errorf("left behind: %s", name)
		}
	}
	r.hub.ResetLog()
	got, err := r.snapshot(r.client()).ReadFile(t.Context(), weights, 10<<20)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("after room was made: %v", err)
	}
	if sent := r.hub.Sent(weights); sent >= int64(len(data)) || sent < int64(len(data))-1<<20 {
		t.Errorf("%d bytes sent of %d", sent, len(data))
	}
}

// Pitfall 119: a disk that is too small is found out before anything is
// fetched.
func TestPitfall119TooLittleSpace(t *testing.T) {
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(noise(23, 1_000_000))})
	free := int64(600_000)
	s := r.snapshot(r.client(func(o *Options) {
		o.hooks.freeBytes = func(string) (int64, error) { return free, nil }
	}))
	need := func(lo, n int64) error {
		if err := s.Need(t.Context(), weights, []Range{{lo, n}}); err != nil {
			t.Fatal(err)
		}
		return s.Prefetch()
	}
	if err := need(0, 500_000); err != nil {
		t.Fatal(err)
	}
	read(t, s, weights, 0, 500_000)
	free = 100_000
	if err := need(500_000, 100_000); err != nil {
		t.Errorf("just enough: %v", err)
	}
	read(t, s, weights, 500_000, 100_000)
	before := r.hub.Count(hubtest.CDN, "")
	if err := need(600_000, 100_001); !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "100001") || !strings.Contains(err.Error(), r.spool) {
		t.Errorf("%v", err)
	}
	if n := r.hub.Count(hubtest.CDN, ""); n != before {
		t.Errorf("%d requests", n-before)
	}
}

// Pitfall 119: a missing folder is made, one that cannot be is named.
func TestPitfall119MissingFolder(t *testing.T) {
	r := newRig(t, hubtest.Options{}, toyFiles())
	r.spool = filepath.Join(t.TempDir(), "a", "b", "c")
	read(t, r.snapshot(r.client()), "config.json", 0, 5)
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.spool = filepath.Join(blocked, "spool")
	s := r.snapshot(r.client())
	if _, err := s.Open(t.Context(), "config.json"); err == nil || !strings.Contains(err.Error(), blocked) {
		t.Errorf("a file in the way: %v", err)
	}
}

// Pitfall 121: several writers and readers of one spool.
func TestPitfall121ParallelUsers(t *testing.T) {
	data := noise(22, 2_500_000)
	files := map[string]*hubtest.File{weights: hubtest.LFS(data), "config.json": hubtest.Git("{}")}
	r := newRig(t, hubtest.Options{}, files)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := r.client(func(o *Options) { o.Concurrency = 2 }).Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			b, err := s.Open(t.Context(), weights)
			if err != nil {
				t.Error(err)
				return
			}
			for k := range 10 {
				off := int64((i*7 + k*3) % 10 * 250_000)
				p := make([]byte, 250_000)
				if err := b.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, data[off:off+250_000]) {
					t.Errorf("user %d at %d: %v", i, off, err)
				}
			}
			if err := s.Finish(t.Context()); err != nil {
				t.Errorf("user %d: finish: %v", i, err)
			}
			if _, err := ListSpool(r.spool); err != nil {
				t.Errorf("user %d: list: %v", i, err)
			}
		})
	}
	wg.Wait()
	if sent := r.hub.Sent(weights); sent > 4*int64(len(data)) {
		t.Errorf("%d bytes sent for %d: the users do not see each other's work", sent, len(data))
	}
}

package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"quern/hub/hubtest"
)

// cacheRig is a hub whose repository is in a cache folder too.
type cacheRig struct {
	*rig
	files map[string]*hubtest.File
	dir   string // the cache
	repo  string // the repository's folder in it
}

func newCacheRig(t *testing.T) *cacheRig {
	files := toyFiles()
	c := &cacheRig{files: files, dir: t.TempDir()}
	c.rig = newRig(t, hubtest.Options{}, files)
	c.repo = writeCache(t, c.dir, c.commit, files)
	return c
}

func (c *cacheRig) use(o *Options) { o.CacheDirs = []string{filepath.Join(c.dir, "none"), c.dir} }

func (c *cacheRig) open(change ...func(*Options)) (*Snapshot, error) {
	s, err := c.client(append([]func(*Options){c.use}, change...)...).Snapshot(c.t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
	if err == nil {
		c.t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func (c *cacheRig) mustOpen(change ...func(*Options)) *Snapshot {
	c.t.Helper()
	s, err := c.open(change...)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// blob is the path of a file's blob.
func (c *cacheRig) blob(path string) string {
	real, err := filepath.EvalSymlinks(filepath.Join(c.repo, "snapshots", c.commit, path))
	if err != nil {
		c.t.Fatal(err)
	}
	return real
}

// writeTree writes trees/<commit>.json as huggingface_hub does.
func (c *cacheRig) writeTree() {
	files := map[string]any{}
	for p, f := range c.files {
		e := map[string]any{"size": len(f.Data), "blob_id": f.OID()}
		if f.LFS {
			e["lfs_sha256"], e["lfs_size"], e["xet_hash"] = f.SHA256(), len(f.Data), strings.Repeat("0", 64)
		}
		files[p] = e
	}
	b, _ := json.Marshal(map[string]any{"format_version": 1, "files": files})
	c.write("trees/"+c.commit+".json", b)
}

func (c *cacheRig) write(rel string, b []byte) {
	c.t.Helper()
	path := filepath.Join(c.repo, filepath.FromSlash(rel))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func TestCacheOfflineInPlace(t *testing.T) {
	for _, tree := range []bool{false, true} {
		c := newCacheRig(t)
		if tree {
			c.writeTree()
		}
		before := listDir(t, c.dir)
		s := c.mustOpen(offline)
		if s.Commit != c.commit || len(s.Files()) != len(c.files) {
			t.Fatalf("tree %v: commit %s, %d files", tree, s.Commit, len(s.Files()))
		}
		fetchAll(t, s, c.files)
		st := s.Stats()
		if st.FromCache != st.Needed || st.Needed == 0 || st.Requests != 0 || c.hub.Count(hubtest.Any, "") != 0 {
			t.Errorf("tree %v: %+v", tree, st)
		}
		if after := listDir(t, c.dir); !reflect.DeepEqual(before, after) {
			t.Errorf("the cache was written to: %v", after)
		}
	}
}

// TestCacheCompleteMakesNoRequest: a pinned commit whose listing is cached is
// read without asking, also online.
func TestCacheCompleteMakesNoRequest(t *testing.T) {
	c := newCacheRig(t)
	c.writeTree()
	s, err := c.client(c.use).Snapshot(t.Context(), Ref{rigID, c.commit}, SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fetchAll(t, s, c.files)
	if n := c.hub.Count(hubtest.Any, ""); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestCacheRefs(t *testing.T) {
	c := newCacheRig(t)
	c.write("refs/refs/pr/1", []byte(c.commit+"\n"))
	c.write("refs/bad", []byte("../../etc"))
	c.write("refs/gone", []byte(strings.Repeat("0", 40)))
	open := func(rev string) error {
		s, err := c.client(c.use, offline).Snapshot(t.Context(), Ref{rigID, rev}, SnapshotOptions{})
		if err == nil {
			defer s.Close()
			if s.Commit != c.commit {
				t.Errorf("%s: commit %s", rev, s.Commit)
			}
		}
		return err
	}
	for _, rev := range []string{"main", "refs/pr/1", c.commit} {
		if err := open(rev); err != nil {
			t.Errorf("%s: %v", rev, err)
		}
	}
	// A commit whose folder is missing is a miss; no other commit stands in.
	for _, rev := range []string{"bad", "gone", "none", strings.Repeat("1", 40)} {
		if err := open(rev); !errors.Is(err, ErrOffline) {
			t.Errorf("%s: %v", rev, err)
		}
	}
}

// TestCachePartialSnapshot: what the cache lacks is fetched online, and named
// offline, unless it is noted as absent.
func TestCachePartialSnapshot(t *testing.T) {
	for _, tree := range []bool{false, true} {
		c := newCacheRig(t)
		if tree {
			c.writeTree()
		}
		if err := os.Remove(filepath.Join(c.repo, "snapshots", c.commit, weights)); err != nil {
			t.Fatal(err)
		}
		c.write(".no_exist/"+c.commit+"/generation_config.json", nil)
		s := c.mustOpen(offline)
		if _, err := s.ReadFile(t.Context(), "config.json", 100); err != nil {
			t.Errorf("tree %v: %v", tree, err)
		}
		if _, err := s.ReadFile(t.Context(), weights, 10<<20); !errors.Is(err, ErrOffline) || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), weights) {
			t.Errorf("tree %v: missing file offline: %v", tree, err)
		}
		if _, err := s.ReadFile(t.Context(), "generation_config.json", 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("tree %v: file noted as absent: %v", tree, err)
		}
		on := c.mustOpen()
		fetchAll(t, on, c.files)
		for p, f := range c.files {
			want := int64(0)
			if p == weights {
				want = int64(len(f.Data))
			}
			if got := c.hub.Sent(p); got != want {
				t.Errorf("tree %v: %s: %d bytes sent, want %d", tree, p, got, want)
			}
		}
	}
}

// TestCacheDamage: a copy that is not what its name or the listing says is an
// error offline and fetched online.
func TestCacheDamage(t *testing.T) {
	flip := func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b }
	for _, damage := range []struct {
		name string
		do   func(*cacheRig)
	}{
		{"truncated", func(c *cacheRig) { os.Truncate(c.blob(weights), 1000) }},
		{"emptied", func(c *cacheRig) { os.Truncate(c.blob(weights), 0) }},
		{"one bit", func(c *cacheRig) { os.WriteFile(c.blob(weights), flip(c.files[weights].Data), 0o644) }},
		{"link to the outside", func(c *cacheRig) {
			out := filepath.Join(c.t.TempDir(), c.files[weights].SHA256())
			os.WriteFile(out, c.files[weights].Data, 0o644)
			link := filepath.Join(c.repo, "snapshots", c.commit, weights)
			os.Remove(link)
			os.Symlink(out, link)
		}},
		{"link to a folder", func(c *cacheRig) {
			link := filepath.Join(c.repo, "snapshots", c.commit, weights)
			os.Remove(link)
			os.Symlink("../../blobs", link)
		}},
		{"dangling link", func(c *cacheRig) { os.Remove(c.blob(weights)) }},
		{"unfinished", func(c *cacheRig) {
			b := c.blob(weights)
			os.Rename(b, b+".0011aabb.incomplete")
			link := filepath.Join(c.repo, "snapshots", c.commit, weights)
			os.Remove(link)
			os.Symlink("../../blobs/"+filepath.Base(b)+".0011aabb.incomplete", link)
		}},
	} {
		for _, tree := range []bool{false, true} {
			name := damage.name
			if tree {
				name += ", listing"
			}
			t.Run(name, func(t *testing.T) {
				c := newCacheRig(t)
				if tree {
					c.writeTree()
				}
				damage.do(c)
				s, err := c.open(offline)
				if err == nil {
					_, err = s.ReadFile(t.Context(), weights, 10<<20)
				}
				if err == nil {
					t.Fatal("the damaged copy was read offline")
				}
				if !errors.Is(err, ErrDigest) && !errors.Is(err, ErrSize) && !errors.Is(err, ErrPath) && !errors.Is(err, ErrOffline) && !errors.Is(err, ErrListing) {
					t.Errorf("offline: %v", err)
				}
				fetchAll(t, c.mustOpen(), c.files)
				if c.hub.Sent(weights) == 0 {
					t.Error("nothing was fetched")
				}
			})
		}
	}
}

// TestCacheBlobNamedByXetHash: 64 hex digits are a claim.
func TestCacheBlobNamedByXetHash(t *testing.T) {
	c := newCacheRig(t)
	b := c.blob(weights)
	other := strings.Repeat("5", 64)
	os.Rename(b, filepath.Join(filepath.Dir(b), other))
	link := filepath.Join(c.repo, "snapshots", c.commit, weights)
	os.Remove(link)
	os.Symlink("../../blobs/"+other, link)
	s := c.mustOpen(offline)
	if _, err := s.ReadFile(t.Context(), weights, 10<<20); !errors.Is(err, ErrDigest) {
		t.Errorf("nothing proves it: %v", err)
	}
	// The listing proves it.
	c.writeTree()
	got, err := c.mustOpen(offline).ReadFile(t.Context(), weights, 10<<20)
	if err != nil || !bytes.Equal(got, c.files[weights].Data) {
		t.Errorf("with the listing: %v", err)
	}
}

// TestCacheWithoutLinks: plain files in place of links, as on Windows.
func TestCacheWithoutLinks(t *testing.T) {
	c := newCacheRig(t)
	for p, f := range c.files {
		link := filepath.Join(c.repo, "snapshots", c.commit, filepath.FromSlash(p))
		os.Remove(link)
		if err := os.WriteFile(link, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os.RemoveAll(filepath.Join(c.repo, "blobs"))
	fetchAll(t, c.mustOpen(offline), c.files)
	if len(c.events.of(EventCache)) == 0 {
		t.Error("nothing says that the copies are unchecked")
	}
	c.writeTree()
	os.WriteFile(filepath.Join(c.repo, "snapshots", c.commit, weights), noise(99, len(c.files[weights].Data)), 0o644)
	if _, err := c.mustOpen(offline).ReadFile(t.Context(), weights, 10<<20); !errors.Is(err, ErrDigest) {
		t.Errorf("wrong plain file: %v", err)
	}
}

// TestCacheFolderIsALink: the repository's folder itself may be one.
func TestCacheFolderIsALink(t *testing.T) {
	c := newCacheRig(t)
	elsewhere := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(c.repo, elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, c.repo); err != nil {
		t.Fatal(err)
	}
	fetchAll(t, c.mustOpen(offline), c.files)
}

func TestCacheBadListingIsPassedOver(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":   "x",
		"version":    `{"format_version":2,"files":{}}`,
		"no size":    `{"format_version":1,"files":{"a":{"blob_id":"` + strings.Repeat("a", 40) + `"}}}`,
		"path":       `{"format_version":1,"files":{"../a":{"size":1,"blob_id":"` + strings.Repeat("a", 40) + `"}}}`,
		"digest":     `{"format_version":1,"files":{"a":{"size":1,"blob_id":"b","lfs_sha256":"x"}}}`,
		"huge sizes": `{"format_version":1,"files":{"a":{"size":1e99,"blob_id":"b"}}}`,
	} {
		c := newCacheRig(t)
		c.write("trees/"+c.commit+".json", []byte(text))
		fetchAll(t, c.mustOpen(), c.files)
		if len(c.events.of(EventCache)) == 0 {
			t.Errorf("%s: nothing was said", name)
		}
	}
}

// TestCacheLargeFileIsHashedLate: the header of a large file is read at once,
// what follows only after the whole has been hashed.
func TestCacheLargeFileIsHashedLate(t *testing.T) {
	data := noise(20, freeHead+1<<20)
	files := map[string]*hubtest.File{weights: hubtest.LFS(data)}
	c := &cacheRig{files: files, dir: t.TempDir()}
	c.rig = newRig(t, hubtest.Options{}, files)
	c.repo = writeCache(t, c.dir, c.commit, files)
	c.writeTree()
	bad := bytes.Clone(data)
	bad[5] ^= 1
	if err := os.WriteFile(c.blob(weights), bad, 0o644); err != nil {
		t.Fatal(err)
	}
	s := c.mustOpen(offline)
	wantBytes(t, "header", read(t, s, weights, 0, 100), bad[:100])
	if err := s.Finish(t.Context()); !errors.Is(err, ErrDigest) {
		t.Errorf("finish offline: %v", err)
	}
	s = c.mustOpen(offline)
	b, err := s.Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ReadAt(t.Context(), make([]byte, 10), freeHead); !errors.Is(err, ErrDigest) {
		t.Errorf("weights offline: %v", err)
	}
	// Where only the blob's name says what it is, not even the header is
	// believed.
	trees := filepath.Join(c.repo, "trees")
	if err := os.Rename(trees, trees+".away"); err != nil {
		t.Fatal(err)
	}
	if b, err = c.mustOpen(offline, inMemory).Open(t.Context(), weights); err != nil {
		t.Fatal(err)
	}
	if err := b.ReadAt(t.Context(), make([]byte, 10), 0); !errors.Is(err, ErrDigest) {
		t.Errorf("header without a listing: %v", err)
	}
	if err := os.Rename(trees+".away", trees); err != nil {
		t.Fatal(err)
	}
	s = c.mustOpen()
	wantBytes(t, "header", read(t, s, weights, 0, 100), bad[:100])
	if err := s.Finish(t.Context()); !errors.Is(err, ErrRepaired) {
		t.Errorf("finish online: %v", err)
	}
	wantBytes(t, "header again", read(t, s, weights, 0, 100), data[:100])
	if err := s.Finish(t.Context()); err != nil {
		t.Errorf("finish after repair: %v", err)
	}
}

// TestCacheBadCopyUnderParallelReaders: readers that are in the header of a bad
// copy while another finds it out all end with the right bytes or the word that
// they must start over.
func TestCacheBadCopyUnderParallelReaders(t *testing.T) {
	const size = freeHead + 1<<20
	files := map[string]*hubtest.File{weights: hubtest.LFSReader(pattern{size}, size)}
	c := &cacheRig{files: files, dir: t.TempDir()}
	c.rig = newRig(t, hubtest.Options{}, files)
	files[weights].Data = make([]byte, size) // the cache gets zeros
	c.repo = writeCache(t, c.dir, c.commit, files)
	c.writeTree()
	s := c.mustOpen(inMemory)
	b, err := s.Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			p := make([]byte, 100)
			for k := range int64(50) {
				off := k * 1000
				if i == 0 && k == 20 {
					off = freeHead
				}
				if err := b.ReadAt(t.Context(), p, off); err != nil {
					t.Errorf("reader %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := s.Finish(t.Context()); !errors.Is(err, ErrRepaired) {
		t.Errorf("finish: %v", err)
	}
	checkPattern(t, read(t, s, weights, 0, 1000), 0)
}

package local_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/internal/atomicfile"
)

// counted hashes a file and says how many bytes were read for it.
func counted(t *testing.T, s *local.Store, path string) (artifacts.Digest, int64) {
	t.Helper()
	var read int64
	d, size, err := s.FileDigest(t.Context(), path, func(n int64) { read += n })
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != size {
		t.Errorf("size %d, %v", size, err)
	}
	return d, read
}

func writeFile(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestStatCache counts bytes read. The clock stands an hour ahead, so that files
// made by the test count as left alone.
func TestStatCache(t *testing.T) {
	c := &clock{offset: time.Hour}
	s := open(t, t.TempDir(), local.Options{Now: c.now})
	path := filepath.Join(t.TempDir(), "weights.safetensors")
	writeFile(t, path, "0123456789")
	want := artifacts.DigestOf([]byte("0123456789"))
	if _, _, known := s.KnownDigest(path); known {
		t.Error("known before it was read")
	}
	if d, n := counted(t, s, path); d != want || n != 10 {
		t.Errorf("%s after %d bytes", d, n)
	}
	if d, n := counted(t, s, path); d != want || n != 0 {
		t.Errorf("second time: %s after %d bytes", d, n)
	}
	if d, size, known := s.KnownDigest(path); !known || d != want || size != 10 {
		t.Errorf("%s, %d, %v", d, size, known)
	}
	// Another store handle, as the next process has one.
	if _, n := counted(t, open(t, s.Dir(), local.Options{}), path); n != 0 {
		t.Errorf("another process read %d bytes", n)
	}
	// Times are set, as two writes may come within one tick of the clock.
	mtime := func(sec, ns int64) {
		if err := os.Chtimes(path, c.now(), time.Unix(sec, ns)); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name   string
		change func()
	}{
		{"content, size", func() { writeFile(t, path, "0123456789a") }},
		{"content, time", func() { writeFile(t, path, "012345678X"); mtime(1e9, 5) }},
		{"one nanosecond", func() { mtime(1e9, 6) }},
		{"another file", func() { writeFile(t, path+"2", "012345678Y"); os.Rename(path+"2", path); mtime(1e9, 6) }},
		{"back to the old", func() { writeFile(t, path, "0123456789"); mtime(1e9, 7) }},
	} {
		x.change()
		name := x.name
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d, n := counted(t, s, path); d != artifacts.DigestOf(b) || n != int64(len(b)) {
			t.Errorf("%s: %d bytes read of %d", name, n, len(b))
		}
		if _, n := counted(t, s, path); n != 0 {
			t.Errorf("%s: read again", name)
		}
	}
}

// TestStatCacheRacyWindow hashes files at moments around their last change: a
// later change within the same tick of the file system's clock could not be
// seen, so fresh files are not remembered.
func TestStatCacheRacyWindow(t *testing.T) {
	c := &clock{}
	s := open(t, t.TempDir(), local.Options{Now: c.now})
	path := filepath.Join(t.TempDir(), "f")
	for _, x := range []struct {
		age   time.Duration
		known bool
	}{{0, false}, {time.Second, false}, {-time.Hour, false}, {3 * time.Second, true}, {time.Hour, true}} {
		writeFile(t, path, x.age.String())
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		c.offset = time.Until(st.ModTime()) + x.age
		counted(t, s, path)
		if _, _, known := s.KnownDigest(path); known != x.known {
			t.Errorf("hashed %v after the change: known %v", x.age, known)
		}
		os.Remove(path)
	}
}

func TestStatCacheDamage(t *testing.T) {
	c := &clock{offset: time.Hour}
	s := open(t, t.TempDir(), local.Options{Now: c.now})
	path := filepath.Join(t.TempDir(), "f")
	writeFile(t, path, "data")
	counted(t, s, path)
	entries := files(t, filepath.Join(s.Dir(), "quern", "stat"))
	if len(entries) != 1 {
		t.Fatalf("entries %v", entries)
	}
	entry := filepath.Join(s.Dir(), "quern", "stat", entries[0])
	good, err := os.ReadFile(entry)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(good), filepath.ToSlash(filepath.Dir(path))) {
		t.Errorf("the entry holds a path: %s", good)
	}
	for _, bad := range []string{"", "{}", "null", string(good[:len(good)/2]), string(good) + "{}", strings.Replace(string(good), "size", "sizes", 1)} {
		writeFile(t, entry, bad)
		if d, n := counted(t, s, path); n != 4 || d != artifacts.DigestOf([]byte("data")) {
			t.Errorf("%q was believed", bad)
		}
	}
}

func TestStatCacheErrors(t *testing.T) {
	c := &clock{offset: time.Hour}
	full := false
	s := open(t, t.TempDir(), local.Options{Now: c.now, Before: func(atomicfile.Step, string) error {
		if full {
			return errors.New("injected")
		}
		return nil
	}})
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if _, _, err := s.FileDigest(t.Context(), path, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, _, err := s.FileDigest(t.Context(), dir, nil); err == nil {
		t.Error("a folder has a digest")
	}
	writeFile(t, path, strings.Repeat("x", 3<<20))
	// Written to while it is read: neither the old nor the new digest is right.
	_, _, err := s.FileDigest(t.Context(), path, func(int64) { os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)) })
	if !errors.Is(err, local.ErrChanged) {
		t.Errorf("changed: %v", err)
	}
	_, _, err = s.FileDigest(t.Context(), path, func(int64) { os.Truncate(path, 5) })
	if err == nil {
		t.Error("cut while it was read: no error")
	}
	writeFile(t, path, strings.Repeat("x", 3<<20))
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	if _, _, err = s.FileDigest(ctx, path, func(int64) { cancel(stop) }); !errors.Is(err, stop) {
		t.Errorf("cancelled: %v", err)
	}
	full = true
	if d, n := counted(t, s, path); n != 3<<20 || d.IsZero() {
		t.Errorf("a cache that cannot be written: %s, %d", d, n)
	}
	full = false
	if _, n := counted(t, s, path); n != 3<<20 {
		t.Error("remembered without having been written")
	}
}

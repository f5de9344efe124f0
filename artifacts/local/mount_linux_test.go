package local_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/storetest"
)

// small gives a file system of one megabyte, or "" where that takes rights that
// the tests do not have; then the injected faults of TestEveryStepFails and
// TestReadOnly have to do.
func small(t *testing.T) string {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Logf("no small file system: %v", err)
		return ""
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestRealFullDisk writes more than fits, with and without saying so first.
func TestRealFullDisk(t *testing.T) {
	dir := small(t)
	if dir == "" {
		return
	}
	ctx := t.Context()
	s := open(t, dir, local.Options{})
	_, d := storetest.Example(t, s, 1)
	if err := s.Tag(ctx, "example", d); err != nil {
		t.Fatal(err)
	}
	before, err := s.FreeBytes()
	if err != nil || before <= 0 || before > 1<<20 {
		t.Fatalf("%d bytes free, %v", before, err)
	}
	for _, size := range []int64{0, 2 << 20} {
		w, err := s.NewBlob(ctx, artifacts.BlobOptions{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		for err == nil && w.Size() < 2<<20 {
			_, err = w.Write(make([]byte, 50_000))
		}
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("%v", err)
		}
		if size > 0 && w.Size() > 0 {
			t.Errorf("%d bytes were written before it was noticed", w.Size())
		}
		if _, err := w.Commit(artifacts.Digest{}); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("commit: %v", err)
		}
		if l := leftovers(t, s); len(l) != 0 {
			t.Errorf("left behind: %v", l)
		}
		if after, err := s.FreeBytes(); err != nil || after != before {
			t.Errorf("%d bytes free, before %d, %v", after, before, err)
		}
	}
	if f, err := s.Verify(ctx, artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("verify: %v, %v", f, err)
	}
}

func TestRealReadOnly(t *testing.T) {
	dir := small(t)
	if dir == "" {
		return
	}
	s := open(t, dir, local.Options{})
	_, d := storetest.Example(t, s, 1)
	if err := s.Tag(t.Context(), "example", d); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, opt := range []local.Options{{}, {ReadOnly: true}} {
		readsButDoesNotWrite(t, open(t, dir, opt), d)
	}
	// The one that was opened before finds out on its first write.
	readsButDoesNotWrite(t, s, d)
}

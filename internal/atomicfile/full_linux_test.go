package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fullDisk gives a file system of a megabyte. Only root can mount one; for
// others the injected faults of TestEveryStepCanFail have to do.
func fullDisk(t *testing.T) string {
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

func TestFullDisk(t *testing.T) {
	dir := fullDisk(t)
	if dir == "" {
		return
	}
	ways(t, func(t *testing.T, opt Options) {
		path := filepath.Join(dir, "big")
		for _, size := range []int64{0, 2 << 20} {
			opt.Size = size
			w, err := Create(path, opt)
			if err != nil {
				t.Fatal(err)
			}
			var n int
			for err == nil && n < 2<<20 {
				var k int
				k, err = w.Write(make([]byte, 64<<10))
				n += k
			}
			if !IsDiskFull(err) {
				t.Errorf("write: %v", err)
			}
			if size > 0 && n > 0 {
				t.Errorf("%d bytes written before the promised size was found not to fit", n)
			}
			if err := w.Commit(); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), path) {
				t.Errorf("commit: %v", err)
			}
			if got := names(t, dir); got != "" {
				t.Errorf("folder has %q", got)
			}
		}
		// The space is free again.
		if err := WriteFile(path, make([]byte, 512<<10), unplanned(opt)); err != nil {
			t.Error(err)
		}
		os.Remove(path)
	})
}

func unplanned(opt Options) Options { opt.Size = 0; return opt }

func TestReadOnlyFileSystem(t *testing.T) {
	dir := fullDisk(t)
	if dir == "" {
		return
	}
	if err := WriteFile(filepath.Join(dir, "a"), []byte("x"), Options{}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := Create(filepath.Join(dir, "a"), Options{})
	if !IsReadOnly(err) {
		t.Errorf("%v", err)
	}
	if content(t, filepath.Join(dir, "a")) != "x" {
		t.Error("content changed")
	}
}

// TestWithoutLinks writes where the file without a name cannot be linked to
// its place, as across file systems: the bytes are copied.
func TestWithoutLinks(t *testing.T) {
	other := fullDisk(t)
	if other == "" {
		return
	}
	w, err := CreateIn(t.TempDir(), Options{Size: 5})
	if err != nil {
		t.Fatal(err)
	}
	w.Write([]byte("bytes"))
	path := filepath.Join(other, "a")
	if err := w.CommitAs(path); err != nil || content(t, path) != "bytes" || names(t, other) != "a" {
		t.Errorf("%v, folder has %q", err, names(t, other))
	}
	w, err = CreateIn(t.TempDir(), Options{NoReplace: true})
	if err != nil {
		t.Fatal(err)
	}
	w.Write([]byte("more"))
	if err := w.CommitAs(path); !errors.Is(err, fs.ErrExist) || content(t, path) != "bytes" || names(t, other) != "a" {
		t.Errorf("%v, folder has %q", err, names(t, other))
	}
}

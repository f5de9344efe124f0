package holes

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestPunch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	data := bytes.Repeat([]byte{7}, 1<<20)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SyncPath(path); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before, err := f.Allocated()
	if err != nil {
		t.Fatal(err)
	}
	err = f.Punch(5000, 900_000)
	if errors.Is(err, ErrUnsupported) {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
			t.Errorf("unsupported, and the file has changed: %v", err)
		}
		t.Skip("this file system has no holes")
	}
	if err != nil {
		t.Fatal(err)
	}
	clear(data[5000:905_000])
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("other bytes, or %v", err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if after, err := f.Allocated(); err != nil || before-after < 800_000 {
		t.Errorf("%d bytes on the disk, %d before, %v", after, before, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, filepath.Join(dir, "g")); err != nil {
		t.Skip("no links here")
	}
	if st, err := os.Stat(path); err != nil || links(st) != 2 {
		t.Skip("links are not counted here")
	}
	if _, err := Open(path); !errors.Is(err, ErrLinked) {
		t.Errorf("a linked file: %v", err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a folder is opened")
	}
}

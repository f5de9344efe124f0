package mapped_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"quern/runtime/mapped"
)

func TestFile(t *testing.T) {
	dir := t.TempDir()
	want := bytes.Repeat([]byte("0123456789"), 1000)
	path := filepath.Join(dir, "weights")
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := mapped.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Size() != 10000 {
		t.Errorf("size %d", f.Size())
	}
	got := make([]byte, 20)
	if err := f.ReadAt(t.Context(), got, 9975); err != nil || !bytes.Equal(got, want[9975:9995]) {
		t.Errorf("%q, %v", got, err)
	}
	if err := f.ReadAt(t.Context(), got, 9990); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("past the end: %v", err)
	}
	if b := f.Slice(9975, 20); !bytes.Equal(b, want[9975:9995]) || cap(b) != 20 {
		t.Errorf("slice %q of capacity %d", b, cap(b))
	}
	for _, c := range [][2]int64{{-1, 1}, {0, -1}, {9990, 11}, {10001, 0}, {1 << 62, 1 << 62}} {
		if b := f.Slice(c[0], c[1]); b != nil {
			t.Errorf("slice of %d bytes at %d: %d bytes", c[1], c[0], len(b))
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if b := f.Slice(0, 1); b != nil {
		t.Error("a slice of a closed file")
	}
}

func TestNotMapped(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := mapped.Open(empty)
	if err != nil || f.Size() != 0 {
		t.Fatalf("an empty file: %v", err)
	}
	if err := f.ReadAt(t.Context(), nil, 0); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := mapped.Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := mapped.Open(dir); err == nil {
		t.Error("a folder")
	}
}

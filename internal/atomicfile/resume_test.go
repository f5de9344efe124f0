package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestResume writes a file in three goes.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	tmp, path := filepath.Join(dir, "part"), filepath.Join(dir, "whole")
	opt := Options{Mode: 0o444, Size: 6}
	for i, text := range []string{"ab", "cd", "ef"} {
		f, have, err := Resume(tmp, opt)
		if err != nil {
			t.Fatal(err)
		}
		if have != int64(2*i) {
			t.Errorf("go %d finds %d bytes", i, have)
		}
		if _, _, err := Resume(tmp, opt); !errors.Is(err, ErrBusy) {
			t.Errorf("a second writer: %v", err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			f.Abort()
			continue
		}
		if err := f.CommitAs(path); err != nil {
			t.Fatal(err)
		}
		f.Abort()
		f.Discard()
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) != "abcdef" {
		t.Errorf("%q, %v", b, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o444 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if _, err := os.Stat(tmp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished file: %v", err)
	}
}

// TestResumeFails: a wrong length and a discarded file leave nothing.
func TestResumeFails(t *testing.T) {
	dir := t.TempDir()
	tmp, path := filepath.Join(dir, "part"), filepath.Join(dir, "whole")
	for _, end := range []func(*File){
		func(f *File) {
			if err := f.CommitAs(path); !errors.Is(err, ErrLength) {
				t.Errorf("error %v", err)
			}
		},
		(*File).Discard,
	} {
		f, have, err := Resume(tmp, Options{Size: 6})
		if err != nil || have != 0 {
			t.Fatal(have, err)
		}
		if _, err := f.Write([]byte("ab")); err != nil {
			t.Fatal(err)
		}
		end(f)
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Resume(tmp, Options{}); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a folder: %v", err)
	}
}

//go:build unix

package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestResumeUmask: a resumed file is for those whom any other file is for.
func TestResumeUmask(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	dir := t.TempDir()
	opt := Options{Mode: 0o444, Size: 2}
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := WriteFile(path("plain"), []byte("ab"), opt); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f, have, err := Resume(path("part"), opt)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("ab")[have : have+1]); err != nil {
			t.Fatal(err)
		}
		if have == 0 {
			f.Abort()
		} else if err := f.CommitAs(path("resumed")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"plain", "resumed"} {
		if st, err := os.Stat(path(name)); err != nil || st.Mode().Perm() != 0o400 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
}

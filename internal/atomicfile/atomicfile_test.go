package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// ways runs a test with files that have no name while they are written, where
// the system can do that, and with files that have a temporary one.
func ways(t *testing.T, f func(t *testing.T, opt Options)) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprintf("named=%v", named), func(t *testing.T) { f(t, Options{named: named}) })
	}
}

// names lists a folder, temporary files included.
func names(t *testing.T, dir string) string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestCommit(t *testing.T) {
	ways(t, func(t *testing.T, opt Options) {
		dir := t.TempDir()
		path := filepath.Join(dir, "model.gguf")
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		opt.Size = 8
		opt.Mode = 0o444
		w, err := Create(path, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		if _, err := io.WriteString(w, "new "); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, "data"); err != nil {
			t.Fatal(err)
		}
		if got := content(t, path); got != "old" {
			t.Errorf("%q before Commit", got)
		}
		back := make([]byte, 4)
		if _, err := w.ReadAt(back, 2); err != nil || string(back) != "w da" {
			t.Errorf("read back %q, %v", back, err)
		}
		if got := content(t, w.Name()); got != "new data" {
			t.Errorf("%q by Name", got)
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		w.Abort()
		if got := content(t, path); got != "new data" {
			t.Errorf("%q after Commit", got)
		}
		if got := names(t, dir); got != "model.gguf" {
			t.Errorf("folder has %q", got)
		}
		if st, _ := os.Stat(path); runtime.GOOS != "windows" && st.Mode().Perm() != 0o444 {
			t.Errorf("mode %v", st.Mode())
		}
		if err := w.Commit(); err == nil {
			t.Error("second Commit did not fail")
		}
	})
}

func TestAbortLeavesNothing(t *testing.T) {
	ways(t, func(t *testing.T, opt Options) {
		dir := t.TempDir()
		w, err := Create(filepath.Join(dir, "a"), opt)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, "x")
		w.Abort()
		w.Abort()
		if got := names(t, dir); got != "" {
			t.Errorf("folder has %q", got)
		}
		if err := w.Commit(); err == nil {
			t.Error("Commit after Abort did not fail")
		}
	})
}

func TestLength(t *testing.T) {
	ways(t, func(t *testing.T, opt Options) {
		for _, n := range []int{0, 9, 11} {
			dir := t.TempDir()
			path := filepath.Join(dir, "a")
			opt.Size = 10
			w, err := Create(path, opt)
			if err != nil {
				t.Fatal(err)
			}
			w.Write(make([]byte, n))
			err = w.Commit()
			want := fmt.Sprintf("%d bytes, planned 10", n)
			if !errors.Is(err, ErrLength) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%d bytes: %v", n, err)
			}
			if got := names(t, dir); got != "" {
				t.Errorf("folder has %q", got)
			}
		}
	})
}

// TestEveryStepCanFail lets each step of a write fail in turn, and each write
// of several: the old content stays and nothing of the new one is left.
func TestEveryStepCanFail(t *testing.T) {
	broken := errors.New("injected")
	ways(t, func(t *testing.T, opt Options) {
		for _, noReplace := range []bool{false, true} {
			for fail := 0; ; fail++ {
				dir := t.TempDir()
				path := filepath.Join(dir, "out")
				if !noReplace {
					if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				n := 0
				var failed Step
				opt.NoReplace = noReplace
				opt.Before = func(s Step, p string) error {
					if p != path {
						t.Errorf("step %s of %s", s, p)
					}
					n++
					if n-1 == fail {
						failed = s
						return broken
					}
					return nil
				}
				err := writeThrice(path, opt)
				if failed == "" {
					if err != nil {
						t.Fatalf("no step failed, but: %v", err)
					}
					if got := content(t, path); got != "123" {
						t.Errorf("content %q", got)
					}
					if fail < 7 {
						t.Errorf("only %d steps seen", fail)
					}
					break
				}
				if failed == StepLink {
					if err != nil || content(t, path) != "123" || names(t, dir) != "out" {
						t.Errorf("without links: %v, folder has %q", err, names(t, dir))
					}
					continue
				}
				if !errors.Is(err, broken) || !strings.Contains(err.Error(), dir) {
					t.Errorf("%s failed: error %v", failed, err)
				}
				want := "old"
				switch {
				case failed == StepSyncDir:
					want = "123"
				case noReplace:
					if got := names(t, dir); got != "" {
						t.Errorf("%s failed: folder has %q", failed, got)
					}
					continue
				}
				if got := content(t, path); got != want {
					t.Errorf("%s failed: content %q, want %q", failed, got, want)
				}
				if got := names(t, dir); got != "out" {
					t.Errorf("%s failed: folder has %q", failed, got)
				}
			}
		}
	})
}

// writeThrice ignores the errors of Write, which Commit must remember.
func writeThrice(path string, opt Options) error {
	w, err := Create(path, opt)
	if err != nil {
		return err
	}
	for _, s := range []string{"1", "2", "3"} {
		io.WriteString(w, s)
	}
	return w.Commit()
}

func TestBadNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(os.DevNull, filepath.Join(dir, "null")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want error
	}{
		{"", nil},
		{dir + "/", nil},
		{dir + "/.", nil},
		{dir + "/..", nil},
		{filepath.Join(dir, "missing", "a"), fs.ErrNotExist},
		{filepath.Join(dir, "sub"), ErrNotRegular},
		{filepath.Join(dir, "null"), ErrNotRegular},
		{os.DevNull, ErrNotRegular},
	} {
		_, err := Create(c.path, Options{})
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("Create(%q): %v", c.path, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.path) {
			t.Errorf("error does not name %q: %v", c.path, err)
		}
	}
}

func TestReplacesSymlinkNotItsTarget(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(link, []byte("new"), Options{}); err != nil {
		t.Fatal(err)
	}
	if content(t, target) != "precious" || content(t, link) != "new" {
		t.Error("the target of the link was written")
	}
}

func TestLongestName(t *testing.T) {
	ways(t, func(t *testing.T, opt Options) {
		path := filepath.Join(t.TempDir(), strings.Repeat("n", 255))
		if err := WriteFile(path, []byte("x"), opt); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRelativePath(t *testing.T) {
	ways(t, func(t *testing.T, opt Options) {
		t.Chdir(t.TempDir())
		if err := WriteFile("a", []byte("x"), opt); err != nil || content(t, "a") != "x" {
			t.Error(err)
		}
		if err := Link("a", "b", opt); err != nil || content(t, "b") != "x" {
			t.Error(err)
		}
	})
}

func TestCreateIn(t *testing.T) {
	ways(t, func(t *testing.T, opt Options) {
		ingest, blobs := t.TempDir(), t.TempDir()
		w, err := CreateIn(ingest, opt)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, "x")
		if err := w.CommitAs(filepath.Join(blobs, "2d71")); err != nil {
			t.Fatal(err)
		}
		if names(t, ingest) != "" || names(t, blobs) != "2d71" {
			t.Errorf("%q and %q", names(t, ingest), names(t, blobs))
		}
		w, err = CreateIn(ingest, opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(); err == nil || names(t, ingest) != "" {
			t.Errorf("Commit without a name: %v, folder has %q", err, names(t, ingest))
		}
		if _, err := CreateIn(filepath.Join(ingest, "none"), opt); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("missing folder: %v", err)
		}
	})
}

func TestCopy(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, c := range []struct {
		data string
		size int64
		ok   bool
	}{{"abc", 3, true}, {"abc", -1, true}, {"", 0, true}, {"abc", 2, false}, {"abc", 4, false}, {"abc", 0, false}} {
		os.Remove(path)
		err := Copy(path, strings.NewReader(c.data), c.size, Options{})
		if c.ok && (err != nil || content(t, path) != c.data) || !c.ok && (!errors.Is(err, ErrLength) || names(t, dir) != "") {
			t.Errorf("%q as %d bytes: %v, folder has %q", c.data, c.size, err, names(t, dir))
		}
	}
	os.Remove(path)
	broken := errors.New("source broke")
	err := Copy(path, io.MultiReader(strings.NewReader("abc"), errReader{broken}), -1, Options{})
	if !errors.Is(err, broken) || names(t, dir) != "" {
		t.Errorf("%v, folder has %q", err, names(t, dir))
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestLink(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := WriteFile(a, []byte("new"), Options{}); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(b, []byte("old"), Options{}); err != nil {
		t.Fatal(err)
	}
	if err := Link(a, b, Options{NoReplace: true}); !errors.Is(err, fs.ErrExist) || content(t, b) != "old" {
		t.Errorf("%v", err)
	}
	for range 2 { // the second finds both names the same file
		if err := Link(a, b, Options{}); err != nil || content(t, b) != "new" {
			t.Errorf("%v", err)
		}
	}
	sa, _ := os.Stat(a)
	sb, _ := os.Stat(b)
	if !os.SameFile(sa, sb) {
		t.Error("not one file")
	}
	if got := names(t, dir); got != "a b" {
		t.Errorf("folder has %q", got)
	}
	if err := Link(filepath.Join(dir, "none"), b, Options{}); !errors.Is(err, fs.ErrNotExist) || content(t, b) != "new" {
		t.Errorf("%v", err)
	}
}

func TestRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := WriteFile(path, nil, Options{}); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("injected")
	if err := Remove(path, Options{Before: func(Step, string) error { return broken }}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := Remove(path, Options{}); err != nil {
		t.Error(err)
	}
	if err := Remove(path, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestCloneOrNot(t *testing.T) {
	dir := t.TempDir()
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	src := filepath.Join(dir, "src")
	if err := WriteFile(src, data, Options{}); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := Create(filepath.Join(dir, "dst"), Options{Size: int64(len(data))})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	err = w.CloneFrom(f)
	t.Logf("clone: %v", err)
	if errors.Is(err, errors.ErrUnsupported) {
		_, err = w.Write(data) // the file must still be usable
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if content(t, filepath.Join(dir, "dst")) != string(data) {
		t.Error("content differs")
	}
}

func TestFreeBytes(t *testing.T) {
	n, err := FreeBytes(t.TempDir())
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if err != nil || n <= 0 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := FreeBytes(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing folder has free space")
	}
}

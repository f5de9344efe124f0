package source

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quern/internal/testmodel"
	"quern/pipeline"
	"quern/recipes"
)

// folderOf puts a test model into a folder.
func folderOf(t *testing.T, model string) string {
	t.Helper()
	files, err := testmodel.Build(model)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), model)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openOne(t *testing.T, env Env, s recipes.Source) (*pipeline.Source, error) {
	t.Helper()
	s.Name = "base"
	list, err := Open(t.Context(), env, []recipes.Source{s})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { list[0].Close() })
	return list[0], nil
}

func mustOpen(t *testing.T, env Env, s recipes.Source) *pipeline.Source {
	t.Helper()
	src, err := openOne(t, env, s)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

const weights = "model.safetensors"

// TestFolderChanges: whatever happens to a file after it was opened is noticed.
func TestFolderChanges(t *testing.T) {
	touch := func(t *testing.T, path string, when time.Time) {
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	write := func(t *testing.T, path string, b []byte) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(t *testing.T, path string, st fs.FileInfo, b []byte){
		"nothing": nil,
		"longer":  func(t *testing.T, path string, _ fs.FileInfo, b []byte) { write(t, path, append(b, 0)) },
		"rewritten": func(t *testing.T, path string, st fs.FileInfo, b []byte) {
			b[len(b)-1] ^= 1
			write(t, path, b)
			touch(t, path, st.ModTime().Add(time.Second))
		},
		"gone": func(t *testing.T, path string, _ fs.FileInfo, _ []byte) { os.Remove(path) },
		"another, as old": func(t *testing.T, path string, st fs.FileInfo, b []byte) {
			b[len(b)-1] ^= 1
			write(t, path+".new", b)
			touch(t, path+".new", st.ModTime())
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, file := range []string{weights, "config.json"} {
			t.Run(name+" "+file, func(t *testing.T) {
				dir := folderOf(t, "stories260k")
				src := mustOpen(t, Env{Digests: &Digests{}}, recipes.Source{Kind: recipes.SourceDir, Value: dir})
				path := filepath.Join(dir, file)
				st, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if change == nil {
					if err := src.Check(); err != nil {
						t.Error(err)
					}
					if err := src.Digest(t.Context()); err != nil {
						t.Error(err)
					}
					return
				}
				change(t, path, st, b)
				if err := src.Check(); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), file) {
					t.Errorf("check: %v", err)
				}
				if file == weights {
					// Its digest would not be that of the bytes that are read.
					if err := src.Digest(t.Context()); err == nil {
						t.Error("a digest of the changed file was taken")
					}
				}
			})
		}
	}
}

// TestDigestsOfOneRun: a digest holds as long as the file is the same one.
func TestDigestsOfOneRun(t *testing.T) {
	dir := folderOf(t, "stories260k")
	path := filepath.Join(dir, weights)
	d := &Digests{}
	env := Env{Digests: d}
	open := func() *pipeline.Source {
		return mustOpen(t, env, recipes.Source{Kind: recipes.SourceDir, Value: dir})
	}
	find := func(s *pipeline.Source) string {
		for _, f := range s.Files {
			if f.Path == weights {
				return f.SHA256
			}
		}
		t.Fatal("no weights")
		return ""
	}
	src := open()
	if find(src) != "" || !src.Model.Tensors[0].Key.IsZero() {
		t.Error("a digest before anything was hashed")
	}
	if err := src.Digest(t.Context()); err != nil {
		t.Fatal(err)
	}
	sum := find(src)
	again := open()
	if find(again) != sum || again.Model.Tensors[0].Key.IsZero() {
		t.Error("the digest was forgotten")
	}
	// Another file of that size and age.
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path+".new", st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if got := find(open()); got != "" {
		t.Errorf("a replaced file still has the digest %s", got)
	}
}

// TestKinds: what each kind of source makes of what it is given.
func TestKinds(t *testing.T) {
	dir := folderOf(t, "stories260k")
	plain := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(plain, []byte("just text"), 0o644); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, linked); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		s     recipes.Source
		env   Env
		model bool
		want  error
		words string
	}{
		"folder":                 {recipes.Source{Kind: recipes.SourceDir, Value: dir}, Env{}, true, nil, ""},
		"linked folder":          {recipes.Source{Kind: recipes.SourceDir, Value: linked}, Env{}, true, nil, ""},
		"relative folder":        {recipes.Source{Kind: recipes.SourceDir, Value: "stories260k"}, Env{Dir: filepath.Dir(dir)}, true, nil, ""},
		"no folder":              {recipes.Source{Kind: recipes.SourceDir, Value: dir + "x"}, Env{}, false, fs.ErrNotExist, "stories260kx"},
		"a file for a folder":    {recipes.Source{Kind: recipes.SourceDir, Value: plain}, Env{}, false, pipeline.ErrSource, "file: or gguf:"},
		"folder without config":  {recipes.Source{Kind: recipes.SourceDir, Value: filepath.Dir(plain)}, Env{}, false, fs.ErrNotExist, "config.json"},
		"file":                   {recipes.Source{Kind: recipes.SourceFile, Value: plain}, Env{}, false, nil, ""},
		"file of another digest": {recipes.Source{Kind: recipes.SourceFile, Value: plain, SHA256: strings.Repeat("0", 64)}, Env{}, false, ErrDigest, strings.Repeat("0", 64)},
		"a folder for a file":    {recipes.Source{Kind: recipes.SourceFile, Value: dir}, Env{}, false, pipeline.ErrSource, "dir:"},
		"text for gguf":          {recipes.Source{Kind: recipes.SourceGGUF, Value: plain}, Env{}, false, pipeline.ErrSource, "notes.txt"},
		"no hub":                 {recipes.Source{Kind: recipes.SourceHF, Value: "a/b"}, Env{}, false, ErrKind, "no network"},
		"no hub for an address":  {recipes.Source{Kind: recipes.SourceURL, Value: "http://x/y"}, Env{}, false, ErrKind, "no network"},
		"no store":               {recipes.Source{Kind: recipes.SourceArtifact, Value: "x"}, Env{}, false, ErrKind, "no store"},
		"unknown kind":           {recipes.Source{Kind: "ftp", Value: "x"}, Env{}, false, ErrKind, "ftp"},
	} {
		t.Run(name, func(t *testing.T) {
			c.env.Digests = &Digests{}
			src, err := openOne(t, c.env, c.s)
			if c.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				// Absolute paths stay out of locks and manifests.
				want := c.s.Value
				if filepath.IsAbs(want) {
					want = filepath.Base(want)
				}
				if (src.Model != nil) != c.model || src.Name != "base" || src.Kind != string(c.s.Kind) || src.Ref != want || len(src.Local) != len(src.Files) {
					t.Errorf("%+v", src)
				}
				for _, p := range src.Local {
					if !filepath.IsAbs(p) {
						t.Errorf("local file %s", p)
					}
				}
				return
			}
			if !errors.Is(err, c.want) || !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestFolderPaths: nothing outside of the folder is opened, hidden files and
// dangling links are not listed.
func TestFolderPaths(t *testing.T) {
	dir := folderOf(t, "stories260k")
	outside := filepath.Join(filepath.Dir(dir), "secret")
	for path, b := range map[string]string{outside: "x", filepath.Join(dir, ".hidden"): "x", filepath.Join(dir, "sub", "a.txt"): "x",
		filepath.Join(dir, "sub", "deep", "deeper", "b.txt"): "x"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	d, err := openFolder(dir, &Digests{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		got = append(got, f.Path)
	}
	if want := "config.json generation_config.json model.safetensors sub/a.txt tokenizer.model tokenizer_config.json"; strings.Join(got, " ") != want {
		t.Errorf("listed %v, want %s", got, want)
	}
	for _, p := range []string{"../secret", "/etc/passwd", "a/../../secret", "", ".", outside, "sub//a.txt"} {
		if _, err := d.Open(t.Context(), p); err == nil {
			t.Errorf("%q was opened", p)
		}
		if _, err := d.ReadFile(t.Context(), p, 100); err == nil {
			t.Errorf("%q was read", p)
		}
	}
	if _, err := d.ReadFile(t.Context(), weights, 1000); err == nil || !strings.Contains(err.Error(), "1000") {
		t.Errorf("a file over the limit: %v", err)
	}
	if _, err := d.ReadFile(t.Context(), "nothing.json", 1000); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	cancel(stop)
	if _, err := d.ReadFile(gone, "config.json", 1000); !errors.Is(err, stop) {
		t.Errorf("cancelled: %v", err)
	}
	// Read whole first, then opened: it must be the same file.
	b, err := d.ReadFile(t.Context(), "config.json", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	blob, err := d.Open(t.Context(), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, len(b))
	if err := blob.ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, b) {
		t.Errorf("%v", err)
	}
	if _, err := d.ReadFile(t.Context(), "tokenizer_config.json", 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(t.Context(), "tokenizer_config.json"); !errors.Is(err, ErrChanged) {
		t.Errorf("changed between two readings: %v", err)
	}
}

// TestReadFaultsAreTheSources: errors of reading weights say whose fault they
// are.
func TestReadFaultsAreTheSources(t *testing.T) {
	dir := folderOf(t, "stories260k")
	src := mustOpen(t, Env{Digests: &Digests{}}, recipes.Source{Kind: recipes.SourceDir, Value: dir})
	if err := os.Truncate(filepath.Join(dir, weights), 100_000); err != nil {
		t.Fatal(err)
	}
	last := src.Model.Tensors[len(src.Model.Tensors)-1]
	if err := last.ReadRows(t.Context(), make([]byte, last.Bytes()), 0, last.Rows()); !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("%v", err)
	}
}

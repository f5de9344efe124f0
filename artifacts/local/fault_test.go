package local_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/storetest"
	"quern/internal/atomicfile"
	"quern/internal/faulty"
)

// scenario does everything that writes to a store, each with its own result.
func scenario(t *testing.T, dir, out string, before func(atomicfile.Step, string) error) error {
	ctx := t.Context()
	s, err := local.Open(ctx, dir, local.Options{Before: before})
	if err != nil {
		return err
	}
	release, err := s.Hold(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if release != nil {
			release()
		}
	}()
	d, err := writeBuild(ctx, s)
	if err != nil {
		return err
	}
	if err := s.Tag(ctx, "stories-tv", d); err != nil {
		return err
	}
	if err := artifacts.PutOutput(ctx, s, artifacts.Key(d.Digest), d); err != nil {
		return err
	}
	if _, err := writeBuild(ctx, s); err != nil { // all there already
		return err
	}
	if err := s.Tag(ctx, "second", d); err != nil {
		return err
	}
	if err := s.Untag(ctx, "stories-tv"); err != nil {
		return err
	}
	if _, err := s.Export(ctx, d, filepath.Join(out, "manifest.json"), local.ExportOptions{Replace: true}); err != nil {
		return err
	}
	if err := s.ExportTar(ctx, "x", d, filepath.Join(out, "image.tar"), local.ExportOptions{Replace: true}); err != nil {
		return err
	}
	if err := s.Untag(ctx, "second"); err != nil {
		return err
	}
	if err := s.Delete(ctx, d.Digest); err != nil {
		return err
	}
	release()
	release = nil
	p, err := s.PlanGC(ctx, local.GCOptions{Grace: -1})
	if err != nil {
		return err
	}
	_, err = s.ExecuteGC(ctx, p)
	return err
}

func writeBuild(ctx context.Context, s artifacts.Store) (artifacts.Descriptor, error) {
	data := storetest.Bytes(5, 30_000)
	w, err := s.NewBlob(ctx, artifacts.BlobOptions{Size: int64(len(data))})
	if err != nil {
		return artifacts.Descriptor{}, err
	}
	for at := 0; at < len(data); at += 10_000 {
		if _, err := w.Write(data[at : at+10_000]); err != nil {
			return artifacts.Descriptor{}, err // without Abort, as a careless caller would
		}
	}
	out, err := w.Commit(artifacts.DigestOf(data))
	if err != nil {
		return artifacts.Descriptor{}, err
	}
	return artifacts.WriteBuild(ctx, s, &artifacts.Build{
		Version: artifacts.BuildVersion, Tool: artifacts.Tool{Name: "quern", Version: "1"}, Name: "build", Recipe: []byte("{}"),
		Outputs: []artifacts.BuildOutput{{File: "a.gguf", Format: "gguf", MediaType: artifacts.MediaTypeGGUF, Digest: out.Digest, Size: out.Size}},
	})
}

// TestEveryStepFails lets each step of the scenario fail in turn, once or from
// then on, with a full disk or a read-only file system. The error must say so,
// the store must be whole, nothing may be left over, and the scenario must go
// through when the fault is gone.
func TestEveryStepFails(t *testing.T) {
	for _, fault := range []struct {
		name string
		err  error
		make func(int, error) *faulty.Countdown
		says string
		by   int // every so many steps
	}{
		{"disk full once", faulty.ErrDiskFull, faulty.FailOnce, "disk is full", 1},
		{"disk full", faulty.ErrDiskFull, faulty.FailFrom, "disk is full", 7},
		{"read-only", fmt.Errorf("injected: %w", syscall.EROFS), faulty.FailFrom, "make the folder writable", 7},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel() // they wait for the disk most of the time
			steps := 0
			for ; ; steps += fault.by {
				dir, out := filepath.Join(t.TempDir(), "store"), t.TempDir()
				count := fault.make(steps, fault.err)
				at, kind := "", atomicfile.Step("")
				err := scenario(t, dir, out, func(s atomicfile.Step, path string) error {
					err := count.Next()
					if err != nil && at == "" {
						kind, at = s, strings.TrimPrefix(path, dir)
					}
					return err
				})
				if !count.Fired() {
					if err != nil {
						t.Fatalf("no fault: %v", err)
					}
					break
				}
				where := fmt.Sprintf("step %d (%s of %s)", steps, kind, at)
				switch {
				case err == nil && (kind == atomicfile.StepLink || kind == atomicfile.StepRename && strings.HasPrefix(at, "/blobs")):
					// Done without the link, or stored again where only the
					// time of the old file could not be set.
				case err == nil:
					t.Errorf("%s: the fault was not noticed", where)
				case !errors.Is(err, fault.err):
					t.Errorf("%s: error %v", where, err)
				case !strings.Contains(err.Error(), fault.says) && !strings.Contains(err.Error(), "export") && !strings.Contains(err.Error(), "cannot be made"):
					t.Errorf("%s: the error does not say what to do: %v", where, err)
				}
				s := open(t, dir, local.Options{})
				if f, err := s.Verify(t.Context(), artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
					t.Errorf("%s: verify: %v, %v", where, f, err)
				}
				if l := leftovers(t, s); len(l) != 0 {
					t.Errorf("%s: left behind: %v", where, l)
				}
				for _, e := range files(t, out) {
					if atomicfile.IsTemp(filepath.Base(e)) {
						t.Errorf("%s: left in the output folder: %s", where, e)
					}
				}
				if steps%5 != 0 {
					continue
				}
				if err := scenario(t, dir, out, nil); err != nil {
					t.Errorf("%s: afterwards: %v", where, err)
				}
			}
			if steps < 80 {
				t.Errorf("only %d steps were seen to fail", steps)
			}
		})
	}
}

// files lists all files of a folder, relative and with slashes.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		out = append(out, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSafeNames looks at every name that a store makes: nothing but [a-z0-9-]
// and the two names of OCI, so that letter case cannot matter, and no links.
func TestSafeNames(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, local.Options{})
	_, d := storetest.Example(t, s, 1)
	if err := s.Tag(t.Context(), "Name.With:Everything/in_it", d); err != nil {
		t.Fatal(err)
	}
	if err := artifacts.PutOutput(t.Context(), s, artifacts.Key(d.Digest), d); err != nil {
		t.Fatal(err)
	}
	safe := regexp.MustCompile(`^[a-z0-9-]+$`)
	n := 0
	for _, f := range files(t, dir) {
		if st, err := os.Lstat(filepath.Join(dir, f)); err != nil || st.Mode()&fs.ModeSymlink != 0 {
			t.Errorf("%s: %v, %v", f, st.Mode(), err)
		}
		for _, part := range strings.Split(f, "/") {
			if part != "index.json" && !safe.MatchString(part) {
				t.Errorf("%s has an unsafe name", f)
			}
		}
		n++
	}
	if n < 10 {
		t.Errorf("only %d files", n)
	}
}

func TestNotAStore(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	if _, err := local.Open(ctx, filepath.Join(dir, "none"), local.Options{ReadOnly: true}); !errors.Is(err, artifacts.ErrNotStore) {
		t.Errorf("missing and read-only: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "thesis.doc"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := local.Open(ctx, dir, local.Options{}); !errors.Is(err, artifacts.ErrNotStore) || !strings.Contains(err.Error(), "thesis.doc") {
		t.Errorf("a folder of the user's: %v", err)
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("it was changed: %v", got)
	}
	for _, layout := range []string{`{"imageLayoutVersion":"2.0.0"}`, `{}`, `nonsense`, ``} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(layout), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := local.Open(ctx, dir, local.Options{}); !errors.Is(err, artifacts.ErrNotStore) {
			t.Errorf("%q: %v", layout, err)
		}
	}
	file := filepath.Join(dir, "thesis.doc")
	if _, err := local.Open(ctx, file, local.Options{}); err == nil {
		t.Error("a file was opened as a store")
	}
	// What a killed process leaves of a store it was making.
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "blobs"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, local.Options{})
	if f, err := s.Verify(ctx, artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("%v, %v", f, err)
	}
}

// TestDamagedBlobIsReplaced writes a blob whose name is taken by other bytes: a
// store that trusts the name would keep the damage for ever.
func TestDamagedBlobIsReplaced(t *testing.T) {
	s := open(t, t.TempDir(), local.Options{})
	data := storetest.Bytes(9, 5000)
	d, err := artifacts.PutBytes(t.Context(), s, "", data)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir(), "blobs", "sha256", d.Digest.Hex())
	for name, bad := range map[string][]byte{"flipped": append([]byte{data[0] ^ 1}, data[1:]...), "short": data[:4999], "empty": {}} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bad, 0o444); err != nil {
			t.Fatal(err)
		}
		if _, err := artifacts.ReadAll(t.Context(), s, d, 1<<20); !errors.Is(err, artifacts.ErrCorrupt) {
			t.Errorf("%s: read as good: %v", name, err)
		}
		if _, err := artifacts.PutBytes(t.Context(), s, "", data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := artifacts.ReadAll(t.Context(), s, d, 1<<20); err != nil || len(b) != len(data) {
			t.Errorf("%s: still there: %v", name, err)
		}
	}
	// A good one stays the same file, so that hard links to it stay shared.
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := artifacts.PutBytes(t.Context(), s, "", data); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("a good blob was replaced: %v", err)
	}
}

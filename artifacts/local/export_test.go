package local_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/storetest"
	"quern/internal/atomicfile"
)

func TestExport(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir(), local.Options{})
	data := storetest.Bytes(1, 100_000)
	d, err := artifacts.PutBytes(ctx, s, "", data)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	blobFile, err := os.Stat(filepath.Join(s.Dir(), "blobs", "sha256", d.Digest.Hex()))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method local.ExportMethod
		used   []local.ExportMethod
	}{
		{local.ExportAuto, []local.ExportMethod{local.ExportReflink, local.ExportCopy}},
		{local.ExportReflink, []local.ExportMethod{local.ExportReflink, local.ExportCopy}},
		{local.ExportCopy, []local.ExportMethod{local.ExportCopy}},
		{local.ExportLink, []local.ExportMethod{local.ExportLink}},
	} {
		path := filepath.Join(dir, "out-"+string(c.method))
		used, err := s.Export(ctx, d, path, local.ExportOptions{Method: c.method})
		if err != nil || !slices.Contains(c.used, used) {
			t.Errorf("%q: used %q, %v", c.method, used, err)
		}
		t.Logf("%q used %q", c.method, used)
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%q: other bytes, %v", c.method, err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if os.SameFile(st, blobFile) != (used == local.ExportLink) {
			t.Errorf("%q: used %q, same file %v", c.method, used, os.SameFile(st, blobFile))
		}
		if w := st.Mode().Perm()&0o200 != 0; runtime.GOOS != "windows" && w != (used != local.ExportLink) {
			t.Errorf("%q: mode %v", c.method, st.Mode())
		}
		writable := used != local.ExportLink
		if _, err := s.Export(ctx, d, path, local.ExportOptions{Method: c.method}); !errors.Is(err, artifacts.ErrExists) {
			t.Errorf("%q again: %v", c.method, err)
		}
		if writable {
			if err := os.WriteFile(path, []byte("the user's"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Export(ctx, d, path, local.ExportOptions{Method: c.method, Replace: true}); err != nil {
			t.Errorf("%q with Replace: %v", c.method, err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%q with Replace: other bytes, %v", c.method, err)
		}
	}
	u, err := s.Usage(ctx)
	if err != nil || runtime.GOOS == "linux" && u.Linked != d.Size {
		t.Errorf("%d bytes are shared by links, %v", u.Linked, err)
	}
	if f, err := s.Verify(ctx, artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("writing to exported files changed the store: %v, %v", f, err)
	}
	for _, f := range files(t, dir) {
		if atomicfile.IsTemp(filepath.Base(f)) {
			t.Errorf("left: %s", f)
		}
	}
}

func TestExportWithoutLinks(t *testing.T) {
	noLinks := func(s atomicfile.Step, _ string) error {
		if s == atomicfile.StepLink {
			return errors.ErrUnsupported
		}
		return nil
	}
	s := open(t, t.TempDir(), local.Options{Before: noLinks})
	d, err := artifacts.PutBytes(t.Context(), s, "", []byte("data"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "out")
	used, err := s.Export(t.Context(), d, path, local.ExportOptions{Method: local.ExportLink})
	if got, rerr := os.ReadFile(path); err != nil || used == local.ExportLink || rerr != nil || string(got) != "data" {
		t.Errorf("used %q, %v, %v", used, err, rerr)
	}
}

func TestExportRefusals(t *testing.T) {
	ctx := t.Context()
	s, b, d := example(t)
	dir := t.TempDir()
	alias := filepath.Join(dir, "alias")
	if err := os.Symlink(s.Dir(), alias); err != nil {
		t.Fatal(err)
	}
	layer := artifacts.Descriptor{Digest: b.Outputs[0].Digest, Size: b.Outputs[0].Size}
	methods := []local.ExportMethod{local.ExportAuto, local.ExportLink, local.ExportReflink, local.ExportCopy}
	for _, m := range methods {
		for _, p := range []string{filepath.Join(s.Dir(), "x"), filepath.Join(s.Dir(), "blobs", "sha256", "x"), filepath.Join(alias, "x")} {
			if _, err := s.Export(ctx, layer, p, local.ExportOptions{Method: m}); !errors.Is(err, artifacts.ErrName) {
				t.Errorf("%q into the store: %v", m, err)
			}
		}
		if _, err := s.Export(ctx, layer, dir, local.ExportOptions{Method: m, Replace: true}); err == nil {
			t.Errorf("%q over a folder: no error", m)
		}
		if _, err := s.Export(ctx, layer, filepath.Join(dir, "none", "x"), local.ExportOptions{Method: m}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none") {
			t.Errorf("%q into a missing folder: %v", m, err)
		}
	}
	if _, err := s.Export(ctx, layer, filepath.Join(dir, "x"), local.ExportOptions{Method: "teleport"}); err == nil {
		t.Error("an unknown method was taken")
	}
	// A damaged blob leaves by no way, and nothing is left of the attempt.
	path := filepath.Join(s.Dir(), "blobs", "sha256", layer.Digest.Hex())
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replaceFile(t, path, append([]byte{good[0] ^ 4}, good[1:]...))
	for _, m := range methods {
		if _, err := s.Export(ctx, layer, filepath.Join(dir, "x"), local.ExportOptions{Method: m}); !errors.Is(err, artifacts.ErrCorrupt) {
			t.Errorf("%q of a damaged blob: %v", m, err)
		}
	}
	if err := s.ExportTar(ctx, "example", d, filepath.Join(dir, "x"), local.ExportOptions{}); !errors.Is(err, artifacts.ErrCorrupt) {
		t.Errorf("tar of a damaged blob: %v", err)
	}
	if err := s.ExportLayout(ctx, "example", d, filepath.Join(dir, "layout"), local.ExportOptions{}); !errors.Is(err, artifacts.ErrCorrupt) {
		t.Errorf("layout of a damaged blob: %v", err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"alias"}) {
		t.Errorf("left: %v", got)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := errors.New("stop")
	cancel(stop)
	for _, m := range methods {
		if _, err := s.Export(ctx, d, filepath.Join(dir, "x"), local.ExportOptions{Method: m}); !errors.Is(err, stop) {
			t.Errorf("%q cancelled: %v", m, err)
		}
	}
}

func TestExportTar(t *testing.T) {
	ctx := t.Context()
	s, b, d := example(t)
	dir := t.TempDir()
	one, two := filepath.Join(dir, "1.tar"), filepath.Join(dir, "2.tar")
	for _, p := range []string{one, two} {
		if err := s.ExportTar(ctx, "example:v1", d, p, local.ExportOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ExportTar(ctx, "example:v1", d, one, local.ExportOptions{}); !errors.Is(err, artifacts.ErrExists) {
		t.Errorf("again: %v", err)
	}
	x, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	if y, err := os.ReadFile(two); err != nil || !bytes.Equal(x, y) {
		t.Errorf("two exports differ, %v", err)
	}
	// Unpacked, it is a store.
	unpacked := filepath.Join(dir, "unpacked")
	for r := tar.NewReader(bytes.NewReader(x)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.IsZero() && h.ModTime.Unix() != 0 || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s: time %v, owner %d %q", h.Name, h.ModTime, h.Uid, h.Uname)
		}
		p := filepath.Join(unpacked, filepath.FromSlash(h.Name))
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sameImage(t, open(t, unpacked, local.Options{ReadOnly: true}), "example:v1", b, d)
}

func sameImage(t *testing.T, s *local.Store, name string, b *artifacts.Build, d artifacts.Descriptor) {
	t.Helper()
	got, err := s.Resolve(t.Context(), name)
	if err != nil || !got.Same(d) {
		t.Errorf("%v, %v", got, err)
		return
	}
	read, err := artifacts.ReadBuild(t.Context(), s, got)
	if err != nil || read.Name != b.Name {
		t.Errorf("%v, %v", read, err)
	}
	if f, err := s.Verify(t.Context(), artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("verify: %v, %v", f, err)
	}
	if l, err := s.List(t.Context()); err != nil || len(l) != 4 {
		t.Errorf("%d blobs, %v", len(l), err)
	}
}

func TestExportLayout(t *testing.T) {
	ctx := t.Context()
	s, b, d := example(t)
	dir := filepath.Join(t.TempDir(), "layout")
	if err := s.ExportLayout(ctx, "example", d, dir, local.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "quern")); !os.IsNotExist(err) {
		t.Errorf("the layout has what only quern needs: %v", err)
	}
	sameImage(t, open(t, dir, local.Options{ReadOnly: true}), "example", b, d)
	if err := s.ExportLayout(ctx, "example", d, dir, local.ExportOptions{}); !errors.Is(err, artifacts.ErrExists) {
		t.Errorf("again: %v", err)
	}
	// With Replace it is added to what is there.
	_, more := storetest.Example(t, s, 8)
	if err := s.ExportLayout(ctx, "more", more, dir, local.ExportOptions{Replace: true}); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir, local.Options{})
	for n, want := range map[string]artifacts.Descriptor{"example": d, "more": more} {
		if got, err := l.Resolve(ctx, n); err != nil || !got.Same(want) {
			t.Errorf("%s: %v, %v", n, got, err)
		}
	}
	if err := s.ExportLayout(ctx, "example", d, filepath.Join(s.Dir(), "inside"), local.ExportOptions{}); !errors.Is(err, artifacts.ErrName) {
		t.Errorf("into the store: %v", err)
	}
	users := t.TempDir()
	writeFile(t, filepath.Join(users, "thesis.doc"), "precious")
	if err := s.ExportLayout(ctx, "example", d, users, local.ExportOptions{Replace: true}); !errors.Is(err, artifacts.ErrNotStore) {
		t.Errorf("into a folder of the user's: %v", err)
	}
	if got := files(t, users); len(got) != 1 {
		t.Errorf("it was changed: %v", got)
	}
}

package local_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/storetest"
	"quern/internal/atomicfile"
)

// TestReadOnly is the same without a mount: a store that says it is read-only.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, local.Options{})
	_, d := storetest.Example(t, s, 1)
	if err := s.Tag(t.Context(), "example", d); err != nil {
		t.Fatal(err)
	}
	list := files(t, dir)
	forbidden := func(step atomicfile.Step, path string) error {
		if strings.HasPrefix(path, dir) {
			t.Errorf("%s of %s in a read-only store", step, path)
		}
		return nil
	}
	readsButDoesNotWrite(t, open(t, dir, local.Options{ReadOnly: true, Before: forbidden}), d)
	if got := files(t, dir); !slices.Equal(got, list) {
		t.Errorf("files were %v, are %v", list, got)
	}
}

func readsButDoesNotWrite(t *testing.T, s *local.Store, d artifacts.Descriptor) {
	t.Helper()
	ctx := t.Context()
	if got, err := s.Resolve(ctx, "example"); err != nil || !got.Same(d) {
		t.Errorf("Resolve: %v, %v", got, err)
	}
	if _, err := artifacts.ReadBuild(ctx, s, d); err != nil {
		t.Error(err)
	}
	if f, err := s.Verify(ctx, artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("verify: %v, %v", f, err)
	}
	if _, err := s.Usage(ctx); err != nil {
		t.Error(err)
	}
	if _, err := s.Lookup(ctx, []artifacts.Key{{1}}); err != nil {
		t.Error(err)
	}
	out := t.TempDir()
	if _, err := s.Export(ctx, d, filepath.Join(out, "m.json"), local.ExportOptions{}); err != nil {
		t.Error(err)
	}
	if err := s.ExportLayout(ctx, "x", d, filepath.Join(out, "layout"), local.ExportOptions{}); err != nil {
		t.Error(err)
	}
	if _, _, err := s.FileDigest(ctx, filepath.Join(out, "m.json"), nil); err != nil {
		t.Error(err)
	}
	plan, err := s.PlanGC(ctx, local.GCOptions{Grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(context.Context) error{
		"NewBlob": func(ctx context.Context) error {
			_, err := artifacts.PutBytes(ctx, s, "", []byte("new"))
			return err
		},
		"Tag":    func(ctx context.Context) error { return s.Tag(ctx, "new", d) },
		"Untag":  func(ctx context.Context) error { return s.Untag(ctx, "example") },
		"Delete": func(ctx context.Context) error { return s.Delete(ctx, d.Digest) },
		"PutKeys": func(ctx context.Context) error {
			return artifacts.PutOutput(ctx, s, artifacts.Key{1}, d)
		},
		"ExecuteGC": func(ctx context.Context) error {
			_, err := s.ExecuteGC(ctx, plan)
			return err
		},
	} {
		if name == "ExecuteGC" && len(plan.Remove) == 0 {
			// Without work it may end well on a folder not known to be
			// read-only.
			continue
		}
		err := f(ctx)
		if !errors.Is(err, artifacts.ErrReadOnly) || !strings.Contains(err.Error(), "another store") || !strings.Contains(err.Error(), s.Dir()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

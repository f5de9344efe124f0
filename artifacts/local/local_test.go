package local_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/storetest"
	"quern/internal/atomicfile"
)

func open(t *testing.T, dir string, opt local.Options) *local.Store {
	t.Helper()
	s, err := local.Open(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// leftovers lists files that are neither blobs nor anything finished.
func leftovers(t *testing.T, s artifacts.Store) []string {
	t.Helper()
	var out []string
	dir := s.(*local.Store).Dir()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !e.IsDir() && (atomicfile.IsTemp(e.Name()) || filepath.Base(filepath.Dir(path)) == "ingest") {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConformance(t *testing.T) {
	storetest.Suite{
		Open:      func(t *testing.T) artifacts.Store { return open(t, t.TempDir(), local.Options{}) },
		Leftovers: leftovers,
	}.Run(t)
}

// TestWithoutLinks is the suite in a folder where no link can be made.
func TestWithoutLinks(t *testing.T) {
	noLinks := func(s atomicfile.Step, _ string) error {
		if s == atomicfile.StepLink {
			return errors.ErrUnsupported
		}
		return nil
	}
	storetest.Suite{
		Open: func(t *testing.T) artifacts.Store {
			return open(t, t.TempDir(), local.Options{Before: noLinks})
		},
		Leftovers: leftovers,
	}.Run(t)
}

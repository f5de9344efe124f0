package local

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMadeMeanwhile: a folder did not say that it is a store, another process makes it
// one, and then it is looked through.
func TestMadeMeanwhile(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if exists, err := s.checkUnmade(); !exists || err != nil {
		t.Errorf("exists %v, error %v", exists, err)
	}
	if err := os.Remove(filepath.Join(s.Dir(), layoutFile)); err != nil {
		t.Fatal(err)
	}
	if exists, err := s.checkUnmade(); exists || err != nil {
		t.Errorf("without its last file: exists %v, error %v", exists, err)
	}
}

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGenerated: what is checked in is what the generator writes. The first line
// tells the command, which has other paths here.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	names := []string{"kernels_amd64.s", "stubs_amd64.go"}
	out, err := exec.Command("go", "run", ".", "-pkg", "ggmlnum", "-out", filepath.Join(dir, names[0]), "-stubs", filepath.Join(dir, names[1])).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range names {
		var body [2][]byte
		for i, path := range []string{filepath.Join(dir, name), filepath.Join("..", name)} {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, body[i], _ = bytes.Cut(text, []byte("\n"))
		}
		if !bytes.Equal(body[0], body[1]) {
			t.Errorf("%s is not what the generator writes; run make generate", name)
		}
	}
}

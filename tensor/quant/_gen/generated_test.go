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
	for _, command := range [][]string{
		{"-out", "kernels_amd64.s", "-stubs", "stubs_amd64.go", "-neon", "kernels_arm64.s", "-neonstubs", "stubs_arm64.go"},
		{"-iq", "-out", "iq_kernels_amd64.s", "-stubs", "iq_stubs_amd64.go", "-neon", "iq_kernels_arm64.s", "-neonstubs", "iq_stubs_arm64.go"},
	} {
		args := []string{"run", ".", "-pkg", "quant"}
		for _, a := range command {
			if filepath.Ext(a) != "" {
				a = filepath.Join(dir, a)
			}
			args = append(args, a)
		}
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 8 {
		t.Fatalf("%d files were written, %v", len(files), err)
	}
	for _, f := range files {
		var body [2][]byte
		for i, path := range []string{filepath.Join(dir, f.Name()), filepath.Join("..", f.Name())} {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, body[i], _ = bytes.Cut(text, []byte("\n"))
		}
		if !bytes.Equal(body[0], body[1]) {
			t.Errorf("%s is not what the generator writes; run make generate", f.Name())
		}
	}
}

// Package asmtest checks that what generators write is what is checked in.
package asmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// command begins the lines of a package that call its generator.
const command = "//go:generate go -C _gen "

// Generated runs the generator in the current folder as the package above it does, and
// compares every file.
func Generated(t *testing.T) {
	dir := t.TempDir()
	sources, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			args, ok := strings.CutPrefix(strings.TrimSpace(line), command)
			if !ok {
				continue
			}
			args = strings.ReplaceAll(args, "../", dir+"/")
			if out, err := exec.Command("go", strings.Fields(args)...).CombinedOutput(); err != nil {
				t.Fatalf("go %s: %v\n%s", args, err, out)
			}
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files were written, %v; the package has lines %q", len(files), err, command)
	}
	for _, f := range files {
		made, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(filepath.Join("..", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		// The first line tells the command.
		if strings.ReplaceAll(string(made), dir+"/", "../") != string(kept) {
			t.Errorf("%s is not what the generator writes; run make generate", f.Name())
		}
	}
}

package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quern/internal/testmodel"
)

var update = flag.Bool("update", false, "write the outputs of the README's commands into it")

// readmeRecipes are the recipes that the README shows.
var readmeRecipes = []string{"demo.yaml", "q8.yaml", "acceptance/tv-moe.yaml"}

// TestReadme runs every command of the README's tour, in order and in one
// folder, and demands the output that the README shows.
func TestReadme(t *testing.T) {
	root := filepath.Dir(testmodel.Root())
	readme := filepath.Join(root, "README.md")
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range slices.Concat(readmeRecipes, []string{"text/eval-stories.txt"}) {
		copyFile(t, filepath.Join(testmodel.Root(), f), filepath.Join(dir, "testdata", f))
	}
	for _, m := range []string{"stories260k", "stories-moe"} {
		model := filepath.Join(testmodel.Root(), "models", m)
		entries, err := os.ReadDir(model)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			copyFile(t, filepath.Join(model, e.Name()), filepath.Join(dir, "testdata", "models", m, e.Name()))
		}
	}
	t.Chdir(dir)
	t.Setenv("QUERN_STORE", filepath.Join(dir, "store"))

	parts := strings.Split(string(text), "```console\n")
	if len(parts) < 8 {
		t.Fatalf("the README has only %d commands", len(parts)-1)
	}
	out := parts[0]
	for _, p := range parts[1:] {
		block, rest, ok := strings.Cut(p, "```\n")
		if !ok {
			t.Fatal("a console block does not end")
		}
		command, want, _ := strings.Cut(block, "\n")
		got := shell(t, command)
		if got != want && !*update {
			t.Errorf("%s\nprints\n%s\nthe README says\n%s", command, got, want)
		}
		out += "```console\n" + command + "\n" + got + "```\n" + rest
	}
	if *update && out != string(text) {
		if err := os.WriteFile(readme, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The recipes that the README shows are those of testdata.
	for _, f := range readmeRecipes {
		b, err := os.ReadFile(filepath.Join(testmodel.Root(), f))
		if err != nil {
			t.Fatal(err)
		}
		_, recipe, _ := strings.Cut("\n"+string(b), "\nversion:")
		if !strings.Contains(string(text), "```yaml\nversion:"+recipe+"```\n") {
			t.Errorf("the README does not show testdata/%s as it is", f)
		}
	}
}

// shell runs "$ quern ARGS", with a pipe into head or tail if there is one, and
// gives what it prints on stdout.
func shell(t *testing.T, line string) string {
	t.Helper()
	line, ok := strings.CutPrefix(line, "$ ")
	if !ok {
		t.Fatalf("%q does not start with a prompt", line)
	}
	command, filter, _ := strings.Cut(line, " | ")
	var out, errOut bytes.Buffer
	if code := run(context.Background(), words(command), strings.NewReader(""), &out, &errOut); code != exitDone {
		t.Fatalf("%s: exit code %d\n%s", command, code, errOut.String())
	}
	text := out.String()
	if !strings.HasSuffix(text, "\n") {
		text += "\n" // a text that a model makes ends where it ends
	}
	lines := strings.SplitAfter(text, "\n")
	lines = lines[:len(lines)-1]
	if filter != "" {
		f := strings.Fields(filter)
		n, err := strconv.Atoi(f[len(f)-1])
		if err != nil || len(f) != 3 {
			t.Fatalf("filter %q", filter)
		}
		if n < len(lines) && f[0] == "head" {
			lines = lines[:n]
		}
		if n < len(lines) && f[0] == "tail" {
			lines = lines[len(lines)-n:]
		}
	}
	return strings.Join(lines, "")
}

// words cuts a command line at spaces outside double quotes.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

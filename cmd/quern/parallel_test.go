package main

import (
	"bytes"
	"os/exec"
	"testing"
)

// TestParallelBuilds starts several processes that build into one folder with
// one store, of the same recipe and of different ones: all succeed, and every
// file is right.
func TestParallelBuilds(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe("steps:\n  - quantize: {type: Q8_0, fallback: F16}\noutputs:\n  - {format: gguf, file: r.gguf}\n")
	other := b.write("other.yaml", "version: 1\nname: other\nsources:\n  base: {dir: model}\noutputs:\n  - {format: kmcu, file: other.kmcu}\n  - {format: gguf, file: other.gguf}\n")
	b.ok("build", recipe, "-o", b.path("want"), "--no-store")
	b.ok("build", other, "-o", b.path("want"), "--no-store")
	for round := range 3 {
		var cmds []*exec.Cmd
		var said []*bytes.Buffer
		for i := range 4 {
			r := recipe
			if i == 3 {
				r = other
			}
			args := []string{"build", r, "-o", b.path("out")}
			if round == 1 {
				args = append(args, "--no-cache")
			}
			cmd := b.command(args...)
			out := &bytes.Buffer{}
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			cmds, said = append(cmds, cmd), append(said, out)
		}
		for i, cmd := range cmds {
			if err := cmd.Wait(); err != nil {
				t.Errorf("round %d, process %d: %v\n%s", round, i, err, said[i])
			}
		}
		for _, f := range []string{"r.gguf", "other.kmcu", "other.gguf"} {
			if got, want := sum(t, b.path("out", f)), sum(t, b.path("want", f)); got != want {
				t.Errorf("round %d: %s has SHA-256 %q, want %s", round, f, got, want)
			}
		}
		noTemps(t, b.path("out"))
		b.ok("store", "verify")
		b.ok("store", "show", "r")
		b.ok("store", "show", "other")
		b.ok("build", recipe, "-o", b.path("out"), "--locked")
		b.ok("build", other, "-o", b.path("out"), "--locked")
	}
}

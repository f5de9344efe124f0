package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerifySplit: the first shard of a split stands for all, with a source, a golden
// file and the store's record; a later shard is a file of its own.
func TestVerifySplit(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	b.ok("build", b.recipe("steps:\n  - quantize: {type: Q8_0, fallback: F16}\noutputs:\n  - {format: gguf, file: s.gguf, split-max-tensors: 20}\n"), "-o", b.path("out"))
	shards, err := filepath.Glob(b.path("out", "s-*.gguf"))
	check(t, err)
	if len(shards) < 3 {
		t.Fatalf("%v", shards)
	}
	var all, alone, known report
	b.ok("verify", shards[0], "--json", "--no-store").json(t, &all)
	b.ok("verify", shards[1], "--json", "--no-store").json(t, &alone)
	if len(alone.Tensors) != 20 || len(all.Tensors) <= 40 {
		t.Errorf("%d tensors in all shards, %d in the second", len(all.Tensors), len(alone.Tensors))
	}
	b.ok("verify", shards[0], "--against", b.path("model"), "--json").json(t, &known)
	if len(known.Tensors) != len(all.Tensors) || !strings.Contains(strings.Join(known.Notes, "\n"), "steps of the build r") {
		t.Errorf("%d tensors compared, notes %q", len(known.Tensors), known.Notes)
	}

	copied := func(dir string) string {
		check(t, os.MkdirAll(b.path(dir), 0o755))
		for _, s := range shards {
			check(t, os.WriteFile(b.path(dir, filepath.Base(s)), mustRead(t, s), 0o644))
		}
		return b.path(dir, filepath.Base(shards[0]))
	}
	golden := copied("golden")
	b.ok("verify", shards[0], "--golden", golden)
	// A bit of the last tensor of the last shard: the first one alone shows nothing.
	damaged := copied("damaged")
	last := b.path("damaged", filepath.Base(shards[len(shards)-1]))
	data := mustRead(t, last)
	data[len(data)-33] ^= 1
	check(t, os.WriteFile(last, data, 0o644))
	b.fails(exitVerify, []string{filepath.Base(last), sum(t, last), "differs first in row"}, "verify", damaged, "--golden", golden, "--no-store")
	var not report
	b.ok("verify", damaged, "--json").json(t, &not)
	if s := strings.Join(not.Notes, "\n"); strings.Contains(s, "the store knows") {
		t.Errorf("the store is said to know a model with one damaged shard: %s", s)
	}
	check(t, os.Remove(last))
	b.fails(exitVerify, []string{filepath.Base(last)}, "verify", damaged)
	b.fails(exitVerify, []string{filepath.Base(last)}, "verify", shards[0], "--golden", damaged)
}

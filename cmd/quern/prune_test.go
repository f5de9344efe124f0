package main

import (
	"os"
	"strings"
	"testing"
)

// TestPrunedFiles: inspect says how much was pruned; verify compares the rows that are
// left, with the steps known and without, and finds a row that is another one's.
func TestPrunedFiles(t *testing.T) {
	b := newBench(t)
	for _, model := range []string{"stories260k", "stories-wide"} {
		b.model(model, "model-"+model)
		for _, c := range []struct{ step, detail, value, note string }{
			{"{tokens: keep}", "pruned head", "4 of 512 tokens", "the head is pruned: "},
			{"{tokens: keep, mode: vocab}", "pruned vocabulary", " of 512 tokens", "the vocabulary is pruned: "},
		} {
			b.write("keep.txt", "400 5 9\n17")
			recipe := b.write("r.yaml", "version: 1\nname: pruned\nsources:\n  base: {dir: model-"+model+"}\n  keep: {file: keep.txt}\nsteps:\n  - prune-head: "+c.step+
				"\n  - quantize: {type: Q8_0, fallback: F16}\noutputs:\n  - {format: gguf, file: r.gguf}\ngates:\n  - tensors: {min-snr-db: 30}\n")
			b.ok("build", recipe, "-o", b.path("out"), "--no-store")
			file := b.path("out", "r.gguf")
			got := b.inspect(file).detail(c.detail)
			if !strings.Contains(got, c.value) || strings.Contains(got, "embedding") != (c.detail == "pruned head" && model == "stories260k") {
				t.Errorf("%s %s: %s is %q", model, c.step, c.detail, got)
			}
			var doc report
			b.ok("verify", file, "--no-store", "--against", b.path("model-"+model), "--min-snr", "30", "--json").json(t, &doc)
			if !strings.Contains(strings.Join(doc.Notes, "\n"), c.note) {
				t.Errorf("%s %s: notes %q", model, c.step, doc.Notes)
			}
			b.ok("verify", file, "--no-store", "--against", b.path("model-"+model), "--recipe", recipe, "--min-snr", "30")
			b.ok("verify", file, "--no-store")
			// Another list gives other rows.
			b.write("keep.txt", "400 5 9\n18")
			if c.detail == "pruned head" {
				b.fails(exitVerify, []string{"rows the source lacks: [17]"}, "verify", file, "--no-store", "--against", b.path("model-"+model), "--recipe", recipe, "--min-snr", "30")
			}
		}
	}
}

// TestVerifyOfPrunedBuild: what the store knows of a pruned file will do, though the
// texts and lists of the build are gone.
func TestVerifyOfPrunedBuild(t *testing.T) {
	b := newBench(t)
	b.model("stories-moe", "model")
	b.write("text.txt", strings.Repeat("Once upon a time there was a girl. She had a red ball.\n", 20))
	recipe := b.write("r.yaml", "version: 1\nname: tv\nsources:\n  base: {dir: model}\n  text: {file: text.txt}\nsteps:\n  - select-tokens: {id: keep, corpus: [text], count: 288}\n"+
		"  - prune-head: {tokens: keep}\n  - pad: {ffn: 32}\n  - quantize: {type: Q8_0}\noutputs:\n  - {format: gguf, file: r.gguf}\n")
	b.ok("build", recipe, "-o", b.path("out"))
	if err := os.Remove(b.path("text.txt")); err != nil {
		t.Fatal(err)
	}
	var doc report
	b.ok("verify", b.path("out", "r.gguf"), "--against", b.path("model"), "--min-snr", "30", "--json").json(t, &doc)
	if s := strings.Join(doc.Notes, "\n"); !strings.Contains(s, "steps of the build tv") || !strings.Contains(s, "288 of 512 rows") {
		t.Errorf("notes %q", doc.Notes)
	}
}

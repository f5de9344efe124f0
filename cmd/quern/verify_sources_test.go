package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"quern/hub/hubtest"
	"quern/internal/testmodel"
)

// TestVerifyKnowsWhatNeedNotBeRead: of a build whose later steps read files of
// their own, only what comes before the first loss is repeated.
func TestVerifyKnowsWhatNeedNotBeRead(t *testing.T) {
	b := newBench(t)
	b.model("stories-moe", "model")
	b.write("im.dat", string(mustRead(t, filepath.Join(testmodel.Root(), "convert", "presets", "stories-moe.imatrix.dat"))))
	recipe := b.write("r.yaml", "version: 1\nname: weighted\nsources:\n  base: {dir: model}\n  im: {file: im.dat}\nsteps:\n"+
		"  - quantize: {type: Q4_0, fallback: F16, imatrix: im}\noutputs:\n  - {format: gguf, file: r.gguf}\n")
	b.ok("build", recipe, "-o", b.path("out"))
	for _, args := range [][]string{nil, {"--recipe", recipe}} {
		var doc report
		b.ok(append([]string{"verify", b.path("out", "r.gguf"), "--against", b.path("model"), "--json"}, args...)...).json(t, &doc)
		if doc.Total.SNR == nil || *doc.Total.SNR < 10 || len(doc.Notes) == 0 || !strings.Contains(doc.Notes[0], "steps of ") {
			t.Errorf("%v: ratio %v, notes %q", args, deref(doc.Total.SNR), doc.Notes)
		}
	}
}

// TestVerifyOfWhatOtherSourcesMade: the file tells how a trace has ordered its
// experts; where tensors of another model have gone, the recipe has to.
func TestVerifyOfWhatOtherSourcesMade(t *testing.T) {
	b := newBench(t)
	b.model("stories-moe", "model")
	var rows strings.Builder
	for layer := range 5 {
		fmt.Fprintf(&rows, "0\t%d\t7,%d\n", layer, layer)
	}
	b.write("use.trace", "quern-expert-trace 1\nexperts 8\nused 2\nlayers 0-4\n\n"+rows.String())
	b.ok("build", b.write("o.yaml", "version: 1\nname: ordered\nsources:\n  base: {dir: model}\n  use: {file: use.trace}\nsteps:\n"+
		"  - reorder: {experts: last, by: use}\noutputs:\n  - {format: gguf, file: o.gguf}\n"), "-o", b.path("out"))
	var doc report
	b.ok("verify", b.path("out", "o.gguf"), "--against", b.path("model"), "--json").json(t, &doc)
	if len(doc.Tensors) != 52 {
		t.Errorf("%d tensors", len(doc.Tensors))
	}
	for _, x := range doc.Tensors {
		if x.MaxAbs == nil || *x.MaxAbs != 0 {
			t.Errorf("%s: the largest error is %v", x.Name, deref(x.MaxAbs))
		}
	}

	recipe := b.write("a.yaml", "version: 1\nname: joined\nsources:\n  base: {dir: model}\n  other: {gguf: out/o.gguf}\nsteps:\n"+
		"  - assemble: {base: base, take: [{from: other, match: attn_q}]}\noutputs:\n  - {format: gguf, file: a.gguf}\n")
	b.ok("build", recipe, "-o", b.path("out"))
	a := b.path("out", "a.gguf")
	b.fails(exitUsage, []string{"build joined read source other", "--recipe", "--no-store"}, "verify", a, "--against", b.path("model"))
	b.ok("verify", a, "--against", b.path("model"), "--no-store")
	b.ok("verify", a, "--against", b.path("model"), "--recipe", recipe)
}

// TestVerifyOfAGatedBuild: what the store knows of the file names a source that only
// a gate reads; verify neither needs it nor minds it.
func TestVerifyOfAGatedBuild(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	story(b)
	b.ok("build", b.recipe(scored+"max: 100}\n"), "-o", b.path("out"))
	b.write("text.txt", "gone")
	var doc report
	b.ok("verify", b.path("out", "r.gguf"), "--against", b.path("model"), "--json").json(t, &doc)
	if len(doc.Notes) == 0 || !strings.Contains(strings.Join(doc.Notes, "\n"), "steps of the build r applied") {
		t.Errorf("notes %q", doc.Notes)
	}
}

// TestTokenizerIsCompared: building and verifying say where the written tokenizer
// gives other ids than the source's tokenizer.json, case 47 of docs/pitfalls.md.
// That of the model puts no space before a text, which GGUF cannot say.
func TestTokenizerIsCompared(t *testing.T) {
	b := newBench(t)
	b.model("tiny-llama-hf", "model")
	b.model("stories260k", "quiet")
	const says = `tokenizer: r.gguf gives other ids for 48 of 48 golden strings, the first is "Hello world": `
	recipe := b.recipe("outputs:\n  - {format: gguf, file: r.gguf}\n")
	var doc struct{ Warnings, Notes []string }
	b.ok("build", recipe, "-o", b.path("out"), "--json").json(t, &doc)
	if !strings.Contains(strings.Join(doc.Warnings, "\n"), says) {
		t.Errorf("warnings %q", doc.Warnings)
	}
	b.ok("verify", b.path("out", "r.gguf"), "--against", b.path("model"), "--json").json(t, &doc)
	if !strings.Contains(strings.Join(doc.Notes, "\n"), says) {
		t.Errorf("notes %q", doc.Notes)
	}
	// Nothing is said where the source has no definition of its own.
	b.ok("build", recipe, "-o", b.path("out"), "--set", "sources.base.dir=quiet", "--json").json(t, &doc)
	if strings.Contains(strings.Join(doc.Warnings, "\n"), "tokenizer") {
		t.Errorf("warnings %q", doc.Warnings)
	}
}

// TestVerifyOverHTTP compares with a repository whose host damages a byte on
// the way: it is found, fetched again, and no tensor is blamed.
func TestVerifyOverHTTP(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	b.ok("build", b.recipe(q8), "-o", b.path("out"))
	repo := hubtest.NewRepo("org/stories")
	list := map[string]*hubtest.File{}
	for _, name := range files(t, b.path("model")) {
		d := mustRead(t, b.path("model", name))
		list[name] = hubtest.Git(string(d))
		if filepath.Ext(name) == ".safetensors" {
			list[name] = hubtest.LFS(d)
		}
	}
	repo.Commit(list)
	h := hubtest.New(t, hubtest.Options{}, repo)
	var want, got report
	b.ok("verify", b.path("out", "r.gguf"), "--against", b.path("model"), "--json").json(t, &want)
	for _, flip := range []int64{0, 500_000} {
		b.dropDownloads()
		if flip > 0 {
			h.Inject(hubtest.Fault{On: hubtest.CDN, Path: "model.safetensors", Covering: flip, Flip: flip})
		}
		r := b.ok("verify", b.path("out", "r.gguf"), "--against", "hf:org/stories", "--endpoint", h.URL, "--json")
		r.json(t, &got)
		for i, x := range got.Tensors {
			if deref(x.SNR) != deref(want.Tensors[i].SNR) || deref(x.MaxAbs) != deref(want.Tensors[i].MaxAbs) {
				t.Errorf("flip at %d: tensor %s: %v dB, want %v", flip, x.Name, deref(x.SNR), deref(want.Tensors[i].SNR))
			}
		}
		if flip > 0 && !strings.Contains(r.err, "fetched again") && !strings.Contains(r.err, "replaced") {
			t.Errorf("no word of the damage: %s", r.err)
		}
	}
	b.fails(exitSource, []string{"org/other"}, "verify", b.path("out", "r.gguf"), "--against", "hf:org/other", "--endpoint", h.URL)
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/artifacts/local"
	"quern/hub/hubtest"
	"quern/internal/testmodel"
)

// jsonFailure is what every document of a failed command has.
type jsonFailure struct {
	Error    string `json:"error"`
	ExitCode int    `json:"exit_code"`
}

// TestJSON runs every command with --json, well and badly: standard output has
// one document and nothing else, and a failed command's says why.
func TestJSON(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	gate := b.write("gate.yaml", "version: 1\nname: gate\nsources:\n  base: {dir: model}\n"+q8+"gates:\n  - tensors: {min-snr-db: 200}\n")
	out := b.path("out")
	file := filepath.Join(out, "r.gguf")
	for _, c := range []struct {
		code int
		keys []string // of the document
		args []string
	}{
		{exitDone, []string{"name", "outputs", "manifest", "lock", "stats"}, []string{"build", recipe, "-o", out}},
		{exitDone, []string{"name", "outputs", "sources", "peak_memory"}, []string{"plan", recipe}},
		{exitVerify, []string{"name", "gates", "error", "exit_code"}, []string{"build", gate, "-o", out}},
		{exitUsage, []string{"error", "exit_code"}, []string{"build", b.path("none.yaml")}},
		{exitUsage, []string{"error", "exit_code"}, []string{"build", recipe, "--jobs", "-1"}},
		{exitUsage, []string{"error", "exit_code"}, []string{"build", recipe, "--no-such-flag"}},
		{exitUsage, []string{"error", "exit_code"}, []string{"bild"}},
		{exitUsage, []string{"error", "exit_code"}, []string{"plan"}},
		{exitDone, []string{"name", "format", "size", "details", "metadata", "tensors", "problems"}, []string{"inspect", file}},
		{exitDone, []string{"name", "format", "files", "tensors"}, []string{"inspect", b.path("model")}},
		{exitSource, []string{"error", "exit_code"}, []string{"inspect", b.path("none")}},
		{exitDone, []string{"file", "tensors", "total"}, []string{"verify", file}},
		{exitDone, []string{"file", "against", "tensors", "total", "notes"}, []string{"verify", file, "--against", b.path("model")}},
		{exitVerify, []string{"file", "tensors", "error", "exit_code"}, []string{"verify", file, "--golden", b.path("model", "model.safetensors")}},
		{exitVerify, []string{"error", "exit_code"}, []string{"verify", b.path("model", "config.json")}},
		{exitSource, []string{"error", "exit_code"}, []string{"verify", b.path("none")}},
		{exitDone, []string{"names", "blobs"}, []string{"store", "ls"}},
		{exitDone, []string{"snapshots", "entries"}, []string{"store", "ls", "--spool"}},
		{exitDone, []string{"manifest", "name", "outputs"}, []string{"store", "show", "r"}},
		{exitFailed, []string{"error", "exit_code"}, []string{"store", "show", "nothing"}},
		{exitDone, []string{"name", "digest"}, []string{"store", "tag", "r", "again"}},
		{exitDone, []string{"untagged"}, []string{"store", "untag", "again"}},
		{exitFailed, []string{"error", "exit_code"}, []string{"store", "untag", "again"}},
		{exitDone, []string{"findings"}, []string{"store", "verify"}},
		{exitDone, []string{"plan", "spool"}, []string{"store", "gc", "--dry-run"}},
		{exitDone, []string{"plan", "result", "spool"}, []string{"store", "gc"}},
		{exitDone, []string{"files"}, []string{"store", "export", "r", "-o", b.path("exported")}},
		{exitFailed, []string{"files", "error", "exit_code"}, []string{"store", "export", "r", "-o", b.path("exported")}},
		{exitUsage, []string{"error", "exit_code"}, []string{"store", "show"}},
		{exitDone, []string{"model", "prompt_tokens", "tokens", "text", "stop"}, []string{"run", file, "-n", "4"}},
		{exitUsage, []string{"error", "exit_code"}, []string{"run", file, "-n", "-4"}},
		{exitDone, []string{"model", "tokens", "sha256", "top"}, []string{"logits", file, "--tokens", "1,2", "--act", "q8"}},
		{exitDone, []string{"tokens", "pieces"}, []string{"tokenize", file, "hello"}},
		{exitDone, []string{"perplexity", "bits_per_byte", "scored", "context"}, []string{"ppl", file, "-f", evalStories(), "-c", "64", "--chunks", "1"}},
		{exitDone, []string{"answers", "looped", "share"}, []string{"loops", file, "-f", evalStories(), "--answers", "1", "-n", "4"}},
		{exitDone, []string{"file", "entries", "chunks", "unseen_experts"}, []string{"imatrix", file, "-f", evalStories(), "-c", "64", "--chunks", "1", "-o", b.path("im.gguf")}},
		{exitSource, []string{"error", "exit_code"}, []string{"ppl", b.path("none"), "-f", evalStories()}},
		{exitDone, []string{"$schema"}, []string{"schema"}},
		{exitDone, []string{"recipes"}, []string{"recipes", "ls"}},
		{exitDone, []string{"name", "about", "sources", "outputs", "text"}, []string{"recipes", "show", "bonsai-8b"}},
		{exitUsage, []string{"error", "exit_code"}, []string{"recipes", "show", "bonsai"}},
		{exitUsage, []string{"error", "exit_code"}, []string{"plan", "builtin:bonsai"}},
		{exitDone, []string{"shell", "script"}, []string{"completion", "bash"}},
	} {
		for _, flag := range []string{"--json", "-json", "--json=true"} {
			if c.args[0] == "store" && flag != "--json" {
				continue // these change the store
			}
			args := append(append([]string(nil), c.args...), flag)
			r := b.run(args...)
			name := strings.Join(args, " ")
			if r.code != c.code {
				t.Errorf("%s: exit code %d, want %d\n%s", name, r.code, c.code, r.err)
			}
			var doc map[string]any
			r.json(t, &doc)
			for _, k := range c.keys {
				if _, ok := doc[k]; !ok {
					t.Errorf("%s: no %q in\n%.600s", name, k, r.out)
				}
			}
			var f jsonFailure
			r.json(t, &f)
			if f.ExitCode != c.code {
				t.Errorf("%s: the document has exit code %d, it was %d", name, f.ExitCode, c.code)
			}
			if c.code != exitDone && !strings.Contains(r.err, "quern: "+f.Error) {
				t.Errorf("%s: the document has error %q, stderr %q", name, f.Error, r.err)
			}
		}
	}
}

// TestJSONRepository inspects and plans what lies behind HTTP.
func TestJSONRepository(t *testing.T) {
	b := newBench(t)
	data, err := testmodel.Build("stories260k")
	if err != nil {
		t.Fatal(err)
	}
	repo := hubtest.NewRepo("org/stories")
	list := map[string]*hubtest.File{}
	for name, d := range data {
		list[name] = hubtest.Git(string(d))
		if filepath.Ext(name) == ".safetensors" {
			list[name] = hubtest.LFS(d)
		}
	}
	commit := repo.Commit(list)
	h := hubtest.New(t, hubtest.Options{}, repo)
	var doc struct {
		Commit string
		Fetch  struct{ Fetched int64 }
		Files  []struct{ Path string }
	}
	b.ok("inspect", "hf:org/stories", "--endpoint", h.URL, "--json").json(t, &doc)
	if doc.Commit != commit || doc.Fetch.Fetched <= 0 || doc.Fetch.Fetched > 100_000 {
		t.Errorf("commit %s, %d bytes fetched", doc.Commit, doc.Fetch.Fetched)
	}
	recipe := b.write("hf.yaml", "version: 1\nname: hf\nsources:\n  base: {hf: org/stories}\n"+q8)
	r := b.ok("build", recipe, "-o", b.path("out"), "--endpoint", h.URL, "--json", "--progress", "json")
	var built struct {
		Sources []struct {
			Commit string
			Files  []struct{ Path string }
		}
	}
	r.json(t, &built)
	var paths []string
	for _, f := range built.Sources[0].Files {
		paths = append(paths, f.Path)
	}
	want := "config.json generation_config.json model.safetensors tokenizer.model tokenizer_config.json"
	if got := strings.Join(paths, " "); got != want || built.Sources[0].Commit != commit {
		t.Errorf("provenance has %s at %s, want %s at %s", got, built.Sources[0].Commit, want, commit)
	}
	checkLines(t, r.err)
}

// TestReadOnlyStoreAndHub builds from a repository where nothing can be kept,
// not even what was fetched.
func TestReadOnlyStoreAndHub(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	b.ok("build", b.recipe(q8), "-o", b.path("out"))
	repo := hubtest.NewRepo("org/stories")
	list := map[string]*hubtest.File{}
	for _, name := range files(t, b.path("model")) {
		list[name] = hubtest.LFS(mustRead(t, b.path("model", name)))
	}
	repo.Commit(list)
	h := hubtest.New(t, hubtest.Options{}, repo)
	had := strings.Join(files(t, b.path("store")), " ")
	b.hooks.store = local.Options{ReadOnly: true}
	recipe := b.write("hf.yaml", "version: 1\nname: hf\nsources:\n  base: {hf: org/stories}\n"+q8)
	r := b.ok("build", recipe, "-o", b.path("other"), "--endpoint", h.URL, "--no-cache")
	if !strings.Contains(r.err, "nothing of this build is kept") {
		t.Errorf("no warning: %s", r.err)
	}
	if now := strings.Join(files(t, b.path("store")), " "); now != had {
		t.Errorf("the store had %s, has %s", had, now)
	}
	b.ok("verify", b.path("other", "r.gguf"), "--against", b.path("model"))
}

// TestProvenance: every file that was read is named, the tokenizer's too, in
// the first build and in one that takes everything from the store.
func TestProvenance(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	for i := range 3 {
		var doc struct {
			Sources []struct {
				Files []struct{ Path, SHA256 string }
			}
		}
		b.ok("build", recipe, "-o", b.path("out"), "--json").json(t, &doc)
		var got []string
		for _, f := range doc.Sources[0].Files {
			got = append(got, f.Path)
			if f.SHA256 != sum(t, b.path("model", f.Path)) {
				t.Errorf("build %d: %s has digest %q", i, f.Path, f.SHA256)
			}
		}
		if want := "[config.json generation_config.json model.safetensors tokenizer.model tokenizer_config.json]"; fmt.Sprint(got) != want {
			t.Errorf("build %d: provenance has %v, want %s", i, got, want)
		}
	}
}

// checkLines demands that every line is an event in JSON.
func checkLines(t *testing.T, text string) []string {
	t.Helper()
	var kinds []string
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		var e struct{ Kind string }
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind == "" {
			t.Errorf("%q is no event: %v", line, err)
		}
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestProgress(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	r := b.ok("build", recipe, "-o", b.path("out"), "--progress", "json", "--no-cache")
	kinds := strings.Join(checkLines(t, r.err), " ")
	for _, k := range []string{"output", "tensor", "progress", "done"} {
		if !strings.Contains(kinds, k) {
			t.Errorf("no event of kind %s: %s", k, kinds)
		}
	}
	if strings.Contains(r.out, "{") {
		t.Errorf("JSON on stdout: %s", r.out)
	}
	// The error is an event too.
	r = b.run("build", recipe, "-o", b.path("out"), "--progress=json", "--set", "steps.quantize.fallback=Q4_0")
	if kinds := checkLines(t, r.err); r.code != exitUsage || kinds[len(kinds)-1] != "error" {
		t.Errorf("exit code %d, events %v", r.code, kinds)
	}
	// None is none, but for errors.
	if r := b.ok("build", recipe, "-o", b.path("out"), "--progress", "none", "--no-cache"); r.err != "" {
		t.Errorf("stderr has %q", r.err)
	}
	// Where there is no terminal, plain lines: no bar, no control characters.
	r = b.ok("build", recipe, "-o", b.path("out"), "--no-cache")
	if !strings.Contains(r.err, "writing r.gguf") || !strings.Contains(r.err, "finished r.gguf") {
		t.Errorf("stderr has %q", r.err)
	}
	// A bar is for terminals, and all the same on demand.
	bar := b.ok("build", recipe, "-o", b.path("out"), "--no-cache", "--progress", "bar")
	if !strings.Contains(bar.err, "\r") {
		t.Errorf("no bar in %q", bar.err)
	}
	for _, out := range []string{r.out, r.err, bar.out} {
		if i := strings.IndexFunc(out, func(c rune) bool { return c < ' ' && c != '\n' }); i >= 0 {
			t.Errorf("control character %q at %d of %q", out[i], i, out)
		}
	}
}

// TestChildPrintsPlainLines is the same for a process whose output is a pipe.
func TestChildPrintsPlainLines(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	cmd := b.command("build", b.recipe(q8), "-o", b.path("out"), "--json")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errOut.String())
	}
	var doc struct{ Name string }
	ran{out: out.String()}.json(t, &doc)
	if doc.Name != "r" || strings.ContainsAny(errOut.String(), "\r\x1b\x00\b") || !strings.Contains(errOut.String(), "writing r.gguf") {
		t.Errorf("name %q, stderr %q", doc.Name, errOut.String())
	}
}

// TestNamesCannotCommandTheTerminal inspects a file whose names hold escape
// sequences.
func TestNamesCannotCommandTheTerminal(t *testing.T) {
	b := newBench(t)
	evil := "a\x1b[2J\x07b\u009bc"
	data, err := testmodel.Safetensors([]testmodel.Tensor{{Name: "NAME", DType: "F32", Shape: []int64{4}}})
	if err != nil {
		t.Fatal(err)
	}
	// The header keeps its length: the escapes take the place of spaces.
	quoted := fmt.Sprintf("%s", `a\u001b[2J\u0007b`+"\u009b"+`c`)
	head := strings.Replace(string(data[8:len(data)-16]), `"NAME"`, `"`+quoted+`"`, 1)
	for len(head)%8 != 0 {
		head += " "
	}
	size := make([]byte, 8)
	for i := range size {
		size[i] = byte(len(head) >> (8 * i))
	}
	p := b.write("evil.safetensors", string(size)+head+string(data[len(data)-16:]))
	for _, args := range [][]string{{"inspect", p}, {"verify", p}, {"verify", p, "--golden", b.write("other", "GGUF")}} {
		r := b.run(args...)
		if strings.ContainsAny(r.out+r.err, "\x1b\x07\u009b") {
			t.Errorf("%v: %q", args, r.out+r.err)
		}
		if !strings.Contains(r.out, `a\x1b[2J\x07b\x9bc`) {
			t.Errorf("%v: the name is not shown: %q", args, r.out)
		}
	}
	var doc struct{ Tensors []struct{ Name string } }
	b.ok("inspect", p, "--json").json(t, &doc)
	if doc.Tensors[0].Name != evil {
		t.Errorf("JSON has the name %q", doc.Tensors[0].Name)
	}
}

// TestJSONOfNumbersThatJSONHasNot: infinite ratios and sources that are not
// finite give documents all the same.
func TestJSONOfNumbersThatJSONHasNot(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	// Equal tensors have an infinite ratio.
	recipe := b.recipe("outputs:\n  - {format: gguf, file: r.gguf, outtype: f32}\ngates:\n  - tensors: {min-snr-db: 100, max-abs: 0}\n")
	var doc struct {
		Gates []struct {
			Value *float64
			Pass  bool
		}
	}
	b.ok("build", recipe, "-o", b.path("out"), "--json").json(t, &doc)
	if len(doc.Gates) != 2 || !doc.Gates[0].Pass || doc.Gates[0].Value != nil || doc.Gates[1].Value == nil {
		t.Errorf("%+v", doc.Gates)
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		one := func(x float64) string {
			d, err := testmodel.Safetensors([]testmodel.Tensor{{Name: "t", DType: "F32", Shape: []int64{2}, Data: f32s(1, x)}})
			if err != nil {
				t.Fatal(err)
			}
			return b.write(fmt.Sprintf("x%v.safetensors", x), string(d))
		}
		bad, good := one(v), one(2)
		for _, args := range [][]string{{"inspect", bad}, {"verify", bad}, {"verify", bad, "--golden", good}, {"verify", good, "--golden", bad}} {
			var any map[string]any
			b.run(append(args, "--json")...).json(t, &any)
		}
	}
	if _, err := os.Stat(b.path("out", "r.gguf")); err != nil {
		t.Error(err)
	}
}

func f32s(list ...float64) []byte {
	var b []byte
	for _, v := range list {
		x := math.Float32bits(float32(v))
		b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
	}
	return b
}

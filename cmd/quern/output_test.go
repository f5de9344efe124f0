package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestOutputIsAnInput tries to make a build overwrite what it reads, by every
// kind of name that leads there. Nothing may be touched.
func TestOutputIsAnInput(t *testing.T) {
	outputs := func(file string) string {
		return fmt.Sprintf("outputs:\n  - {format: gguf, file: %q}\n", file)
	}
	for _, c := range []struct {
		name   string
		file   string // the output
		out    string // -o, below the bench
		before func(t *testing.T, b *bench)
		words  []string
	}{
		{"same path", "model.safetensors", "model", nil, []string{"model.safetensors", "source base"}},
		{"side file", "tokenizer.model", "model", nil, []string{"tokenizer.model", "source base"}},
		{"sub-folder", "model/config.json", ".", nil, []string{"config.json"}},
		{"unclean path", "config.json", "model/../model/.", nil, []string{"config.json"}},
		{"letter case", "MODEL.safetensors", "model", nil, []string{"MODEL.safetensors"}},
		{"letter case of a folder", "MODEL/Model.Safetensors", ".", nil, []string{"Model.Safetensors"}},
		{"hard link", "r.gguf", "out", func(t *testing.T, b *bench) {
			check(t, os.MkdirAll(b.path("out"), 0o755))
			check(t, os.Link(b.path("model", "model.safetensors"), b.path("out", "r.gguf")))
		}, []string{"r.gguf"}},
		{"symbolic link", "r.gguf", "out", func(t *testing.T, b *bench) {
			check(t, os.MkdirAll(b.path("out"), 0o755))
			check(t, os.Symlink(b.path("model", "model.safetensors"), b.path("out", "r.gguf")))
		}, []string{"r.gguf"}},
		{"linked folder", "tokenizer.MODEL", "out", func(t *testing.T, b *bench) {
			check(t, os.Symlink(b.path("model"), b.path("out")))
		}, []string{"tokenizer.MODEL"}},
		{"the recipe", "r.yaml", ".", nil, []string{"r.yaml", "input"}},
		{"the lock file", "r.lock", ".", nil, []string{"r.lock", "lock file"}},
		{"a folder", "r.gguf", "out", func(t *testing.T, b *bench) {
			check(t, os.MkdirAll(b.path("out", "r.gguf"), 0o755))
		}, []string{"r.gguf is a folder"}},
		{"-o is a file", "r.gguf", "model/config.json", nil, []string{"config.json is a file", "-o"}},
		{"a folder of the name is a file", "model/config.json/r.gguf", ".", nil, []string{"config.json is a file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.model("stories260k", "model")
			recipe := b.recipe(outputs(c.file))
			if c.before != nil {
				c.before(t, b)
			}
			had := snapshot(t, b)
			r := b.fails(exitUsage, c.words, "build", recipe, "-o", b.path(filepath.FromSlash(c.out)))
			if strings.Contains(r.err, "writing") {
				t.Errorf("work was begun before the fault was found:\n%s", r.err)
			}
			if now := snapshot(t, b); now != had {
				t.Errorf("files were\n%s\nare\n%s", had, now)
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// snapshot lists all files of a bench but the store's, with their digests.
func snapshot(t *testing.T, b *bench) string {
	t.Helper()
	var out strings.Builder
	for _, f := range files(t, b.dir) {
		if !strings.HasPrefix(f, "store/") {
			fmt.Fprintln(&out, sum(t, b.path(filepath.FromSlash(f))), f)
		}
	}
	return out.String()
}

// TestOutputs writes several, into folders that are not there yet.
func TestOutputs(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe("outputs:\n  - {format: gguf, file: tv/r.gguf}\n  - {format: kmcu, file: mcu/small/r.kmcu}\n  - {format: gguf, file: tv/f32.gguf, outtype: f32}\n")
	out := b.path("deep", "er", "out")
	var doc struct {
		Outputs []struct {
			File, Path, SHA256 string
			Size               int64
		}
	}
	b.ok("build", recipe, "-o", out, "--json").json(t, &doc)
	if got := fmt.Sprint(files(t, out)); got != "[mcu/small/r.kmcu tv/f32.gguf tv/r.gguf]" {
		t.Errorf("files %s", got)
	}
	for _, o := range doc.Outputs {
		st, err := os.Stat(filepath.Join(out, filepath.FromSlash(o.File)))
		if err != nil || st.Size() != o.Size || o.SHA256 != "sha256:"+sum(t, o.Path) {
			t.Errorf("%+v: %v", o, err)
		}
		if runtime.GOOS != "windows" && st.Mode().Perm()&0o444 != 0o444 {
			t.Errorf("%s has mode %v", o.Path, st.Mode())
		}
	}
	if want := string(mustRead(t, filepath.Join("..", "..", "testdata", "golden", "kmcu", "stories260k.kmcu"))); string(mustRead(t, filepath.Join(out, "mcu", "small", "r.kmcu"))) != want {
		t.Error("r.kmcu is not the golden file")
	}
	// Others' files beside the outputs are none of a build's business.
	b.write("deep/er/out/tv/notes.txt", "mine")
	b.write("deep/er/out/tv/.r.gguf.0123.quern-tmp-not", "mine too")
	b.ok("build", recipe, "-o", out, "--no-cache")
	if string(mustRead(t, filepath.Join(out, "tv", "notes.txt"))) != "mine" || len(files(t, out)) != 5 {
		t.Errorf("files %v", files(t, out))
	}
}

// TestFailedSetPublishesNothing: one output of several fails its gate, so the
// old ones stay, all of them.
func TestFailedSetPublishesNothing(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	text := "steps:\n  - quantize: {type: Q8_0, fallback: F16}\noutputs:\n  - {format: gguf, file: a.gguf}\n  - {format: gguf, file: sub/b.gguf}\n"
	out := b.path("out")
	b.ok("build", b.recipe(text), "-o", out)
	had := snapshot(t, b)
	recipe := b.recipe(text + "gates:\n  - tensors: {min-snr-db: 30}\n")
	b.fails(exitVerify, []string{"SNR", "sub/b.gguf", "nothing was published"}, "build", recipe, "-o", out, "--set", "steps.quantize.type=Q4_0")
	b.recipe(text)
	if now := snapshot(t, b); now != had {
		t.Errorf("files were\n%s\nare\n%s", had, now)
	}
}

// TestSameBytes: neither workers nor memory change an output, its lock or its
// manifest.
func TestSameBytes(t *testing.T) {
	b := newBench(t)
	b.model("stories-moe", "model")
	recipe := b.recipe("steps:\n  - quantize: {type: Q4_0, fallback: F16, rules: [{role: experts, type: Q8_0}]}\noutputs:\n  - {format: gguf, file: r.gguf}\n")
	type result struct{ output, lock, manifest string }
	var want result
	for _, jobs := range []string{"1", "2", "7"} {
		for _, mem := range []string{"64MiB", "4GiB"} {
			os.RemoveAll(b.path("store"))
			os.Remove(b.path("r.lock"))
			var doc struct{ Manifest string }
			b.ok("build", recipe, "-o", b.path("out"), "--jobs", jobs, "--memory", mem, "--json").json(t, &doc)
			got := result{sum(t, b.path("out", "r.gguf")), sum(t, b.path("r.lock")), doc.Manifest}
			if want.output == "" {
				want = got
			}
			if got != want || got.lock == "" || got.manifest == "" {
				t.Errorf("jobs %s, memory %s: %+v, want %+v", jobs, mem, got, want)
			}
		}
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type lockFile struct {
	Recipe  string
	Sources []struct {
		Ref   string
		Files []struct {
			Path, SHA256 string
			Size         int64
		}
	}
	Outputs []struct {
		File, SHA256 string
		Size         int64
		Tensors      []struct{ Name, SHA256 string }
	}
}

// TestLock: the lock file says what was read and written, and the same on
// every machine.
func TestLock(t *testing.T) {
	locks := map[string]bool{}
	for _, dir := range []string{"here", "somewhere/else", "absolute"} {
		b := newBench(t)
		b.dir = filepath.Join(b.dir, filepath.FromSlash(dir))
		b.model("stories260k", "model")
		recipe := b.recipe(q8)
		if dir == "absolute" {
			b.patch("r.yaml", b.replace("dir: model", fmt.Sprintf("dir: %q", b.path("model"))))
		}
		b.ok("build", recipe, "-o", b.path("out"))
		if show := b.ok("store", "show", "r"); strings.Contains(show.out, b.dir) {
			t.Errorf("the manifest has a path of this machine in it:\n%s", show.out)
		}
		text := mustRead(t, b.path("r.lock"))
		locks[string(text)] = true
		var l lockFile
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), b.dir) || strings.Contains(string(text), os.TempDir()) {
			t.Error("the lock has a path of this machine in it")
		}
		if len(l.Sources) != 1 || len(l.Sources[0].Files) != 5 || l.Sources[0].Ref != "model" {
			t.Errorf("sources %+v", l.Sources)
		}
		for _, f := range l.Sources[0].Files {
			if f.SHA256 != sum(t, b.path("model", f.Path)) {
				t.Errorf("%s: %s", f.Path, f.SHA256)
			}
		}
		if o := l.Outputs[0]; o.SHA256 != "sha256:"+sum(t, b.path("out", "r.gguf")) || len(o.Tensors) != 47 {
			t.Errorf("output %s with %d tensors", o.SHA256, len(o.Tensors))
		}
	}
	if len(locks) != 1 {
		t.Errorf("%d different locks", len(locks))
	}
}

// TestLocked changes one thing after the other that a lock holds on to.
func TestLocked(t *testing.T) {
	flip := func(name string, at int) func(*bench) {
		return func(b *bench) {
			b.patch(name, func(d []byte) []byte { d[(at+len(d))%len(d)] ^= 1; return d })
		}
	}
	for _, c := range []struct {
		name   string
		change func(*bench)
		args   []string
		code   int
		words  []string
	}{
		{"nothing", func(*bench) {}, nil, exitDone, nil},
		{"nothing, from scratch", func(b *bench) { os.RemoveAll(b.path("store")); os.RemoveAll(b.path("out")) }, nil, exitDone, nil},
		{"nothing, without a store", func(*bench) {}, []string{"--no-store"}, exitDone, nil},
		{"nothing that counts", func(b *bench) { b.patch("r.yaml", b.replace("version: 1", "# a comment\nversion: 1")) }, nil, exitDone, nil},
		{"a weight", flip("model/model.safetensors", -1), nil, exitVerify, []string{"model.safetensors", "locked to"}},
		{"a weight, the store having the old", flip("model/model.safetensors", -4000), nil, exitVerify, []string{"model.safetensors"}},
		{"the tokenizer", flip("model/tokenizer.model", -1), nil, exitVerify, []string{"tokenizer.model", "locked to"}},
		{"a size", func(b *bench) {
			b.patch("model/tokenizer_config.json", func(d []byte) []byte { return append(d, '\n') })
		}, nil, exitVerify,
			[]string{"tokenizer_config.json", "bytes, locked to"}},
		{"a file more", func(b *bench) {
			b.write("model/chat_template.jinja", "{{ messages }}")
		}, nil, exitVerify, []string{"chat_template.jinja", "not in it"}},
		{"a file less", func(b *bench) { os.Remove(b.path("model", "generation_config.json")) }, nil, exitVerify, []string{"generation_config.json", "locked but not read"}},
		{"the recipe", func(b *bench) { b.patch("r.yaml", b.replace("Q8_0", "Q5_0")) }, nil, exitVerify, []string{"recipe has changed"}},
		{"the recipe by --set", func(*bench) {}, []string{"--set", "steps.quantize.type=Q5_0"}, exitVerify, []string{"recipe has changed"}},
		{"no lock", func(b *bench) { os.Remove(b.path("r.lock")) }, nil, exitVerify, []string{"no lock file", "r.lock", "without --locked"}},
		{"a damaged lock", func(b *bench) { b.write("r.lock", "{") }, nil, exitVerify, []string{"r.lock", "not a lock file"}},
		{"a lock of tomorrow", func(b *bench) { b.patch("r.lock", b.replace(`"version": 1`, `"version": 2`)) }, nil, exitVerify, []string{"r.lock", "version 2"}},
		{"an output's digest", func(b *bench) {
			b.patch("r.lock", func(d []byte) []byte {
				var l lockFile
				check(b.t, json.Unmarshal(d, &l))
				return b.replace(l.Outputs[0].SHA256, "sha256:"+strings.Repeat("0", 64))(d)
			})
		}, nil, exitVerify, []string{"r.gguf", "metadata"}},
		{"a tensor's digest", func(b *bench) {
			b.patch("r.lock", func(d []byte) []byte {
				var l lockFile
				check(b.t, json.Unmarshal(d, &l))
				d = b.replace(l.Outputs[0].SHA256, "sha256:"+strings.Repeat("0", 64))(d)
				return b.replace(l.Outputs[0].Tensors[7].SHA256, "sha256:"+strings.Repeat("1", 64))(d)
			})
		}, nil, exitVerify, []string{"r.gguf", "first tensor that differs is blk.0.ffn_down.weight"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.model("stories260k", "model")
			recipe := b.recipe(q8)
			b.ok("build", recipe, "-o", b.path("out"))
			c.change(b)
			had := snapshot(t, b)
			r := b.fails(c.code, c.words, append([]string{"build", recipe, "-o", b.path("out"), "--locked"}, c.args...)...)
			now := snapshot(t, b)
			if c.code != exitDone && now != had {
				t.Errorf("files were\n%s\nare\n%s", had, now)
			}
			if c.code == exitDone && !strings.Contains(now, "out/r.gguf") {
				t.Errorf("no output: %s\n%s", now, r.err)
			}
		})
	}
}

// TestLockGoesWhereItMay: a recipe in a folder without a write bit gets its
// lock in the output folder, also when root builds.
func TestLockGoesWhereItMay(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "shipped/model")
	recipe := b.write("shipped/r.yaml", "version: 1\nname: r\nsources:\n  base: {dir: model}\n"+q8)
	check(t, os.Chmod(b.path("shipped"), 0o555))
	t.Cleanup(func() { os.Chmod(b.path("shipped"), 0o755) })
	out := b.path("out")
	b.fails(exitVerify, []string{"shipped/r.lock", "out/r.lock"}, "build", recipe, "-o", out, "--locked")
	var doc struct{ Lock string }
	b.ok("build", recipe, "-o", out, "--json").json(t, &doc)
	if doc.Lock != filepath.Join(out, "r.lock") {
		t.Errorf("lock at %q", doc.Lock)
	}
	if got := strings.Join(files(t, out), " "); got != "r.gguf r.lock" {
		t.Errorf("files %s", got)
	}
	if _, err := os.Stat(b.path("shipped", "r.lock")); err == nil {
		t.Error("a lock was put into a folder that is not to be written to")
	}
	b.ok("build", recipe, "-o", out, "--locked")
	b.fails(exitVerify, []string{"recipe has changed"}, "build", recipe, "-o", out, "--locked", "--set", "name=other")
}

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"oras.land/oras-go/v2"
	orasmemory "oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/content/oci"

	"quern/artifacts/local"
)

// readOnlyStore builds with a store that takes nothing: what it has is used,
// what is new is written all the same, and a warning says that it is not kept.
func readOnlyStore(t *testing.T, b *bench, recipe, store string) {
	t.Helper()
	had := strings.Join(files(t, store), "\n")
	type result struct {
		Outputs []struct {
			Cached bool
			Made   int `json:"tensors_made"`
			SHA256 string
		}
		Warnings []string
		Manifest string
	}
	for _, c := range []struct {
		set    string
		cached bool
		made   int
	}{
		{"name=r", true, 0},
		{"steps.quantize.fallback=F32", false, 5}, // the tensors that fall back
	} {
		var got, want result
		out := filepath.Join(b.dir, "ro-"+strings.ReplaceAll(c.set, "=", "-"))
		b.ok("build", recipe, "-o", out, "--store", store, "--set", c.set, "--json").json(t, &got)
		b.ok("build", recipe, "-o", b.path("plain"), "--no-store", "--set", c.set, "--json").json(t, &want)
		o := got.Outputs[0]
		if o.SHA256 != want.Outputs[0].SHA256 || o.SHA256 != "sha256:"+sum(t, filepath.Join(out, "r.gguf")) {
			t.Errorf("--set %s: %s, want %s", c.set, o.SHA256, want.Outputs[0].SHA256)
		}
		if o.Cached != c.cached || o.Made != c.made {
			t.Errorf("--set %s: cached %v, %d tensors made", c.set, o.Cached, o.Made)
		}
		if !strings.Contains(strings.Join(got.Warnings, " "), "read-only") || got.Manifest != "" {
			t.Errorf("--set %s: warnings %q, manifest %q", c.set, got.Warnings, got.Manifest)
		}
	}
	b.ok("store", "ls", "--store", store)
	b.ok("store", "verify", "--store", store)
	if now := strings.Join(files(t, store), "\n"); now != had {
		t.Errorf("the store had\n%s\nhas\n%s", had, now)
	}
}

// TestReadOnlyStore is that without a mount: the store says that it is.
func TestReadOnlyStore(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	b.ok("build", recipe, "-o", b.path("first"))
	b.hooks.store = local.Options{ReadOnly: true}
	readOnlyStore(t, b, recipe, b.path("store"))
	b.fails(exitFailed, []string{"read-only"}, "store", "untag", "r")
}

// TestNoPlaceForAStore: without a home there is no store, and no need of one.
func TestNoPlaceForAStore(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems find the cache folder in other ways")
	}
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	for _, v := range []string{"QUERN_STORE", "XDG_CACHE_HOME", "HOME"} {
		t.Setenv(v, "")
	}
	if r := b.ok("build", recipe, "-o", b.path("out")); !strings.Contains(r.err, "warning: no folder for the store") {
		t.Errorf("no warning: %s", r.err)
	}
	b.ok("plan", recipe)
	b.ok("verify", b.path("out", "r.gguf"))
	b.fails(exitFailed, []string{"--store"}, "store", "ls")
	b.ok("store", "ls", "--store", b.path("store"))
}

// TestBuildHoldsTheStore runs gc at every event of a build: it finds the store
// in use and removes nothing, and runs when the build is over.
func TestBuildHoldsTheStore(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	b.ok("build", recipe, "-o", b.path("out"))
	b.ok("store", "untag", "r")
	blobs := len(files(t, b.path("store", "blobs")))
	watcher := &bench{t: t, dir: b.dir}
	tried := 0
	b.hooks.event = func() {
		if tried++; tried > 6 {
			return
		}
		s, err := local.Open(t.Context(), b.path("store"), local.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		p, err := s.PlanGC(t.Context(), local.GCOptions{Grace: -1})
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := s.ExecuteGC(t.Context(), p); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("event %d: gc ran: %v", tried, err)
		}
	}
	// What the build takes from the store has no name any more.
	r := b.ok("build", recipe, "-o", b.path("other"))
	if !strings.Contains(r.out, "the store had the file") || tried < 2 {
		t.Errorf("%d events\n%s", tried, r.out)
	}
	if n := len(files(t, b.path("store", "blobs"))); n != blobs {
		t.Errorf("%d blobs, were %d", n, blobs)
	}
	watcher.ok("store", "untag", "r")
	if r := watcher.ok("store", "gc", "--grace", "0s"); !strings.Contains(r.out, "3 files") {
		t.Errorf("gc afterwards: %s", r.out)
	}
}

func TestStoreCommands(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe("steps:\n  - quantize: {type: Q8_0, fallback: F16}\noutputs:\n  - {format: gguf, file: r.gguf}\n  - {format: gguf, file: sub/s.gguf}\n")
	var built struct{ Manifest string }
	b.ok("build", recipe, "-o", b.path("out"), "--json").json(t, &built)
	want := sum(t, b.path("out", "r.gguf"))

	if r := b.ok("store", "ls"); !strings.Contains(r.out, built.Manifest) || !strings.Contains(r.out, "r ") {
		t.Errorf("ls: %s", r.out)
	}
	hex := strings.TrimPrefix(built.Manifest, "sha256:")
	for _, ref := range []string{"r", built.Manifest, hex, hex[:12]} {
		r := b.ok("store", "show", ref)
		for _, w := range []string{"built by quern", "source base: dir model", "tokenizer.model", `step {"quantize"`, "output r.gguf", want, "token_embd.weight"} {
			if !strings.Contains(r.out, w) {
				t.Errorf("show %s: no %q in\n%s", ref, w, r.out)
			}
		}
	}
	b.fails(exitFailed, []string{"nothing", "not in the store"}, "store", "show", "nothing")
	b.ok("store", "tag", "r", "kept:1.0")
	b.fails(exitUsage, []string{"bad name"}, "store", "tag", "r", "../evil")
	b.ok("store", "untag", "r")
	if r := b.ok("store", "ls"); strings.Contains(r.out, "\nr ") || !strings.Contains(r.out, "kept:1.0") {
		t.Errorf("ls: %s", r.out)
	}

	// gc: too young, then a dry run, then in earnest. The name protects.
	b.ok("store", "gc", "--grace", "0s")
	b.ok("store", "show", "kept:1.0")
	b.ok("build", recipe, "-o", b.path("out"), "--set", "name=loose", "--set", "steps.quantize.fallback=F32")
	b.ok("store", "untag", "loose")
	blobs := len(files(t, b.path("store", "blobs")))
	if r := b.ok("store", "gc"); !strings.Contains(r.out, "0 files") || len(files(t, b.path("store", "blobs"))) != blobs {
		t.Errorf("gc of what is young: %s", r.out)
	}
	if r := b.ok("store", "gc", "--dry-run", "--grace", "0s"); !strings.Contains(r.out, "would go") || len(files(t, b.path("store", "blobs"))) != blobs {
		t.Errorf("gc -n: %s", r.out)
	}
	if r := b.ok("store", "gc", "--grace", "0s"); !strings.Contains(r.out, "3 files") || len(files(t, b.path("store", "blobs"))) != blobs-3 {
		t.Errorf("gc: %s, %d blobs, were %d", r.out, len(files(t, b.path("store", "blobs"))), blobs)
	}

	// Export.
	b.ok("store", "export", "kept:1.0", "-o", b.path("x"))
	if sum(t, b.path("x", "r.gguf")) != want || sum(t, b.path("x", "sub", "s.gguf")) != want {
		t.Errorf("exported %v", files(t, b.path("x")))
	}
	b.fails(exitFailed, []string{"already exists", "--replace"}, "store", "export", "kept:1.0", "-o", b.path("x"))
	b.ok("store", "export", "kept:1.0", "-o", b.path("x"), "--replace", "--method", "copy")
	b.ok("store", "export", "kept:1.0", "-o", b.path("linked"), "--method", "link")
	b.fails(exitUsage, []string{"magic"}, "store", "export", "kept:1.0", "--method", "magic")
	b.fails(exitUsage, []string{"not both"}, "store", "export", "kept:1.0", "--tar", b.path("t"), "--layout", b.path("l"))
	b.ok("store", "export", "kept:1.0", "--layout", b.path("layout"))
	b.ok("store", "export", "kept:1.0", "--tar", b.path("image.tar"))
	orasReads(t, b.path("store"), "kept:1.0", built.Manifest)
	orasReads(t, b.path("layout"), "kept:1.0", built.Manifest)
	orasReads(t, untar(t, b.path("image.tar")), "kept:1.0", built.Manifest)
	b.ok("store", "verify", "--store", b.path("layout"))

	// Damage.
	if r := b.ok("store", "verify"); !strings.Contains(r.out, "nothing is damaged") {
		t.Errorf("verify: %s", r.out)
	}
	blob := b.path("store", "blobs", "sha256", want)
	data := mustRead(t, blob)
	data[len(data)/2] ^= 4
	check(t, os.Chmod(blob, 0o644))
	check(t, os.WriteFile(blob, data, 0o644))
	r := b.fails(exitVerify, []string{"findings"}, "store", "verify")
	if !strings.Contains(r.out, want) || !strings.Contains(r.out, "wrong digest") {
		t.Errorf("verify: %s", r.out)
	}
	r = b.fails(exitVerify, nil, "store", "verify", "--json")
	var doc struct {
		Findings []struct{ Kind, Subject string }
	}
	r.json(t, &doc)
	if len(doc.Findings) == 0 || !strings.Contains(doc.Findings[0].Subject, want) {
		t.Errorf("verify: %s", r.out)
	}
	b.fails(exitFailed, []string{"damaged"}, "store", "export", "kept:1.0", "-o", b.path("bad"))
	if got := files(t, b.path("bad")); len(got) != 0 {
		t.Errorf("damaged bytes were exported: %v", got)
	}
	// Building again makes it whole.
	b.ok("build", recipe, "-o", b.path("out"), "--no-cache")
	b.ok("store", "verify")
}

// orasReads lets another implementation find a build, copy all of it and check
// every digest on the way.
func orasReads(t *testing.T, dir, name, manifest string) {
	t.Helper()
	src, err := oci.NewFromFS(t.Context(), os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	d, err := oras.Copy(t.Context(), src, name, orasmemory.New(), "", oras.DefaultCopyOptions)
	if err != nil || string(d.Digest) != manifest {
		t.Errorf("%s: %s, %v, want %s", dir, d.Digest, err, manifest)
	}
}

func untar(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	r := tar.NewReader(bytes.NewReader(mustRead(t, file)))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		check(t, err)
		if h.Typeflag == tar.TypeDir {
			continue
		}
		p := filepath.Join(dir, filepath.FromSlash(h.Name))
		check(t, os.MkdirAll(filepath.Dir(p), 0o755))
		data, err := io.ReadAll(r)
		check(t, err)
		check(t, os.WriteFile(p, data, 0o644))
	}
}

// TestManifestHoldsNothingOfTheMachine looks through everything that is kept
// of a build for names of this machine.
func TestManifestHoldsNothingOfTheMachine(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	b.ok("build", b.recipe(q8), "-o", b.path("out"))
	host, _ := os.Hostname()
	for _, f := range files(t, b.path("store", "blobs")) {
		data := mustRead(t, b.path("store", "blobs", f))
		if !json.Valid(data) {
			continue
		}
		for _, s := range []string{b.dir, os.TempDir(), host} {
			if len(s) > 3 && bytes.Contains(data, []byte(s)) {
				t.Errorf("%s has %q in it", f, s)
			}
		}
	}
}

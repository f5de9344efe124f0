package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/artifacts"
	"quern/artifacts/registry/registrytest"
)

// TestPushFormats packs one build in every format; the model's bytes are there once.
func TestPushFormats(t *testing.T) {
	srv := &registrytest.Server{Referrers: true}
	b, repo := registryBench(t, srv)
	var doc pushDoc
	b.ok("push", "r", repo+":v1", "--format", "modelpack,docker", "--format", "ollama", "--format", "quern", "--json").json(t, &doc)
	var refs []string
	sent := 0
	for _, tag := range doc.Tags {
		refs = append(refs, tag.Format+" "+strings.TrimPrefix(tag.Reference, repo))
		for _, bl := range tag.Blobs {
			if bl.Digest == "sha256:"+sum(t, b.path("out", "r.gguf")) && bl.How == "sent" {
				sent++
			}
		}
	}
	if got := strings.Join(refs, ", "); got != "modelpack :v1, docker :v1-docker, ollama :v1-ollama, quern :v1-quern" || sent != 1 {
		t.Errorf("%s; the model was sent %d times", got, sent)
	}
	var shown struct{ Manifest string }
	b.ok("store", "show", "r", "--json").json(t, &shown)
	if doc.Tags[3].Manifest != shown.Manifest {
		t.Errorf("the build went as %s, and is %s", doc.Tags[3].Manifest, shown.Manifest)
	}
	// Whatever the format, the file comes back under a name.
	for i, want := range []string{"r.gguf", "r.gguf", "r.gguf", "r.gguf"} {
		dir := b.path("got", fmt.Sprint(i))
		b.ok("pull", doc.Tags[i].Reference, "--no-store", "-o", dir)
		if got := files(t, dir); !slices.Equal(got, []string{want}) || sum(t, filepath.Join(dir, want)) != sum(t, b.path("out", "r.gguf")) {
			t.Errorf("%s gave %v", doc.Tags[i].Reference, got)
		}
	}
	raw, mediaType := srv.Manifest("team/tiny", "v1-ollama")
	if mediaType != "application/vnd.docker.distribution.manifest.v2+json" || !bytes.Contains(raw, []byte("application/vnd.ollama.image.model")) {
		t.Errorf("%s: %s", mediaType, raw)
	}
	b.fails(exitUsage, []string{"ollama takes"}, "push", "r", strings.TrimSuffix(repo, "/tiny")+":v1", "--format", "ollama")
	b.fails(exitUsage, []string{"--format"}, "push", "r", repo+":v1", "--format", "zip")
}

// TestPushFiles needs no store, and dates nothing but by SOURCE_DATE_EPOCH.
func TestPushFiles(t *testing.T) {
	srv := &registrytest.Server{}
	b, repo := registryBench(t, srv)
	b.write("README.md", "# tiny\n")
	b.write("LICENSE", "MIT\n")
	args := []string{"push", b.path("README.md"), b.path("LICENSE"), b.path("out", "r.gguf"), repo + ":files", "--json"}
	var one, two, dated pushDoc
	b.ok(args...).json(t, &one)
	b.ok(append(args, "--store", b.path("new"))...).json(t, &two)
	if one.Tags[0].Manifest != two.Tags[0].Manifest || one.Tags[0].Provenance != "" {
		t.Errorf("%+v, %+v", one, two)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	b.ok(args...).json(t, &dated)
	raw, _ := srv.Manifest("team/tiny", "files")
	if dated.Tags[0].Manifest == one.Tags[0].Manifest || !bytes.Contains(raw, []byte("2023-11-14T22:13:20Z")) {
		t.Errorf("%s", raw)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "soon")
	b.fails(exitUsage, []string{"SOURCE_DATE_EPOCH"}, args...)
	t.Setenv("SOURCE_DATE_EPOCH", "")
	var m struct {
		Layers []struct {
			MediaType   string
			Annotations map[string]string
		}
		Config struct{ Digest artifacts.Digest }
	}
	if err := json.Unmarshal(raw, &m); err != nil || len(m.Layers) != 3 || m.Layers[0].Annotations["org.cncf.model.filepath"] != "r.gguf" {
		t.Errorf("%s, %v", raw, err)
	}
	config, _ := srv.Blob("team/tiny", m.Config.Digest)
	for _, w := range []string{`"architecture":"llama"`, `"format":"gguf"`, `"quantization":"Q8_0"`} {
		if !bytes.Contains(config, []byte(w)) {
			t.Errorf("no %s in %s", w, config)
		}
	}
	// What cannot be packed is known before anything goes.
	b.fails(exitUsage, []string{"builds of the store"}, "push", b.path("out", "r.gguf"), repo+":early", "--format", "modelpack,quern")
	b.fails(exitUsage, []string{"in one file"}, "push", b.path("out", "r.gguf"), b.write("two.gguf", string(mustRead(t, b.path("out", "r.gguf")))), repo+":early", "--format", "modelpack,ollama")
	if raw, _ := srv.Manifest("team/tiny", "early"); raw != nil {
		t.Error("the first of two formats went, and the second cannot")
	}
	b.fails(exitSource, []string{"gone.gguf"}, "push", b.path("gone.gguf"), b.path("LICENSE"), repo+":x")
	b.fails(exitFailed, []string{"no file", "store ls"}, "push", "nothing", repo+":x")
}

// TestPushShards: the shards of a model are layers in their order, whether they come
// out of the store or by the first file's name; what is said of the model counts all.
func TestPushShards(t *testing.T) {
	srv := &registrytest.Server{}
	b, repo := registryBench(t, srv)
	b.ok("build", b.recipe("steps:\n  - quantize: {type: Q8_0, fallback: F16}\noutputs:\n  - {format: gguf, file: s.gguf, split-max-tensors: 20, no-tensor-first-split: true}\n"), "-o", b.path("out"))
	shards := files(t, b.path("out"))
	shards = slices.DeleteFunc(shards, func(s string) bool { return !strings.HasPrefix(s, "s-") })
	if len(shards) < 3 {
		t.Fatalf("%v", files(t, b.path("out")))
	}
	for i, what := range [][]string{{"r"}, {b.path("out", shards[0])}, {b.path("out", shards[2]), b.path("out", shards[0]), b.path("out", shards[1])}} {
		ref := fmt.Sprintf("%s:s%d", repo, i)
		b.ok(append(append([]string{"push"}, what...), ref, "--format", "modelpack,docker")...)
		raw, _ := srv.Manifest("team/tiny", fmt.Sprintf("s%d", i))
		var m struct {
			Layers []struct{ Annotations map[string]string }
			Config struct{ Digest artifacts.Digest }
		}
		check(t, json.Unmarshal(raw, &m))
		var got []string
		for _, l := range m.Layers {
			got = append(got, l.Annotations["org.cncf.model.filepath"])
		}
		if !slices.Equal(got, shards) {
			t.Errorf("%s: %v, want %v", what, got, shards)
		}
		config, _ := srv.Blob("team/tiny", m.Config.Digest)
		for _, w := range []string{`"paramSize":"`, `"quantization":"Q8_0"`} {
			if !bytes.Contains(config, []byte(w)) {
				t.Errorf("no %s in %s", w, config)
			}
		}
		b.ok("pull", ref, "-o", b.path("pulled", fmt.Sprint(i)), "--store", b.path("other"))
		for _, name := range shards {
			if sum(t, b.path("pulled", fmt.Sprint(i), name)) != sum(t, b.path("out", name)) {
				t.Errorf("%s: %s came with other bytes", what, name)
			}
		}
	}
	b.fails(exitUsage, []string{"ollama", "merge"}, "push", "r", repo+":o", "--format", "ollama")
	// What is no model by itself is not packed as one.
	b.fails(exitUsage, []string{"shard 2 of", shards[0]}, "push", b.path("out", shards[1]), repo+":x")
	for _, text := range []string{"", "version https://git-lfs.github.com/spec/v1\n"} {
		b.fails(exitSource, []string{"empty.gguf", "GGUF"}, "push", b.write("empty.gguf", text), repo+":x")
		b.fails(exitSource, []string{"empty.gguf", "GGUF"}, "push", b.path("out", shards[0]), b.path("empty.gguf"), repo+":x")
	}
	b.fails(exitUsage, []string{"no file of weights"}, "push", b.path("r.yaml"), repo+":x")
	if raw, _ := srv.Manifest("team/tiny", "x"); raw != nil {
		t.Error("it was pushed")
	}
	check(t, os.Remove(b.path("out", shards[1])))
	b.fails(exitSource, []string{"shard 2", "missing"}, "push", b.path("out", shards[0]), repo+":x")
}

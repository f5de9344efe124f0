package all_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/formats/safetensors"
	"quern/hub"
	"quern/hub/hubtest"
	"quern/internal/testmodel"
	"quern/model"
	"quern/pipeline"
)

// TestPersistentDamage: bytes that stay wrong end the build, and the output of
// an earlier one stays as it was.
func TestPersistentDamage(t *testing.T) {
	for _, kept := range []bool{true, false} {
		o := goOnline(t, "stories-wide", hubtest.Options{})
		old := []byte("an earlier output")
		path := filepath.Join(o.out, "stories-wide-q8_0.gguf")
		if err := os.WriteFile(path, old, 0o644); err != nil {
			t.Fatal(err)
		}
		if !kept {
			o.store = nil
		}
		lo, hi := o.tensor("model.layers.0.mlp.up_proj.weight")
		o.hub.Inject(hubtest.Fault{On: hubtest.CDN, Path: shard1, Flip: (lo+hi)/2 + 1, Times: -1})
		_, err := o.try(t.Context(), "gguf-q8", o.options())
		if !errors.Is(err, pipeline.ErrSource) || !errors.Is(err, hub.ErrDigest) || errors.Is(err, pipeline.ErrRepaired) {
			t.Errorf("store %v: %v", kept, err)
		}
		for _, want := range []string{shard1, "org/stories-wide", "expected sha256:", "found sha256:"} {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("store %v: %q does not say %q", kept, err, want)
			}
		}
		if got := readAll(t, path); !bytes.Equal(got, old) {
			t.Errorf("store %v: the earlier output was touched", kept)
		}
		leftovers(t, o.out, filepath.Base(path))
		// Once the server is sound again, so is the build.
		o.hub.ClearFaults()
		o.same(o.build("gguf-q8"), o.fromDir("gguf-q8"))
	}
}

// TestHostileRepository: what a repository may not do.
func TestHostileRepository(t *testing.T) {
	build := func(change func(files map[string]*hubtest.File, raw map[string][]byte)) error {
		raw, err := testmodel.Build("stories-wide")
		if err != nil {
			t.Fatal(err)
		}
		files := hubFiles(raw)
		change(files, raw)
		o := &online{t: t, model: "stories-wide", files: raw, out: t.TempDir(), store: newStore(t), clock: &jumping{}}
		o.repo = hubtest.NewRepo(o.ref())
		o.repo.Commit(files)
		o.hub = hubtest.New(t, hubtest.Options{Tokens: map[string][]string{"good": nil}}, o.repo)
		_, err = o.try(t.Context(), "gguf-q8", o.options(), func(h *hub.Options) { h.Token = "good" })
		leftovers(t, o.out)
		return err
	}
	size := func(n int) *int64 { v := int64(n); return &v }
	reshard := func(from, to string) func(map[string]*hubtest.File, map[string][]byte) {
		return func(files map[string]*hubtest.File, raw map[string][]byte) {
			files["model.safetensors.index.json"] = hubtest.Git(strings.ReplaceAll(string(raw["model.safetensors.index.json"]), from, to))
		}
	}
	for name, c := range map[string]struct {
		change func(files map[string]*hubtest.File, raw map[string][]byte)
		want   error
		words  string
	}{
		"path that leaves the folder": {func(f map[string]*hubtest.File, _ map[string][]byte) {
			f["x"] = &hubtest.File{Data: []byte("x"), ListedPath: "../../x"}
		}, hub.ErrPath, "../../x"},
		"absolute path": {func(f map[string]*hubtest.File, _ map[string][]byte) {
			f["x"] = &hubtest.File{Data: []byte("x"), ListedPath: "/etc/x"}
		}, hub.ErrPath, "/etc/x"},
		"index that leaves the folder": {reshard(shard2, "../../etc/x"), safetensors.ErrIndex, "../../etc/x"},
		"shard that the tree lacks":    {reshard(shard2, "model-00003-of-00002.safetensors"), safetensors.ErrShards, "model-00003-of-00002.safetensors"},
		"listed size too small": {func(f map[string]*hubtest.File, raw map[string][]byte) {
			f[shard1].ListedSize = size(len(raw[shard1]) - 8)
		}, pipeline.ErrSource, shard1},
		"listed size too large": {func(f map[string]*hubtest.File, raw map[string][]byte) {
			f[shard1].ListedSize = size(len(raw[shard1]) + 8)
		}, pipeline.ErrSource, shard1},
		"digest of another file": {func(f map[string]*hubtest.File, _ map[string][]byte) {
			f[shard2].ListedSHA256 = strings.Repeat("ab", 32)
		}, hub.ErrChanged, shard2},
		"config with another digest": {func(f map[string]*hubtest.File, _ map[string][]byte) {
			f["config.json"].ListedOID = strings.Repeat("ab", 20)
		}, hub.ErrDigest, "config.json"},
		"header of many gigabytes": {func(f map[string]*hubtest.File, raw map[string][]byte) {
			b := bytes.Clone(raw[shard1])
			binary.LittleEndian.PutUint64(b, 1<<40)
			f[shard1] = hubtest.LFS(b)
		}, safetensors.ErrHeaderLimit, shard1},
		"overlapping tensors": {func(f map[string]*hubtest.File, raw map[string][]byte) {
			f[shard1] = hubtest.LFS(bytes.Replace(raw[shard1], []byte(`[0,262144]`), []byte(`[0,262140]`), 1))
		}, safetensors.ErrHeader, shard1},
		"a pointer for a shard": {func(f map[string]*hubtest.File, _ map[string][]byte) {
			f[shard1] = hubtest.Git("version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("12", 32) + "\nsize 2495488\n")
		}, pipeline.ErrSource, strings.Repeat("12", 32)},
		"a page for a shard": {func(f map[string]*hubtest.File, _ map[string][]byte) {
			f[shard1] = hubtest.LFS([]byte("<!DOCTYPE html><html><title>Sign in</title>" + strings.Repeat(" ", 5000) + "</html>"))
		}, hub.ErrHTML, shard1},
		"no config": {func(f map[string]*hubtest.File, _ map[string][]byte) { delete(f, "config.json") }, pipeline.ErrSource, "config.json"},
		"config of an unknown model": {func(f map[string]*hubtest.File, _ map[string][]byte) {
			f["config.json"] = hubtest.Git(`{"architectures":["NewForCausalLM"],"model_type":"new"}`)
		}, model.ErrArchitecture, "NewForCausalLM"},
	} {
		t.Run(name, func(t *testing.T) {
			err := build(c.change)
			if !errors.Is(err, pipeline.ErrSource) || !errors.Is(err, c.want) {
				t.Fatalf("%v", err)
			}
			if !strings.Contains(err.Error(), c.words) {
				t.Errorf("%q does not say %q", err, c.words)
			}
		})
	}
}

// TestRefusedAccess: each reason has its own message, and the class of errors
// of sources.
func TestRefusedAccess(t *testing.T) {
	tokens := map[string][]string{"good": {"org/stories260k"}, "stranger": nil}
	for name, c := range map[string]struct {
		change func(r *hubtest.Repo)
		token  string
		want   error
		words  []string
	}{
		"gated, no token":    {func(r *hubtest.Repo) { r.Gated = true }, "", hub.ErrGatedNoToken, []string{"HF_TOKEN", "restricted"}},
		"gated, bad token":   {func(r *hubtest.Repo) { r.Gated = true }, "garbage", hub.ErrBadToken, []string{"token"}},
		"gated, no access":   {func(r *hubtest.Repo) { r.Gated = true }, "stranger", hub.ErrGatedNoAccess, []string{"not in the authorized list"}},
		"gated, access":      {func(r *hubtest.Repo) { r.Gated = true }, "good", nil, nil},
		"private, no token":  {func(r *hubtest.Repo) { r.Private = true }, "", hub.ErrNotFoundOrPrivate, []string{"HF_TOKEN"}},
		"private, no access": {func(r *hubtest.Repo) { r.Private = true }, "stranger", hub.ErrRepoNotFound, nil},
		"private, access":    {func(r *hubtest.Repo) { r.Private = true }, "good", nil, nil},
		"public, bad token":  {func(*hubtest.Repo) {}, "garbage", hub.ErrBadToken, []string{"token"}},
		"disabled":           {func(r *hubtest.Repo) { r.Disabled = true }, "", hub.ErrDisabled, []string{"disabled"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := goOnline(t, "stories260k", hubtest.Options{Tokens: tokens})
			c.change(o.repo)
			res, err := o.try(t.Context(), "kmcu-stories", o.options(), func(h *hub.Options) { h.Token = c.token })
			if c.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				o.same(res, o.fromDir("kmcu-stories"))
				return
			}
			if !errors.Is(err, pipeline.ErrSource) || !errors.Is(err, c.want) {
				t.Fatalf("%v", err)
			}
			for _, w := range append(c.words, "org/stories260k", "kmcu-stories.yaml:") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			leftovers(t, o.out)
		})
	}
}

package all_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/hub/hubtest"
	"quern/internal/digest"
	"quern/model/modeltest"
	"quern/pipeline"
	"quern/tensor"
)

// TestHubPath takes single files out of a repository that holds many: one of its
// GGUF files, whole or in shards in a folder, and an importance matrix.
func TestHubPath(t *testing.T) {
	g := modeltest.TinyQwen3(t, tensor.F16)
	g.Vocabulary("qwen2", storyText(t))
	whole := g.Bytes()
	local := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(local, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	split, err := tryText(t, "version: 1\nname: split\nsources:\n  base: {gguf: '"+local+"'}\noutputs:\n  - {format: gguf, file: model.gguf, split-max-tensors: 9}\n", pipeline.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"model-F16.gguf": whole, "imatrix.gguf_file": g.Imatrix(), "other.gguf": whole, "README.md": []byte("# Many files\n")}
	for _, o := range split.Outputs {
		b, err := os.ReadFile(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		files["F16/"+o.File] = b
	}
	if len(split.Outputs) != 3 {
		t.Fatalf("%d shards", len(split.Outputs))
	}
	o := serve(t, "many", files, hubtest.Options{})
	recipe := func(path string) string {
		return "version: 1\nname: many\nsources:\n  base: {hf: org/many, path: '" + path + "'}\n  im: {hf: org/many, path: imatrix.gguf_file}\n" +
			"steps:\n  - quantize: {preset: Q4_K_M, imatrix: im, imatrix-name: im}\noutputs:\n  - {format: gguf, file: out.gguf}\n"
	}
	one, err := build1(t.Context(), t, recipe("model-F16.gguf"), o.env(), o.options())
	if err != nil {
		t.Fatal(err)
	}
	o.out = t.TempDir()
	shards, err := build1(t.Context(), t, recipe("F16/"+split.Outputs[0].File), o.env(), o.options())
	if err != nil {
		t.Fatal(err)
	}
	if one.Outputs[0].SHA256 != shards.Outputs[0].SHA256 {
		t.Error("shards in a folder give another file")
	}
	// A repository of nothing but an importance matrix needs no path.
	alone := serve(t, "matrix", map[string][]byte{"imatrix.gguf": g.Imatrix()}, hubtest.Options{})
	text := strings.Replace(recipe("model-F16.gguf"), "{hf: org/many, path: imatrix.gguf_file}", "{hf: org/matrix}", 1)
	text = strings.Replace(text, "{hf: org/many, path: 'model-F16.gguf'}", "{gguf: '"+local+"'}", 1)
	if b, err := build1(t.Context(), t, text, alone.env(), alone.options()); err != nil {
		t.Error(err)
	} else if len(b.Sources) != 2 || len(b.Sources[1].Files) != 1 || b.Sources[1].Files[0].Path != "imatrix.gguf" {
		t.Errorf("provenance %+v", b.Sources)
	}
	for i, want := range []struct{ path, name string }{{"model-F16.gguf", "base"}, {"imatrix.gguf_file", "im"}} {
		s := one.Sources[i]
		if s.Name != want.name || len(s.Files) != 1 || s.Files[0].Path != want.path || s.Commit != o.commit || s.Files[0].GitOID == "" && s.Files[0].SHA256 != digest.Of(files[want.path]).Hex() {
			t.Errorf("provenance of %s: %+v", want.name, s)
		}
	}
	if n := len(shards.Sources[0].Files); n != 3 {
		t.Errorf("%d shards were read", n)
	}
	for path, want := range map[string]string{"model.gguf": "imatrix.gguf_file", "README.md": "a model", "imatrix.gguf_file": "a model"} {
		_, err := build1(t.Context(), t, recipe(path), o.env(), o.options())
		if err == nil || path == "model.gguf" && !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

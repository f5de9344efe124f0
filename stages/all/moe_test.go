package all_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/internal/testmodel"
	"quern/model"
	"quern/pipeline"
)

// TestFileOfExperts: a GGUF file of experts is whole without the names of a
// dense model, and what is missing and what is cut off are two errors.
func TestFileOfExperts(t *testing.T) {
	file, data := ggufOf(t, "stories-moe")
	want, err := build1(t.Context(), t, hubRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.dir="+folder(t, "stories-moe"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := build1(t.Context(), t, hubRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.gguf="+file)
	if err != nil {
		t.Fatal(err)
	}
	if res.Outputs[0].SHA256 != want.Outputs[0].SHA256 {
		t.Error("from the file it is another file than from the checkpoint")
	}
	short := filepath.Join(t.TempDir(), "short.gguf")
	// Without its padding the file is whole, one byte less and it is not.
	f, err := gguf.Open(t.Context(), "f", blobOf(data), gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	last := f.Tensors[len(f.Tensors)-1]
	end := last.Offset + last.Bytes
	for _, c := range []struct {
		size int64
		want error
	}{{end, nil}, {end - 1, gguf.ErrTruncated}, {f.DataStart + 1, gguf.ErrTruncated}} {
		if err := os.WriteFile(short, data[:c.size], 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := build1(t.Context(), t, hubRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.gguf="+short)
		if !errors.Is(err, c.want) || err != nil && (!errors.Is(err, pipeline.ErrSource) || errors.Is(err, model.ErrTensors) || strings.Contains(err.Error(), "missing: ")) {
			t.Errorf("cut to %d bytes: %v", c.size, err)
		}
	}
	// A checkpoint that lacks an expert's matrix.
	files, err := testmodel.Build("stories-moe")
	if err != nil {
		t.Fatal(err)
	}
	const gone = "block_sparse_moe.experts.1.w2.weight"
	st := files["model.safetensors"]
	files["model.safetensors"] = []byte(strings.Replace(string(st), "model.layers.0."+gone, "model.layers.9."+gone, 1))
	dir := filepath.Join(t.TempDir(), "stories-moe")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err = build1(t.Context(), t, hubRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.dir="+dir)
	if !errors.Is(err, model.ErrTensors) || !strings.Contains(err.Error(), "model.layers.0."+gone) || strings.Contains(err.Error(), "truncated") {
		t.Errorf("an expert is missing: %v", err)
	}
}

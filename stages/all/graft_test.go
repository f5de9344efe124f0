package all_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/internal/digest"
	"quern/pipeline"
	"quern/stages/assemble"
)

// graftGolden is a file of the real converter or of llama-quantize.
type graftGolden struct {
	File, SHA256 string
	KV           [][]json.RawMessage
	Tensors      [][]json.RawMessage
}

func graftGoldens(t *testing.T) map[string]graftGolden {
	t.Helper()
	var doc struct{ Outputs []graftGolden }
	if err := json.Unmarshal(readAll(t, filepath.Join(testdata, "convert/tiny-qwen35.json")), &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]graftGolden{}
	for _, o := range doc.Outputs {
		out[o.File] = o
	}
	return out
}

const withoutMTP = `version: 1
name: trunk
sources:
  base: {dir: x}
steps:
  - convert: {outtype: f16, mtp: without}
outputs:
  - {format: gguf, file: trunk.gguf}
`

const graftRecipe = `version: 1
name: grafted
sources:
  base: {gguf: x}
  repo: {dir: x}
steps:
  - graft: {from: repo, type: F16}
outputs:
  - {format: gguf, file: out.gguf}
`

// TestGraft: a file that was converted without its prediction layers gets them
// back, and is to the byte the file that the real converter writes with them; in
// another type they are as llama-quantize makes them.
func TestGraft(t *testing.T) {
	dir := folder(t, "tiny-qwen35")
	goldens := graftGoldens(t)
	trunk, err := build1(t.Context(), t, withoutMTP, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.dir="+dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := trunk.Outputs[0].SHA256.Hex(), goldens["tiny-qwen35.f16-no-mtp.gguf"].SHA256; got != want {
		t.Fatalf("without the layers it is %s, want %s", got, want)
	}
	sources := []string{"sources.base.gguf=" + trunk.Outputs[0].Path, "sources.repo.dir=" + dir}
	res, err := build1(t.Context(), t, graftRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, sources...)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := res.Outputs[0].SHA256.Hex(), goldens["tiny-qwen35.f16.gguf"].SHA256; got != want {
		t.Errorf("grafted it is %s, want the converter's file, %s", got, want)
	}

	// In another type, and from the hub, where only the layers are fetched.
	o := goOnline(t, "tiny-qwen35", optionsOfTest)
	o.store = nil
	q, err := build1(t.Context(), t, strings.Replace(graftRecipe, "F16", "Q4_0", 1), o.env(), pipeline.BuildOptions{OutDir: t.TempDir()}, sources[0], "sources.repo.hf=org/tiny-qwen35")
	if err != nil {
		t.Fatal(err)
	}
	var layers, weights, side int64
	for name, b := range o.files {
		if strings.HasSuffix(name, ".safetensors") {
			weights += int64(len(b))
		} else {
			side += int64(len(b))
		}
	}
	for _, x := range openGGUF(t, res.Outputs[0].Path).Tensors {
		if strings.HasPrefix(x.Name, "blk.4.") {
			layers += x.Bytes
		}
	}
	const headers = 256 << 10
	if got := q.Stats.Fetch["repo"].Needed - side; got > layers+headers || weights < 4*(layers+headers) {
		t.Errorf("%d bytes of the weights are needed, of %d; the layers have %d", got, weights, layers)
	}
	want := map[string]string{}
	for _, x := range goldens["tiny-qwen35.f16.Q4_0.pure.gguf"].Tensors {
		var name, sum string
		if json.Unmarshal(x[0], &name) != nil || json.Unmarshal(x[4], &sum) != nil {
			t.Fatalf("%s", x)
		}
		want[name] = sum
	}
	path := q.Outputs[0].Path
	data := readAll(t, path)
	quantized := 0
	for _, x := range openGGUF(t, path).Tensors {
		if !strings.HasPrefix(x.Name, "blk.4.") {
			continue
		}
		if got := digest.Of(data[x.Offset:][:x.Bytes]).Hex()[:16]; got != want[x.Name] {
			t.Errorf("tensor %s is %s, llama-quantize makes it %s", x.Name, got, want[x.Name])
		}
		if x.Tensor.Type.String() == "Q4_0" {
			quantized++
		}
	}
	if quantized != 8 {
		t.Errorf("%d tensors are Q4_0", quantized)
	}
}

func TestGraftFaults(t *testing.T) {
	dir := folder(t, "tiny-qwen35")
	run := func(recipe string, set ...string) error {
		_, err := build1(t.Context(), t, recipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, set...)
		return err
	}
	trunk, err := build1(t.Context(), t, withoutMTP, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.dir="+dir)
	if err != nil {
		t.Fatal(err)
	}
	file := trunk.Outputs[0].Path
	whole, err := build1(t.Context(), t, strings.Replace(withoutMTP, ", mtp: without", "", 1), sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.dir="+dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(graftRecipe, "sources.base.gguf="+whole.Outputs[0].Path, "sources.repo.dir="+dir); !errors.Is(err, assemble.ErrAssemble) || !strings.Contains(err.Error(), "has 1 layers for multi-token prediction already") {
		t.Errorf("twice: %v", err)
	}
	if err := run(graftRecipe, "sources.base.gguf="+file, "sources.repo.dir="+folder(t, "tiny-qwen3")); err == nil || !strings.Contains(err.Error(), "mtp only is for Qwen3.5") {
		t.Errorf("no such layers: %v", err)
	}
	if err := run(graftRecipe, "sources.base.gguf="+file, "sources.repo.gguf="+file); !errors.Is(err, pipeline.ErrRecipe) || !strings.Contains(err.Error(), "assemble takes tensors of GGUF files") {
		t.Errorf("a GGUF source: %v", err)
	}
	if err := run(strings.Replace(graftRecipe, "F16", "Q4_K", 1), "sources.base.gguf="+file, "sources.repo.dir="+dir); !errors.Is(err, assemble.ErrAssemble) || !strings.Contains(err.Error(), "blk.4.") {
		t.Errorf("rows that do not divide: %v", err)
	}
	// Settings of another model.
	changed := func(key string, v gguf.Value) error {
		recipe := strings.Replace(graftRecipe, "type: F16", "type: F16, allow: ['no_such']", 1)
		f := openGGUF(t, file)
		meta := f.Meta.Clone()
		meta.Set(key, v)
		return run(recipe, "sources.base.gguf="+rewriteMeta(t, file, meta), "sources.repo.dir="+dir)
	}
	if err := changed("qwen35.rope.freq_base", gguf.Scalar(float32(1234))); !errors.Is(err, assemble.ErrAssemble) || !strings.Contains(err.Error(), "qwen35.rope.freq_base") {
		t.Errorf("another rope base: %v", err)
	}
	if err := changed("qwen35.block_count", gguf.Scalar(uint32(3))); !errors.Is(err, assemble.ErrAssemble) || !strings.Contains(err.Error(), "the model has 3 layers, repo has 4") {
		t.Errorf("fewer layers: %v", err)
	}
}

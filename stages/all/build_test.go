package all_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"quern/internal/digest"
	"quern/internal/testmodel"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/source"
)

const testdata = "../../testdata"

// digests is shared by all builds of the tests, so that each model is hashed
// once and planned once a build.
var digests = &source.Digests{}

// build runs a recipe into a new folder and gives that folder.
func build(t *testing.T, recipe string, opt pipeline.BuildOptions, set ...string) (string, *pipeline.Result) {
	t.Helper()
	r, err := recipes.ReadFile(recipe, recipes.Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, source.Env{Digests: digests})
	if err != nil {
		t.Fatal(err)
	}
	if opt.OutDir == "" {
		opt.OutDir = t.TempDir()
	}
	res, err := pipeline.Build(context.Background(), prj, opt)
	if err != nil {
		t.Fatal(err)
	}
	return opt.OutDir, res
}

func TestAcceptanceKMCU(t *testing.T) {
	for _, c := range []struct{ recipe, file, golden string }{
		{"kmcu-stories", "stories260k.kmcu", "stories260k.kmcu"},
		{"kmcu-tied", "stories-wide.kmcu", "stories-wide.force-tie.kmcu"},
	} {
		t.Run(c.recipe, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(testdata, "golden/kmcu", c.golden))
			if err != nil {
				t.Fatal(err)
			}
			for _, jobs := range []int{1, 2, 7} {
				for _, mem := range []int64{64 << 20, 4 << 30} {
					out, _ := build(t, filepath.Join(testdata, "acceptance", c.recipe+".yaml"), pipeline.BuildOptions{Jobs: jobs, Memory: mem})
					got, err := os.ReadFile(filepath.Join(out, c.file))
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("jobs %d, memory %d: not the golden file", jobs, mem)
					}
				}
			}
		})
	}
}

// run is a golden: what a real tool, called with args, wrote for a model.
type run struct {
	Tool   string
	Args   []string
	SHA256 string
	Size   int64
}

func runs(t *testing.T, model string) []run {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testdata, "convert", model+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Outputs []run }
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Outputs) == 0 {
		t.Fatalf("no goldens of %s", model)
	}
	return doc.Outputs
}

// recipeFor writes the recipe that does what a run did.
func recipeFor(t *testing.T, dir string, r run) string {
	t.Helper()
	text := fmt.Sprintf("version: 1\nname: golden\nsources:\n  base: {dir: %q}\n", dir)
	last := r.Args[len(r.Args)-1]
	switch {
	case last == "--no-mtp":
		text += fmt.Sprintf("steps:\n  - convert: {outtype: %s, mtp: without}\noutputs:\n  - {format: gguf, file: out.gguf}\n", r.Args[1])
	case last == "--mtp":
		text += fmt.Sprintf("steps:\n  - convert: {outtype: %s, mtp: only}\noutputs:\n  - {format: gguf, file: out.gguf}\n", r.Args[1])
	case r.Tool == "convert_hf_to_gguf.py":
		text += fmt.Sprintf("outputs:\n  - {format: gguf, file: out.gguf, outtype: %s}\n", last)
	case r.Tool == "llama-quantize":
		// The runs all started from convert_hf_to_gguf.py --outtype f16.
		text += fmt.Sprintf("steps:\n  - convert: {outtype: f16}\n  - quantize: {preset: %s, pure: %v}\noutputs:\n  - {format: gguf, file: out.gguf}\n",
			last, r.Args[0] == "--pure")
	default:
		t.Fatalf("unknown tool %q", r.Tool)
	}
	path := filepath.Join(t.TempDir(), "golden.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// folder puts a test model into a folder of its own name, which goes into the
// metadata.
func folder(t *testing.T, model string) string {
	t.Helper()
	files, err := testmodel.Build(model)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), model)
	for name, b := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var (
	large = map[string]bool{"tiny-llama3": true, "tiny-qwen2": true, "tiny-qwen3": true, "tiny-qwen3moe": true, "tiny-qwen35": true, "tiny-bailingmoe2": true}
	few   = map[string]bool{"[Q8_0]": true, "[Q4_0]": true, "[--pure Q5_1]": true}
)

// TestRealTools builds what the real convert_hf_to_gguf.py and llama-quantize
// were run on and compares whole files.
func TestRealTools(t *testing.T) {
	models := []string{"stories260k", "stories-wide", "stories-moe", "tiny-gemma3", "tiny-gemma3-vision", "tiny-llama-hf", "tiny-llama-fp8", "tiny-llama-tied",
		"tiny-llama3", "tiny-mistral", "tiny-mixtral", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3moe", "tiny-qwen35", "tiny-bailingmoe2"}
	if racing {
		models = models[:3]
	}
	for _, model := range models {
		dir := folder(t, model)
		for _, r := range runs(t, model) {
			// What llama-quantize does depends on tensors, not on the
			// vocabulary: where that is large, a few of its runs will do.
			if large[model] && r.Tool == "llama-quantize" && !few[fmt.Sprint(r.Args)] {
				continue
			}
			t.Run(fmt.Sprint(model, " ", r.Tool, r.Args), func(t *testing.T) {
				t.Parallel()
				_, res := build(t, recipeFor(t, dir, r), pipeline.BuildOptions{})
				if got := res.Outputs[0]; got.SHA256.Hex() != r.SHA256 || got.Size != r.Size {
					t.Errorf("got %s, %d bytes; the real tool wrote %s, %d bytes", got.SHA256.Hex(), got.Size, r.SHA256, r.Size)
				}
			})
		}
	}
}

// fileDigest hashes a file.
func fileDigest(t *testing.T, path string) (digest.Digest, bool) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		return digest.Digest{}, false
	}
	return digest.Of(b), true
}

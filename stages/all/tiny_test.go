package all_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/digest"
	"quern/model/modeltest"
	"quern/pipeline"
	"quern/tensor"
)

// tinyRuns is what the real llama-quantize made of the tiny models, see
// interop/make_tiny.py.
type tinyRuns struct {
	Models map[string]string // SHA-256 of each file
	Runs   []struct {
		Model, SHA256, Error string
		Args                 []string
	}
}

// tinyFiles are the tiny models and their importance matrices by file name.
func tinyFiles(t *testing.T) map[string][]byte {
	files := map[string][]byte{}
	text := storyText(t)
	for name, g := range map[string]*modeltest.Tiny{
		"qwen35": modeltest.TinyQwen35(t, tensor.BF16, true), "qwen35-untied": modeltest.TinyQwen35(t, tensor.F16, false),
		"bailingmoe2": modeltest.TinyBailing2(t, tensor.F16), "bailingmoe3": modeltest.TinyBailing3(t, tensor.F16),
	} {
		g.Vocabulary("qwen35", text)
		files["tiny-"+name+".gguf"] = g.Bytes()
		files["tiny-"+name+".imatrix.gguf"] = g.Imatrix()
	}
	// These are run, by runtime/transformer and by llama.cpp.
	for name, g := range map[string]*modeltest.Tiny{"qwen35": modeltest.TinyQwen35(t, tensor.F32, true), "bailingmoe2": modeltest.TinyBailing2(t, tensor.F32)} {
		g.Vocabulary("qwen35", text)
		files["tiny-"+name+".f32.gguf"] = g.Bytes()
	}
	return files
}

// TestTinyModels quantizes tiny models of architectures that have tensors of their
// own, and compares with what the real llama-quantize wrote. With QUERN_TINY set to
// a folder it writes the models there instead, for make_tiny.py.
func TestTinyModels(t *testing.T) {
	files := tinyFiles(t)
	dir := os.Getenv("QUERN_TINY")
	write := dir != ""
	if !write {
		dir = t.TempDir()
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if write {
		return
	}
	text, err := os.ReadFile(filepath.Join(testdata, "convert/tiny.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden tinyRuns
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		if got := digest.Of(b).Hex(); got != golden.Models[name] {
			t.Errorf("%s is %s and was %s when the goldens were made", name, got, golden.Models[name])
		}
	}
	if len(golden.Runs) < 30 {
		t.Fatalf("%d runs", len(golden.Runs))
	}
	for _, r := range golden.Runs {
		t.Run(r.Model+" "+strings.Join(r.Args, " "), func(t *testing.T) {
			t.Parallel()
			recipe := fmt.Sprintf("version: 1\nname: tiny\nsources:\n  base: {gguf: %q}\n", filepath.Join(dir, r.Model+".gguf"))
			step := "preset: " + r.Args[len(r.Args)-1]
			for i, a := range r.Args {
				switch a {
				case "--pure":
					step += ", pure: true"
				case "--imatrix":
					recipe += fmt.Sprintf("  im: {file: %q}\n", filepath.Join(dir, r.Args[i+1]))
					step += ", imatrix: im"
				case "--tensor-type":
					match, typ, _ := strings.Cut(r.Args[i+1], "=")
					step += fmt.Sprintf(", rules: [{match: '%s', type: %s}]", match, typ)
				}
			}
			recipe += "steps:\n  - quantize: {" + step + "}\noutputs:\n  - {format: gguf, file: out.gguf}\n"
			res, err := tryText(t, recipe, pipeline.BuildOptions{})
			switch {
			case r.Error != "":
				if err == nil {
					t.Errorf("no error; llama-quantize says %s", r.Error)
				}
			case err != nil:
				t.Error(err)
			case res.Outputs[0].SHA256.Hex() != r.SHA256:
				t.Errorf("got %s, llama-quantize wrote %s", res.Outputs[0].SHA256.Hex(), r.SHA256)
			}
		})
	}
}

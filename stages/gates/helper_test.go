package gates_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/load"
	"quern/stages/all"
	"quern/stages/source"
)

const testdata = "../../testdata"

var digests = &source.Digests{}

// abs is a path of the test data for recipes in other folders.
func abs(t testing.TB, path string) string {
	t.Helper()
	p, err := filepath.Abs(filepath.Join(testdata, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// write puts a file into a folder of its own.
func write(t testing.TB, name string, content any) string {
	t.Helper()
	b, ok := content.([]byte)
	if !ok {
		var err error
		if b, err = json.Marshal(content); err != nil {
			t.Fatal(err)
		}
	}
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

// bench is a recipe in parts. The text is always a source.
type bench struct {
	base    string   // a folder of the models or a path, stories260k for nothing
	sources []string // lines such as "golden: {file: x}"
	steps   string
	outputs string // x.gguf in F16 for nothing
	jobs    int
}

func (b bench) recipe(t testing.TB, gates ...string) string {
	t.Helper()
	if b.base == "" {
		b.base = "stories260k"
	}
	if !filepath.IsAbs(b.base) {
		b.base = abs(t, "models/"+b.base)
	}
	kind := "dir"
	if filepath.Ext(b.base) != "" {
		kind = "file"
	}
	text := fmt.Sprintf("version: 1\nname: x\nsources:\n  base: {%s: %q}\n", kind, b.base)
	all := strings.Join(gates, "\n")
	if strings.Contains(all, "text: text") {
		text += fmt.Sprintf("  text: {file: %q}\n", abs(t, "golden/runtime/eval-stories.txt"))
	}
	for _, s := range b.sources {
		text += "  " + s + "\n"
	}
	if b.steps != "" {
		text += "steps:\n  - " + b.steps + "\n"
	}
	if b.outputs == "" {
		b.outputs = "{format: gguf, file: x.gguf}"
	}
	text += "outputs:\n  - " + b.outputs + "\ngates:\n"
	for _, g := range gates {
		text += "  - " + g + "\n"
	}
	return text
}

// build runs the recipe. The folder is empty when it failed.
func (b bench) build(t testing.TB, gates ...string) (*pipeline.Result, string, error) {
	t.Helper()
	r, err := recipes.Parse("r.yaml", []byte(b.recipe(t, gates...)), recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, source.Env{Digests: digests})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	res, err := pipeline.Build(context.Background(), prj, pipeline.BuildOptions{OutDir: dir, Jobs: b.jobs})
	if left, _ := os.ReadDir(dir); err != nil && len(left) > 0 {
		t.Errorf("a build that failed left %v", left)
	}
	return res, dir, err
}

// passes demands results that all pass.
func (b bench) passes(t testing.TB, gates ...string) (*pipeline.Result, string) {
	t.Helper()
	res, dir, err := b.build(t, gates...)
	if err != nil {
		t.Fatalf("%v: %v", gates, err)
	}
	if len(res.Gates) < len(gates) {
		t.Fatalf("%v: %d results", gates, len(res.Gates))
	}
	for _, r := range res.Gates {
		if !r.Pass || r.NotComparable {
			t.Errorf("%+v in a build without an error", r)
		}
	}
	return res, dir
}

// fails demands one result that fails, with the words in the build's error.
func (b bench) fails(t testing.TB, gate string, words ...string) pipeline.GateResult {
	t.Helper()
	res, _, err := b.build(t, gate)
	if !errors.Is(err, pipeline.ErrGate) {
		t.Fatalf("%s: %v", gate, err)
	}
	for _, w := range append(words, "nothing was published", "r.yaml:") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q in it", gate, err, w)
		}
	}
	var failed []pipeline.GateResult
	for _, r := range res.Gates {
		if !r.Pass {
			failed = append(failed, r)
		}
	}
	if len(failed) != 1 {
		t.Fatalf("%s: %+v", gate, res.Gates)
	}
	return failed[0]
}

// refuses demands an error that is no verdict.
func (b bench) refuses(t testing.TB, want error, gate string, words ...string) {
	t.Helper()
	_, _, err := b.build(t, gate)
	if !errors.Is(err, want) || errors.Is(err, pipeline.ErrGate) {
		t.Errorf("%s: %v, want %v", gate, err, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q in it", gate, err, w)
		}
	}
}

func open(t testing.TB, path string) infer.Model {
	t.Helper()
	m, err := load.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func evalText(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testdata, "golden/runtime/eval-stories.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden is the entry of stories260k in golden.json, which a float64 forward pass
// gave, and the tokenizer cases.
type golden struct {
	Greedy     []int32 `json:"greedy_from_bos"`
	Perplexity float64
	Cases      map[string][]int32
}

func readGolden(t testing.TB) (g golden) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testdata, "golden/runtime/golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.Unmarshal(doc["stories260k"], &g), json.Unmarshal(doc["tokenizer_cases"], &g.Cases)); err != nil {
		t.Fatal(err)
	}
	return g
}

// ids writes a list of a recipe.
func ids(list []int32) string {
	b, _ := json.Marshal(list)
	return string(b)
}

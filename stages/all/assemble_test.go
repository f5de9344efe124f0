package all_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/formats/gguf"
	"quern/hub"
	"quern/internal/digest"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/assemble"
	"quern/stages/source"
)

// tensorsOf gives type and digest of every tensor of a file, and their order.
func tensorsOf(t *testing.T, path string) (*gguf.File, []string, map[string]string) {
	t.Helper()
	data := readAll(t, path)
	f := openGGUF(t, path)
	var names []string
	sums := map[string]string{}
	for _, x := range f.Tensors {
		names = append(names, x.Name)
		sums[x.Name] = x.Tensor.Type.String() + " " + digest.Of(data[x.Offset:][:x.Bytes]).Hex()
	}
	return f, names, sums
}

const assembleRecipe = `version: 1
name: assembled
sources:
  fine: {gguf: x}
  small: {gguf: x}
steps:
  - assemble: {base: fine, take: [{from: small, match: '_exps'}]}
outputs:
  - {format: gguf, file: out.gguf}
`

// moes builds the two files that the acceptance recipe puts together.
func moes(t *testing.T, store pipeline.Store) (fine, small string) {
	t.Helper()
	dir := folder(t, "stories-moe")
	var out []string
	for _, name := range []string{"gguf-moe-q8", "gguf-moe-q4"} {
		res, err := build1(t.Context(), t, name, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir(), Store: store}, "sources.base.dir="+dir)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, res.Outputs[0].Path)
	}
	return out[0], out[1]
}

// TestAssemble: the experts are those of one file, all else, the order and the
// metadata those of the other, out of the store and out of files.
func TestAssemble(t *testing.T) {
	s, err := local.Open(t.Context(), t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := pipeline.Keep(s, artifacts.Tool{Name: "test", Version: "1"})
	fine, small := moes(t, store)
	ff, order, fineSums := tensorsOf(t, fine)
	_, _, smallSums := tensorsOf(t, small)
	res, err := build1(t.Context(), t, assembleRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.fine.gguf="+fine, "sources.small.gguf="+small)
	if err != nil {
		t.Fatal(err)
	}
	out, names, got := tensorsOf(t, res.Outputs[0].Path)
	if fmt.Sprint(names) != fmt.Sprint(order) {
		t.Errorf("order %q, want %q", names, order)
	}
	taken := 0
	for name, sum := range got {
		want := fineSums[name]
		if strings.Contains(name, "_exps") {
			want = smallSums[name]
			if want != fineSums[name] {
				taken++
			}
		}
		if sum != want {
			t.Errorf("tensor %s is %s, want %s", name, sum, want)
		}
	}
	if taken == 0 {
		t.Error("both files have the same experts: the test shows nothing")
	}
	for key, v := range ff.Meta.All() {
		if w, ok := out.Meta.Get(key); key == "general.file_type" && ok || key != "general.file_type" && (!ok || !w.Equal(v)) {
			t.Errorf("key %s: %v, want %v", key, w.Any(), v.Any())
		}
	}

	// The acceptance recipe moves the experts behind that, and takes the files out
	// of the store.
	env := source.Env{Artifacts: source.FromStore(s)}
	acc, err := build1(t.Context(), t, "assemble", env, pipeline.BuildOptions{OutDir: t.TempDir(), Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, moved := tensorsOf(t, acc.Outputs[0].Path); fmt.Sprint(moved) != fmt.Sprint(got) {
		t.Error("out of the store it has other tensors")
	}
}

// TestAssembleFetchesWhatItTakes: over a network only the tensors of the file are
// read.
func TestAssembleFetchesWhatItTakes(t *testing.T) {
	fine, small := moes(t, nil)
	dir := t.TempDir()
	for name, path := range map[string]string{"fine.gguf": fine, "small.gguf": small} {
		if err := os.WriteFile(filepath.Join(dir, name), readAll(t, path), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	want, err := build1(t.Context(), t, assembleRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.fine.gguf="+fine, "sources.small.gguf="+small)
	if err != nil {
		t.Fatal(err)
	}
	client, err := hub.New(hub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	env := source.Env{Hub: source.FromHub(client, nil)}
	res, err := build1(t.Context(), t, assembleRecipe, env, pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.fine.url="+server.URL+"/fine.gguf", "sources.small.url="+server.URL+"/small.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if res.Outputs[0].SHA256 != want.Outputs[0].SHA256 {
		t.Error("over a network it is another file")
	}
	// A plan knows what will be fetched: of either file its part of the tensors.
	r, err := recipes.Parse("r.yaml", []byte(assembleRecipe), recipes.Options{Set: []string{"sources.fine.url=" + server.URL + "/fine.gguf", "sources.small.url=" + server.URL + "/small.gguf"}})
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, env)
	if err != nil {
		t.Fatal(err)
	}
	p, err := pipeline.NewPlan(t.Context(), prj, pipeline.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	report, err := p.Report(t.Context(), nil, pipeline.EmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	part := func(path string, experts bool) (n int64) {
		for _, x := range openGGUF(t, path).Tensors {
			if strings.Contains(x.Name, "_exps") == experts {
				n += x.Bytes
			}
		}
		return n
	}
	// What stands behind a header is fetched with it already.
	const window = 64 << 10
	for i, want := range []int64{part(fine, false), part(small, true)} {
		if got := report.Sources[i].ToFetch; got > want || got < want-window {
			t.Errorf("source %s: %d bytes to fetch, its part has %d", report.Sources[i].Name, got, want)
		}
	}
}

func TestAssembleFaults(t *testing.T) {
	fine, small := moes(t, nil)
	dir := t.TempDir()
	// rewritten is the second file with changed metadata or tensors.
	rewritten := func(change func(m *gguf.Metadata, specs []gguf.TensorSpec) []gguf.TensorSpec) string {
		f := openGGUF(t, small)
		meta := f.Meta.Clone()
		var specs []gguf.TensorSpec
		for _, x := range f.Tensors {
			specs = append(specs, gguf.TensorSpec{Name: x.Name, Type: x.Tensor.Type, Shape: x.Tensor.Shape})
		}
		specs = change(meta, specs)
		l, err := gguf.NewLayout(meta, specs, gguf.LayoutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out := make([]byte, l.Size)
		copy(out, l.Header)
		p := filepath.Join(dir, "changed.gguf")
		if err := os.WriteFile(p, out, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	same := func(_ *gguf.Metadata, s []gguf.TensorSpec) []gguf.TensorSpec { return s }
	set := func(key string, v gguf.Value) func(*gguf.Metadata, []gguf.TensorSpec) []gguf.TensorSpec {
		return func(m *gguf.Metadata, s []gguf.TensorSpec) []gguf.TensorSpec { m.Set(key, v); return s }
	}
	for _, c := range []struct {
		name, step string
		change     func(*gguf.Metadata, []gguf.TensorSpec) []gguf.TensorSpec
		says       []string
	}{
		{"nothing matches", "{base: fine, take: [{from: small, match: no_such}]}", same, []string{"take 1: no tensor of fine", `"no_such"`}},
		{"all taken before", "{base: fine, take: [{from: small, match: exps}, {from: small, match: ffn_up_exps}]}", same, []string{"take 2: no tensor"}},
		{"rope", "", set("llama.rope.freq_base", gguf.Scalar(float32(500000))), []string{"llama.rope.freq_base is 10000 in fine and 500000 in small"}},
		{"experts used", "", set("llama.expert_used_count", gguf.Scalar(uint32(1))), []string{"llama.expert_used_count is 2 in fine and 1 in small"}},
		{"a key more", "", set("llama.rope.scaling.type", gguf.Scalar("yarn")), []string{"llama.rope.scaling.type is missing in fine and yarn in small"}},
		{"a key less", "", func(m *gguf.Metadata, s []gguf.TensorSpec) []gguf.TensorSpec {
			m.Delete("llama.expert_count")
			return s
		}, []string{"llama.expert_count", "missing in small"}},
		{"architecture", "", set("general.architecture", gguf.Scalar("qwen3moe")), []string{`"llama"`, `"qwen3moe"`}},
		{"tokens", "", func(m *gguf.Metadata, s []gguf.TensorSpec) []gguf.TensorSpec {
			v, _ := m.Texts("tokenizer.ggml.tokens")
			v = append([]string(nil), v...)
			v[300] = "another"
			m.Set("tokenizer.ggml.tokens", gguf.List(v))
			return s
		}, []string{"tokenizer.ggml.tokens differs from item 300 on", `"another" in small`}},
		{"shape", "", func(m *gguf.Metadata, s []gguf.TensorSpec) []gguf.TensorSpec {
			for i := range s {
				if s[i].Name == "blk.1.ffn_up_exps.weight" {
					s[i].Shape = append(s[i].Shape[:0:0], s[i].Shape...)
					s[i].Shape[0]--
				}
			}
			return s
		}, []string{"tensor blk.1.ffn_up_exps.weight is [8, 172, 64] in fine and [7, 172, 64] in small"}},
		{"a tensor less", "", func(m *gguf.Metadata, s []gguf.TensorSpec) []gguf.TensorSpec {
			for i := range s {
				if s[i].Name == "blk.1.ffn_up_exps.weight" {
					return append(s[:i:i], s[i+1:]...)
				}
			}
			return s
		}, []string{"small has no tensor blk.1.ffn_up_exps.weight"}},
		{"a tensor more", "", func(m *gguf.Metadata, s []gguf.TensorSpec) []gguf.TensorSpec {
			x := s[0]
			x.Name = "blk.0.ffn_up_exps.scale"
			return append(s, x)
		}, []string{"blk.0.ffn_up_exps.scale", "add: true"}},
	} {
		step := c.step
		if step == "" {
			step = "{base: fine, take: [{from: small, match: '_exps'}]}"
		}
		recipe := strings.Replace(assembleRecipe, "{base: fine, take: [{from: small, match: '_exps'}]}", step, 1)
		file := rewritten(c.change)
		_, err := build1(t.Context(), t, recipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.fine.gguf="+fine, "sources.small.gguf="+file)
		if !errors.Is(err, assemble.ErrAssemble) || !errors.Is(err, pipeline.ErrRecipe) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v; want %q", c.name, err, s)
			}
		}
	}
	// What is allowed to differ, and what is added.
	file := rewritten(func(m *gguf.Metadata, s []gguf.TensorSpec) []gguf.TensorSpec {
		m.Set("llama.rope.freq_base", gguf.Scalar(float32(500000)))
		x := s[0]
		x.Name = "blk.0.ffn_up_exps.scale"
		return append(s, x)
	})
	recipe := strings.Replace(assembleRecipe, "match: '_exps'}]}", `match: '_exps', add: true}], allow: ['\.rope\.']}`, 1)
	res, err := build1(t.Context(), t, recipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.fine.gguf="+fine, "sources.small.gguf="+file)
	if err != nil {
		t.Fatal(err)
	}
	f, names, _ := tensorsOf(t, res.Outputs[0].Path)
	if names[len(names)-1] != "blk.0.ffn_up_exps.scale" {
		t.Errorf("the last tensor is %s", names[len(names)-1])
	}
	if v, err := f.Meta.Float64("llama.rope.freq_base"); err != nil || v != 10000 {
		t.Errorf("rope base %g, %v", v, err)
	}
	if !strings.Contains(fmt.Sprint(res.Warnings), "llama.rope.freq_base: differs in small, as the recipe allows") {
		t.Errorf("warnings %q", res.Warnings)
	}
}

// rewriteMeta writes a GGUF file with other metadata and no weights.
func rewriteMeta(t *testing.T, path string, meta *gguf.Metadata) string {
	t.Helper()
	var specs []gguf.TensorSpec
	for _, x := range openGGUF(t, path).Tensors {
		specs = append(specs, gguf.TensorSpec{Name: x.Name, Type: x.Tensor.Type, Shape: x.Tensor.Shape})
	}
	l, err := gguf.NewLayout(meta, specs, gguf.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, l.Size)
	copy(out, l.Header)
	p := filepath.Join(t.TempDir(), "changed.gguf")
	if err := os.WriteFile(p, out, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

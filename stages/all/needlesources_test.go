package all_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"quern/artifacts"
	"quern/formats/cact"
	"quern/hub/hubtest"
	"quern/model/needle"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/source"
)

// cactFile gives a file of testdata/cact.
func cactFile(t *testing.T, name string) []byte {
	t.Helper()
	return mustRead(t, filepath.Join(testdata, "cact", name))
}

// needleText is a recipe whose base is given by its kind and value.
func needleText(t *testing.T, base, steps string) string {
	t.Helper()
	abs, err := filepath.Abs(filepath.Join(testdata, "cact", "needle3-plain.model"))
	if err != nil {
		t.Fatal(err)
	}
	return "version: 1\nname: x\nsources:\n  base: {" + base + "}\n  tokenizer: {file: '" + abs + "'}\n" + steps + "outputs:\n  - {format: cact, file: x.cact}\n"
}

// needleFolders are repositories or folders that hold a Needle model in one of its
// forms, beside files that are none.
var needleFolders = map[string]map[string]string{
	"safetensors":                  {"checkpoints/needle3.safetensors": "needle3-b.safetensors"},
	"pickle":                       {"needle3.pkl": "needle3-b.pkl"},
	"archive":                      {"needle3.cact": "needle3-b.cact"},
	"checkpoint before the others": {"needle3.safetensors": "needle3-b.safetensors", "old.pkl": "needle3-b.pkl", "needle3.cact": "needle3-a.cact"},
	"with an adapter":              {"base.safetensors": "needle3-b.safetensors", "lora.safetensors": "needle3-a-lora.safetensors"},
}

// TestNeedleSources: repositories and folders without a config.json open by what
// they hold, and give the exporter's archive.
func TestNeedleSources(t *testing.T) {
	want := cactFile(t, "needle3-b.cact")
	for name, list := range needleFolders {
		files := map[string][]byte{"README.md": []byte("# a model\n")}
		for to, from := range list {
			files[to] = cactFile(t, from)
		}
		check := func(t *testing.T, out string) {
			t.Helper()
			sameArchive(t, mustRead(t, filepath.Join(out, "x.cact")), want)
		}
		t.Run(name+" in a folder", func(t *testing.T) {
			dir := t.TempDir()
			writeAll(t, dir, files)
			opt := pipeline.BuildOptions{OutDir: t.TempDir()}
			if _, err := build1(t.Context(), t, needleText(t, "dir: '"+dir+"'", ""), source.Env{Digests: digests}, opt); err != nil {
				t.Fatal(err)
			}
			check(t, opt.OutDir)
		})
		t.Run(name+" on the hub", func(t *testing.T) {
			o := serve(t, "needle", files, hubtest.Options{})
			res, err := build1(t.Context(), t, needleText(t, "hf: org/needle", ""), o.env(), o.options())
			if err != nil {
				t.Fatal(err)
			}
			check(t, o.out)
			if len(res.Sources[0].Files) == 0 || res.Sources[0].Commit == "" {
				t.Errorf("recorded as %+v", res.Sources[0])
			}
		})
	}
}

func writeAll(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, b := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNeedleSourceChoice: of two checkpoints none is taken by chance, and a folder
// without any says so.
func TestNeedleSourceChoice(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string][]byte
		err   error
		text  string
	}{
		"two":     {map[string][]byte{"a.safetensors": cactFile(t, "needle3-b.safetensors"), "b.safetensors": cactFile(t, "needle3-a.safetensors")}, needle.ErrChoice, "a.safetensors, b.safetensors"},
		"none":    {map[string][]byte{"lora.safetensors": cactFile(t, "needle3-a-lora.safetensors")}, os.ErrNotExist, "config.json"},
		"damaged": {map[string][]byte{"a.cact": cactFile(t, "needle3-b.cact")[:5000]}, nil, "a.cact"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeAll(t, dir, c.files)
			_, err := build1(t.Context(), t, needleText(t, "dir: '"+dir+"'", ""), source.Env{Digests: digests}, pipeline.BuildOptions{OutDir: t.TempDir()})
			if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestNeedleCut: what is left of a model file is refused as a damaged source, also where
// nothing of its format is left, and a checkpoint that lacks a tensor says which.
func TestNeedleCut(t *testing.T) {
	buildText := func(file string, b []byte, steps string, change func(string) string) error {
		t.Helper()
		path := filepath.Join(t.TempDir(), file)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := recipes.Parse(filepath.Join(t.TempDir(), "r.yaml"), []byte(change(needleText(t, "file: '"+path+"'", steps))), recipes.Options{})
		if err != nil {
			t.Fatal(err)
		}
		prj, err := all.Project(r, source.Env{Digests: digests})
		if err != nil {
			return err
		}
		_, err = pipeline.Build(t.Context(), prj, pipeline.BuildOptions{OutDir: t.TempDir()})
		return err
	}
	build := func(file string, b []byte) error {
		t.Helper()
		return buildText(file, b, "", func(text string) string { return text })
	}
	for _, file := range []string{"needle3-b.safetensors", "needle3-b.pkl", "needle3-b.cact"} {
		whole := cactFile(t, file)
		for _, n := range []int{0, 1, 3, 8, 9, 97, 1000, 5000, len(whole) - 1} {
			if err := build(file, whole[:n]); !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), file) {
				t.Errorf("%d bytes of %s: %v", n, file, err)
			}
		}
	}
	// The tokenizer lies at an archive's end; with layers the rest is written anew.
	for _, at := range []int64{0, 3, 24 + 4, 24 + 6} { // count of pieces, type and length of the first
		b := cactFile(t, "needle3-b.cact")
		b[openCact(t, b).Entry(cact.NameTokenizer).Offset+at] ^= 0x80
		own := func(text string) string {
			return regexp.MustCompile(`(?m)^  tokenizer: .*\n`).ReplaceAllString(text, "")
		}
		for _, steps := range []string{"", "steps:\n  - layers: 2\n"} {
			if err := buildText("needle3-b.cact", b, steps, own); !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), "tokenizer") {
				t.Errorf("tokenizer damaged at byte %d, %q: %v", at, steps, err)
			}
		}
	}
	if err := build("any name", cactFile(t, "needle3-b.safetensors")[:1000]); !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("another name: %v", err)
	}
	for name, b := range map[string][]byte{"protocol0.pkl": []byte("(dp0\n."), "protocol0.PTH": []byte("(dp0\n."), "other.pth": []byte("PK\x05\x06" + strings.Repeat("\x00", 18))} {
		if err := build(name, b); !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, lost := range []string{"embedding/embedding", "stack/final_norm/scale"} {
		whole := cactFile(t, "needle3-b.safetensors")
		other := bytes.Replace(whole, []byte(lost), bytes.Repeat([]byte("z"), len(lost)), 1)
		if err := build("x.safetensors", other); !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), lost) {
			t.Errorf("without %s: %v", lost, err)
		}
	}
	if err := build("x.pkl", []byte("\x80\x02N.")); !errors.Is(err, pipeline.ErrRecipe) || !strings.Contains(err.Error(), "base (x.pkl) is a plain file") {
		t.Errorf("a pickle of nothing: %v", err)
	}
}

// TestNeedleArtifact: a store may hold checkpoints and adapters too, by whoever put
// them there.
func TestNeedleArtifact(t *testing.T) {
	st := newStore(t)
	ctx := context.Background()
	keep := func(name string, files map[string]string) {
		t.Helper()
		b := &artifacts.Build{Version: artifacts.BuildVersion, Tool: artifacts.Tool{Name: "other", Version: "1"}, Name: name, Recipe: json.RawMessage("{}")}
		for file, format := range files {
			d, err := artifacts.PutBytes(ctx, st, "application/octet-stream", cactFile(t, file))
			if err != nil {
				t.Fatal(err)
			}
			b.Outputs = append(b.Outputs, artifacts.BuildOutput{File: file, Format: format, MediaType: "application/octet-stream", Digest: d.Digest, Size: d.Size})
		}
		d, err := artifacts.WriteBuild(ctx, st, b)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Tag(ctx, name, d); err != nil {
			t.Fatal(err)
		}
	}
	keep("base", map[string]string{"needle3-b.safetensors": "safetensors"})
	keep("old", map[string]string{"needle3-b.pkl": "pickle"})
	keep("tuned", map[string]string{"needle3-b-lora.pkl": "pickle"})
	for _, c := range []struct{ base, steps, golden string }{
		{"artifact: base", "", "needle3-b.cact"},
		{"artifact: old", "", "needle3-b.cact"},
		{"artifact: base", "steps:\n  - lora: {adapter: tuned}\n", "needle3-b-lora.cact"},
	} {
		text := needleText(t, c.base, c.steps)
		if c.steps != "" {
			text = strings.Replace(text, "  tokenizer:", "  tuned: {artifact: tuned}\n  tokenizer:", 1)
		}
		r, err := recipes.Parse(filepath.Join(t.TempDir(), "r.yaml"), []byte(text), recipes.Options{})
		if err != nil {
			t.Fatal(err)
		}
		prj, err := all.Project(r, source.Env{Digests: digests, Artifacts: source.FromStore(st)})
		if err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		if _, err := pipeline.Build(ctx, prj, pipeline.BuildOptions{OutDir: out}); err != nil {
			t.Fatalf("%s: %v", c.base, err)
		}
		sameArchive(t, mustRead(t, filepath.Join(out, "x.cact")), cactFile(t, c.golden))
	}
}

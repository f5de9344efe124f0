package pack_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quern/artifacts"
	"quern/artifacts/pack"
)

func file(name string) pack.File {
	return pack.File{Path: name, Kind: pack.KindOf(name), Descriptor: artifacts.Descriptor{Digest: artifacts.DigestOf([]byte(name)), Size: int64(len(name))}}
}

var meta = pack.Meta{
	Name: "tiny", Architecture: "llama", ModelFormat: "gguf", Parameters: "260K", Quantization: "Q8_0", Licenses: []string{"MIT"},
	GGUF: map[string]string{"general.architecture": "llama"},
}

func made(t *testing.T, f pack.Format, m pack.Meta, files ...pack.File) *pack.Image {
	t.Helper()
	im, err := pack.Make(f, files, m)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// TestManifests holds the bytes of each format against those that the other tools
// took when they were run, see interop/registry.
func TestManifests(t *testing.T) {
	when := time.Unix(1700000000, 0)
	dated := meta
	dated.Created = &when
	files := []pack.File{file("README.md"), file("LICENSE"), file("tiny.gguf"), file("chat_template.jinja"), file("tokenizer.json")}
	for _, c := range []struct {
		name   string
		format pack.Format
		meta   pack.Meta
	}{
		{"modelpack", pack.ModelPack, meta},
		{"modelpack-dated", pack.ModelPack, dated},
		{"docker", pack.Docker, meta},
		{"docker-dated", pack.Docker, dated},
		{"ollama", pack.Ollama, meta},
	} {
		t.Run(c.name, func(t *testing.T) {
			im := made(t, c.format, c.meta, files...)
			if again := made(t, c.format, c.meta, files...); !bytes.Equal(im.Raw, again.Raw) || !bytes.Equal(im.ConfigRaw, again.ConfigRaw) {
				t.Error("a second time gives other bytes")
			}
			if im.Manifest.Digest != artifacts.DigestOf(im.Raw) || im.Config.Digest != artifacts.DigestOf(im.ConfigRaw) {
				t.Error("digests are not those of the bytes")
			}
			golden(t, c.name, im)
			m, err := pack.Read(im.Raw)
			if err != nil {
				t.Fatal(err)
			}
			if m.Format != c.format {
				t.Errorf("read as %s", m.Format)
			}
			for _, f := range m.Files {
				if want := file(f.Path); f.Digest != want.Digest || f.Size != want.Size || f.Kind != want.Kind {
					t.Errorf("read %+v, want %+v", f, want)
				}
			}
			if len(m.Files)+len(im.Left) != len(files) {
				t.Errorf("%d layers and %d left of %d files", len(m.Files), len(im.Left), len(files))
			}
		})
	}
}

// golden compares with testdata/NAME.json, which holds manifest and config.
func golden(t *testing.T, name string, im *pack.Image) {
	t.Helper()
	var got bytes.Buffer
	for _, raw := range [][]byte{im.Raw, im.ConfigRaw} {
		if err := json.Indent(&got, raw, "", "  "); err != nil {
			t.Fatal(err)
		}
		got.WriteByte('\n')
	}
	path := filepath.Join("testdata", name+".json")
	if os.Getenv("UPDATE_GOLDENS") != "" {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s differs:\n%s", path, got.Bytes())
	}
}

// TestDockerConfigIsNoModelPack: with one of three keys model-runner takes the
// config for another format.
func TestDockerConfigIsNoModelPack(t *testing.T) {
	when := time.Unix(1700000000, 0)
	m := meta
	m.Created = &when
	im := made(t, pack.Docker, m, file("a.gguf"))
	var c struct {
		Config     map[string]any `json:"config"`
		Descriptor map[string]any `json:"descriptor"`
		ModelFS    any            `json:"modelfs"`
	}
	if err := json.Unmarshal(im.ConfigRaw, &c); err != nil {
		t.Fatal(err)
	}
	if c.Config["paramSize"] != nil || c.Descriptor["createdAt"] != nil || c.ModelFS != nil {
		t.Errorf("%s", im.ConfigRaw)
	}
	if c.Config["parameters"] != "260K" || c.Config["quantization"] != "Q8_0" || c.Descriptor["created"] != "2023-11-14T22:13:20Z" {
		t.Errorf("%s", im.ConfigRaw)
	}
}

func TestMakeRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		format pack.Format
		files  []pack.File
		want   error
	}{
		{"no weights", pack.ModelPack, []pack.File{file("README.md")}, pack.ErrFormat},
		{"no files", pack.Docker, nil, pack.ErrFormat},
		{"not a GGUF", pack.Docker, []pack.File{file("a.cact")}, pack.ErrFormat},
		{"shards for ollama", pack.Ollama, []pack.File{file("a-00001-of-00002.gguf"), file("a-00002-of-00002.gguf")}, pack.ErrFormat},
		{"a build", pack.Quern, []pack.File{file("a.gguf")}, pack.ErrFormat},
		{"one name twice", pack.ModelPack, []pack.File{file("a.gguf"), file("a.gguf")}, pack.ErrPath},
		{"a path that leaves", pack.ModelPack, []pack.File{file("../a.gguf")}, pack.ErrPath},
	} {
		if _, err := pack.Make(c.format, c.files, meta); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// layer is a descriptor in JSON.
func layer(mediaType, annotations string) string {
	return fmt.Sprintf(`{"mediaType":%q,"digest":"%s","size":3,"annotations":{%s}}`, mediaType, artifacts.DigestOf([]byte(mediaType+annotations)), annotations)
}

func title(s string) string {
	b, _ := json.Marshal(s)
	return `"org.opencontainers.image.title":` + string(b)
}

// TestRead names the files of what other tools push.
func TestRead(t *testing.T) {
	const oci = "application/vnd.oci.image.manifest.v1+json"
	for _, c := range []struct {
		name, artifactType, config string
		layers                     []string
		format                     pack.Format
		files                      string
	}{
		{"oras", "application/vnd.x", "application/vnd.oci.empty.v1+json",
			[]string{layer("text/plain", title("a/b.gguf")), layer("application/octet-stream", "")}, pack.ORAS, "a/b.gguf|"},
		{"oras folder", "", "application/vnd.oci.empty.v1+json",
			[]string{layer("application/vnd.oci.image.layer.v1.tar+gzip", title("dir")+`,"io.deis.oras.content.unpack":"true"`)}, pack.ORAS, "dir.tar.gz"},
		{"docker", "", "application/vnd.docker.ai.model.config.v0.1+json",
			[]string{layer("application/vnd.docker.ai.gguf.v3", ""), layer("application/vnd.docker.ai.license", ""), layer("application/vnd.docker.ai.license", `"x":"2"`), layer("application/vnd.docker.ai.mmproj", ""), layer("application/vnd.docker.ai.chat.template.jinja", "")},
			pack.Docker, "model.gguf|LICENSE|LICENSE-2|mmproj.gguf|chat_template.jinja"},
		{"docker shards", "", "application/vnd.docker.ai.model.config.v0.1+json",
			[]string{layer("application/vnd.docker.ai.gguf.v3", ""), layer("application/vnd.docker.ai.gguf.v3", `"x":"2"`)},
			pack.Docker, "model-00001-of-00002.gguf|model-00002-of-00002.gguf"},
		{"docker v0.2", "", "application/vnd.docker.ai.model.config.v0.2+json",
			[]string{layer("application/vnd.docker.ai.model.file", `"org.cncf.model.filepath":"te/model.safetensors"`)}, pack.Docker, "te/model.safetensors"},
		{"ollama", "", "application/vnd.docker.container.image.v1+json",
			[]string{layer("application/vnd.ollama.image.model", ""), layer("application/vnd.ollama.image.template", ""), layer("application/vnd.ollama.image.params", ""), layer("application/vnd.ollama.image.system", "")},
			pack.Ollama, "model.gguf|template.txt|params.json|system.txt"},
		{"modctl", "application/vnd.cncf.model.manifest.v1+json", "application/vnd.cncf.model.config.v1+json",
			[]string{layer("application/vnd.cncf.model.weight.v1.raw", `"org.cncf.model.filepath":"m.gguf"`), layer("application/vnd.cncf.model.doc.v1.tar", `"org.cncf.model.filepath":"doc"`)},
			pack.ModelPack, "m.gguf|doc.tar"},
		{"modctl, all kinds", "application/vnd.cncf.model.manifest.v1+json", "application/vnd.cncf.model.config.v1+json",
			[]string{layer("application/vnd.cncf.model.weight.v1.raw", title("README.gguf")), layer("application/vnd.cncf.model.doc.v1.raw", title("guide.pdf")), layer("application/vnd.cncf.model.code.v1.raw", title("run.py")), layer("application/vnd.cncf.model.dataset.v1.raw", title("set.gguf"))},
			pack.ModelPack, "README.gguf|guide.pdf|run.py|set.gguf"},
		{"an older draft", "", "application/vnd.cnai.model.config.v1+json",
			[]string{layer("application/vnd.cnai.model.weight.v1.raw", `"org.cnai.model.filepath":"m.gguf"`)}, pack.ModelPack, "m.gguf"},
		{"kit", "", "application/vnd.kitops.modelkit.config.v1+json",
			[]string{layer("application/vnd.kitops.modelkit.model.v1.tar+gzip", "")}, pack.KitOps, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"artifactType":%q,"config":{"mediaType":%q,"digest":"%s","size":2},"layers":[%s]}`,
				oci, c.artifactType, c.config, artifacts.DigestOf(nil), strings.Join(c.layers, ","))
			m, err := pack.Read([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range m.Files {
				names = append(names, f.Path)
			}
			if got := strings.Join(names, "|"); m.Format != c.format || got != c.files {
				t.Errorf("%s: %s, want %s: %s", m.Format, got, c.format, c.files)
			}
			if c.name == "modctl, all kinds" {
				if f, err := m.Model(""); err != nil || f.Path != "README.gguf" {
					t.Errorf("the model is %v, %v", f, err)
				}
			}
		})
	}
}

// TestUnsafeNames: no name of a stranger's leaves the folder, on any system.
func TestUnsafeNames(t *testing.T) {
	for _, names := range [][]string{
		{"../a"}, {"/etc/passwd"}, {"a/../../b"}, {"a//b"}, {"./a"}, {"a/"}, {`..\a`}, {`C:\a`}, {"C:a"}, {"a:stream"}, {"a\x00b"}, {"a\nb"}, {"a\x1b[2J"}, {"."}, {".."},
		{"a", "a"}, {"a", "A"}, {"model", "model/a"}, {"Model/b", "model"},
	} {
		var layers []string
		for i, n := range names {
			layers = append(layers, layer("text/plain", title(n)+fmt.Sprintf(`,"n":"%d"`, i)))
		}
		raw := `{"schemaVersion":2,"layers":[` + strings.Join(layers, ",") + `]}`
		if m, err := pack.Read([]byte(raw)); !errors.Is(err, pack.ErrPath) {
			t.Errorf("%q: %v, %v", names, m, err)
		}
	}
}

// TestLongNames: a name of as many folders as a manifest can hold is refused at once.
func TestLongNames(t *testing.T) {
	deep := strings.Repeat("a/", 600) + "a"
	for _, name := range []string{deep, strings.Repeat("a/", 1<<20) + "a"} {
		if err := pack.CheckPaths([]pack.File{file(name)}); !errors.Is(err, pack.ErrPath) || len(err.Error()) > 1000 {
			t.Errorf("%d bytes: %.200v", len(name), err)
		}
	}
	if err := pack.CheckPaths([]pack.File{file(deep[:1023])}); err != nil {
		t.Error(err)
	}
}

func TestModel(t *testing.T) {
	m := &pack.Manifest{Files: []pack.File{file("LICENSE"), file("m-00001-of-00002.gguf"), file("m-00002-of-00002.gguf"), file("ids.txt")}}
	if f, err := m.Model(""); err != nil || f.Path != "m-00001-of-00002.gguf" {
		t.Errorf("%v, %v", f, err)
	}
	if f, err := m.Model("ids.txt"); err != nil || f.Path != "ids.txt" {
		t.Errorf("%v, %v", f, err)
	}
	if _, err := m.Model("other"); !errors.Is(err, pack.ErrFormat) {
		t.Error(err)
	}
	m.Files = append(m.Files, file("anything.bin"))
	if f, err := m.Model(""); err != nil || f.Path != "m-00001-of-00002.gguf" {
		t.Errorf("%v, %v", f, err)
	}
	m.Files = append(m.Files, file("x.gguf"))
	if _, err := m.Model(""); !errors.Is(err, pack.ErrFormat) || !strings.Contains(err.Error(), "x.gguf") {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"modelpack", "docker", "ollama"} {
		raw, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw[:bytes.Index(raw, []byte("\n}\n"))+3])
	}
	f.Add([]byte(`{"layers":[` + layer("text/plain", title("../x")) + `]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := pack.Read(raw)
		if err != nil {
			return
		}
		for _, x := range m.Files {
			if x.Path == "" {
				continue
			}
			if p := filepath.ToSlash(filepath.Clean(filepath.Join("/out", x.Path))); !strings.HasPrefix(p, "/out/") || x.Size < 0 {
				t.Errorf("%q goes to %s", x.Path, p)
			}
		}
	})
}

// TestPeers reads the manifests that other tools have pushed, see testdata/ORIGIN.md.
func TestPeers(t *testing.T) {
	for _, c := range []struct {
		name   string
		format pack.Format
		files  string
		model  string
	}{
		{"docker-model-docker", pack.Docker, "stories260k.gguf LICENSE", "stories260k.gguf"},
		{"docker-model-modelpack", pack.ModelPack, "stories260k.gguf LICENSE", "stories260k.gguf"},
		{"modctl-raw-true", pack.ModelPack, "tiny.gguf README.md", "tiny.gguf"},
		{"modctl-raw-false", pack.ModelPack, "tiny.gguf.tar README.md.tar", ""},
		{"oras", pack.ORAS, "m.gguf sub/readme.txt dir.tar.gz", "m.gguf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("testdata", "peers", c.name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			m, err := pack.Read(raw)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range m.Files {
				names = append(names, f.Path)
			}
			if got := strings.Join(names, " "); m.Format != c.format || got != c.files {
				t.Errorf("%s: %s", m.Format, got)
			}
			if f, err := m.Model(""); c.model == "" && err == nil || c.model != "" && (err != nil || f.Path != c.model) {
				t.Errorf("%v, %v", f, err)
			}
		})
	}
}

// TestKindOf: settings are no weights, whatever their format.
func TestKindOf(t *testing.T) {
	for name, want := range map[string]pack.Kind{
		"m.gguf": pack.Weights, "a/M.SAFETENSORS": pack.Weights, "weights.bin": pack.Weights, "m.yaml/w": pack.Weights,
		"a/mmproj-m.gguf": pack.Projector, "LICENSE": pack.License, "license.md": pack.License, "a/README": pack.Doc,
		"chat_template.jinja": pack.Template, "config.json": pack.Config, "r.yaml": pack.Config, "a/B.YML": pack.Config,
		"x.toml": pack.Config, "keep.ids": pack.Config, "run.py": pack.Other,
	} {
		if got := pack.KindOf(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

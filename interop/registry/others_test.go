package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/model-runner/pkg/distribution/builder"
	modelregistry "github.com/docker/model-runner/pkg/distribution/registry"
	"github.com/modelpack/modctl/pkg/backend"
	modctl "github.com/modelpack/modctl/pkg/config"
)

// keep writes a manifest as it is into the folder QUERN_KEEP: these are the goldens
// of artifacts/pack.
func (w *world) keep(name, ref string) {
	w.Helper()
	dir := os.Getenv("QUERN_KEEP")
	if dir == "" {
		return
	}
	repo, tag, _ := strings.Cut(strings.TrimPrefix(ref, w.host+"/"), ":")
	req, err := http.NewRequest("GET", "http://"+w.host+"/v2/"+repo+"/manifests/"+tag, nil)
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		w.Fatal(res.Status, err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), raw, 0o644); err != nil {
		w.Fatal(err)
	}
}

// pulls pulls what another tool has pushed, and looks for its files.
func (w *world) pulls(ref, format string, want ...string) {
	w.Helper()
	out := filepath.Join(w.dir, "pulled", format)
	var doc struct {
		Format string
		Files  []struct{ File string }
	}
	if err := json.Unmarshal(w.quern("pull", ref, "-o", out, "--json"), &doc); err != nil {
		w.Fatal(err)
	}
	if doc.Format != format {
		w.Errorf("it was taken for %s, not %s", doc.Format, format)
	}
	w.Logf("%s: %v", format, doc.Files)
	w.has(out, want...)
	// It can be built from.
	recipe := w.write("from.yaml", "version: 1\nname: from-"+format+"\nsources:\n  base: {artifact: '"+ref+"'}\nsteps: []\noutputs:\n  - {format: gguf, file: again.gguf}\n")
	w.quern("build", recipe, "-o", filepath.Join(w.dir, "again", format))
	// And it goes on as it is: the digest stays.
	w.quern("push", ref, w.host+"/others/copy:"+format)
}

// TestModelRunnerPushes pulls what docker model's library has pushed.
func TestModelRunnerPushes(t *testing.T) {
	w := newWorld(t, "")
	extras := w.extras()
	for format, kind := range map[string]builder.BuildFormat{"docker": builder.BuildFormatDocker, "modelpack": builder.BuildFormatCNCF} {
		ref := w.host + "/models/bydocker:" + format
		b, err := builder.FromPath(w.model, builder.WithFormat(kind))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = b.WithLicense(extras[1]); err != nil {
			t.Fatal(err)
		}
		target, err := modelregistry.NewClient(modelregistry.WithPlainHTTP(true)).NewTarget(ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Build(context.Background(), target, io.Discard); err != nil {
			t.Fatal(err)
		}
		w.keep("docker-model-"+format, ref)
		w.pulls(ref, format, filepath.Base(w.model), "LICENSE")
	}
}

// TestModctlPushes pulls what modctl has pushed, as tars and as files.
func TestModctlPushes(t *testing.T) {
	for _, raw := range []bool{true, false} {
		w := newWorld(t, "")
		dir := filepath.Join(w.dir, "work")
		w.write("work/README.md", "# tiny\n")
		if err := os.Link(w.model, filepath.Join(dir, "tiny.gguf")); err != nil {
			b, err := os.ReadFile(w.model)
			if err != nil {
				t.Fatal(err)
			}
			w.write("work/tiny.gguf", string(b))
		}
		file := w.write("work/Modelfile", "NAME tiny\nARCH transformer\nFAMILY llama\nFORMAT gguf\nPARAMSIZE 260K\nMODEL *.gguf\nDOC *.md\n")
		b, err := backend.New(filepath.Join(w.dir, "modctl"))
		if err != nil {
			t.Fatal(err)
		}
		ref := w.host + "/models/bymodctl:v1"
		conf := modctl.NewBuild()
		conf.OutputRemote, conf.PlainHTTP, conf.Raw, conf.Target = true, true, raw, ref
		if err := b.Build(context.Background(), file, dir, ref, conf); err != nil {
			t.Fatal(err)
		}
		w.keep(fmt.Sprintf("modctl-raw-%v", raw), ref)
		if raw {
			w.pulls(ref, "modelpack", "tiny.gguf", "README.md")
			continue
		}
		out := filepath.Join(w.dir, "tars")
		w.quern("pull", ref, "-o", out)
		w.has(out, "tiny.gguf", "README.md")
	}
}

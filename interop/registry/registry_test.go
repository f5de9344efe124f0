// Package registry takes what quern pushes to the tools that it is for, and what
// they push to quern, over Debian's docker-registry. It is a module of its own: the
// tools need some hundred others.
//
//	QUERN           the quern to test
//	QUERN_MODEL     a GGUF file
//	QUERN_ORAS      the oras command
package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/model-runner/pkg/distribution/distribution"
	modelregistry "github.com/docker/model-runner/pkg/distribution/registry"
	"github.com/docker/model-runner/pkg/distribution/types"
	"github.com/modelpack/modctl/pkg/backend"
	modctl "github.com/modelpack/modctl/pkg/config"
	"golang.org/x/crypto/bcrypt"
)

// world is a registry, a quern with a store of its own, and a model.
type world struct {
	*testing.T
	dir, host, model, sum string
}

// newWorld starts a registry; auth is for its configuration.
func newWorld(t *testing.T, auth string) *world {
	t.Helper()
	for _, v := range []string{"QUERN", "QUERN_MODEL"} {
		if os.Getenv(v) == "" {
			t.Skip(v + " is not set; make -C interop registry sets it")
		}
	}
	w := &world{T: t, dir: t.TempDir(), model: os.Getenv("QUERN_MODEL")}
	w.sum = sum(t, w.model)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.host = l.Addr().String()
	l.Close()
	config := filepath.Join(w.dir, "registry.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage:\n  filesystem: {rootdirectory: %s}\n  delete: {enabled: true}\nhttp: {addr: %s}\n%s", filepath.Join(w.dir, "data"), w.host, auth)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", config)
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; apt-get install docker-registry", err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for range 100 {
		if c, err := net.Dial("tcp", w.host); err == nil {
			c.Close()
			t.Setenv("QUERN_STORE", filepath.Join(w.dir, "store"))
			t.Setenv("DOCKER_CONFIG", filepath.Join(w.dir, "docker"))
			return w
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the registry does not start")
	return nil
}

func sum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// run runs a command and gives its standard output.
func (w *world) run(name string, args ...string) []byte {
	w.Helper()
	cmd := exec.Command(name, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		w.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}

func (w *world) quern(args ...string) []byte { w.Helper(); return w.run(os.Getenv("QUERN"), args...) }

func (w *world) write(name, text string) string {
	w.Helper()
	p := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		w.Fatal(err)
	}
	return p
}

// extras are the small files that go with a model.
func (w *world) extras() []string {
	return []string{w.write("README.md", "# tiny\n"), w.write("LICENSE", "MIT\n"), w.write("chat_template.jinja", "{{ messages }}\n")}
}

// push pushes the model with its small files.
func (w *world) push(ref string, flags ...string) {
	w.Helper()
	args := append([]string{"push", w.model}, w.extras()...)
	w.quern(append(append(args, ref), flags...)...)
}

// has looks for the model's bytes under a folder.
func (w *world) has(dir string, want ...string) {
	w.Helper()
	found := map[string]string{}
	filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, p)
			found[rel] = sum(w.T, p)
		}
		return err
	})
	for _, name := range want {
		if s, ok := found[name]; !ok {
			w.Errorf("no %s in %v", name, found)
		} else if strings.HasSuffix(name, ".gguf") && s != w.sum {
			w.Errorf("%s has other bytes", name)
		}
	}
}

// TestModelRunner pulls with docker model's library, in both of its formats.
func TestModelRunner(t *testing.T) {
	for _, format := range []string{"modelpack", "docker"} {
		t.Run(format, func(t *testing.T) {
			w := newWorld(t, "")
			ref := w.host + "/models/tiny:" + format
			w.push(ref, "--format", format)
			t.Setenv("INSECURE_REGISTRY", "true")
			t.Setenv("DEFAULT_REGISTRY", w.host)
			c, err := distribution.NewClient(
				distribution.WithStoreRootPath(filepath.Join(w.dir, "models")),
				distribution.WithLogger(slog.New(slog.DiscardHandler)),
				distribution.WithRegistryClient(modelregistry.NewClient(modelregistry.WithPlainHTTP(true))),
			)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.PullModel(context.Background(), ref, io.Discard); err != nil {
				t.Fatal(err)
			}
			m, err := c.GetModel(ref)
			if err != nil {
				t.Fatal(err)
			}
			conf, err := m.Config()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("format %s, architecture %s, parameters %s, quantization %s", conf.GetFormat(), conf.GetArchitecture(), conf.GetParameters(), conf.GetQuantization())
			if conf.GetFormat() != types.FormatGGUF || conf.GetArchitecture() == "" || conf.GetParameters() == "" || conf.GetQuantization() == "" {
				t.Errorf("%+v", conf)
			}
			b, err := c.GetBundle(ref)
			if err != nil {
				t.Fatal(err)
			}
			path := b.GGUFPath()
			if path == "" {
				t.Fatalf("the bundle %s has no GGUF file", b.RootDir())
			}
			if !filepath.IsAbs(path) {
				path = filepath.Join(b.RootDir(), path)
			}
			if _, err := os.Stat(path); err != nil {
				path = filepath.Join(b.RootDir(), "model", b.GGUFPath())
			}
			if sum(t, path) != w.sum {
				t.Errorf("%s has other bytes", path)
			}
		})
	}
}

// TestModctl pulls with the tool of ModelPack.
func TestModctl(t *testing.T) {
	w := newWorld(t, "")
	ref := w.host + "/models/tiny:v1"
	w.push(ref)
	b, err := backend.New(filepath.Join(w.dir, "modctl"))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(w.dir, "out")
	conf := modctl.NewPull()
	conf.PlainHTTP, conf.ProgressWriter, conf.DisableProgress = true, io.Discard, true
	conf.ExtractDir, conf.ExtractFromRemote = out, true
	if err := b.Pull(context.Background(), ref, conf); err != nil {
		t.Fatal(err)
	}
	w.has(out, filepath.Base(w.model), "README.md", "LICENSE", "chat_template.jinja")
}

// TestORAS pulls with oras and pulls what oras has pushed.
func TestORAS(t *testing.T) {
	oras := os.Getenv("QUERN_ORAS")
	if oras == "" {
		t.Skip("QUERN_ORAS is not set")
	}
	w := newWorld(t, "")
	for _, format := range []string{"modelpack", "docker", "ollama"} {
		ref := w.host + "/models/tiny:" + format
		w.push(ref, "--format", format)
		out := filepath.Join(w.dir, "out", format)
		w.run(oras, "pull", "--plain-http", ref, "-o", out)
		w.has(out, filepath.Base(w.model), "LICENSE")
		// oras copies it to a layout, every digest checked.
		w.run(oras, "copy", "--from-plain-http", ref, "--to-oci-layout", filepath.Join(w.dir, "layout", format)+":x")
	}
	// The other way: a file, a file in a folder, and a folder that oras packs.
	src := filepath.Join(w.dir, "src")
	w.write("src/sub/readme.txt", "hello\n")
	w.write("src/dir/a.txt", "a\n")
	link := filepath.Join(src, "m.gguf")
	if err := os.Symlink(w.model, link); err != nil {
		t.Fatal(err)
	}
	ref := w.host + "/models/byoras:v1"
	cmd := exec.Command(oras, "push", "--plain-http", ref, "--artifact-type", "application/x.model", "m.gguf:application/octet-stream", "sub/readme.txt", "dir")
	cmd.Dir = src
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	w.keep("oras", ref)
	out := filepath.Join(w.dir, "byoras")
	w.quern("pull", ref, "-o", out)
	w.has(out, "m.gguf", "sub/readme.txt", "dir/a.txt")
	// It goes on as it is, under the same digest, and oras finds it so.
	again := w.host + "/others/byoras:v2"
	w.quern("push", ref, again)
	first, second := w.run(oras, "resolve", "--plain-http", ref), w.run(oras, "resolve", "--plain-http", again)
	if !bytes.Equal(first, second) {
		t.Errorf("%s and %s", first, second)
	}
}

// TestProvenance pushes a build, finds its provenance with oras, and pulls both into
// another store.
func TestProvenance(t *testing.T) {
	w := newWorld(t, "")
	recipe := w.write("r.yaml", "version: 1\nname: tiny\nsources:\n  base: {gguf: '"+w.model+"'}\nsteps: []\noutputs:\n  - {format: gguf, file: tiny.gguf}\n")
	w.quern("build", recipe, "-o", filepath.Join(w.dir, "built"))
	ref := w.host + "/models/tiny:v1"
	var pushed struct {
		Tags []struct{ Manifest, Provenance string }
	}
	if err := json.Unmarshal(w.quern("push", "tiny", ref, "--json"), &pushed); err != nil || len(pushed.Tags) != 1 || pushed.Tags[0].Provenance == "" {
		t.Fatalf("%+v, %v", pushed, err)
	}
	if oras := os.Getenv("QUERN_ORAS"); oras != "" {
		if out := w.run(oras, "discover", "--plain-http", ref, "--format", "json"); !bytes.Contains(out, []byte(pushed.Tags[0].Provenance)) {
			t.Errorf("%s", out)
		}
	}
	other := filepath.Join(w.dir, "other")
	w.quern("pull", ref, "--store", other)
	if out := w.quern("store", "show", ref, "--store", other); !bytes.Contains(out, []byte("its provenance")) || !bytes.Contains(out, []byte("built by quern")) {
		t.Errorf("%s", out)
	}
	w.quern("store", "verify", "--store", other)
}

// TestBreaks kills pushes and pulls in the middle.
func TestBreaks(t *testing.T) {
	w := newWorld(t, "")
	big := filepath.Join(w.dir, "big.bin")
	f, err := os.Create(big)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<20)
	for i := range 300 {
		for k := range b {
			b[k] = byte(k*i + k>>8)
		}
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	ref := w.host + "/models/big:v1"
	kill := func(after time.Duration, args ...string) {
		cmd := exec.Command(os.Getenv("QUERN"), args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		cmd.Process.Kill()
		cmd.Wait()
	}
	for i := range 4 {
		kill(time.Duration(200+150*i)*time.Millisecond, "push", big, ref, "--chunk", "1MiB")
	}
	w.quern("push", big, ref, "--chunk", "1MiB")
	for i := range 4 {
		kill(time.Duration(100+80*i)*time.Millisecond, "pull", ref)
	}
	var doc struct{ Fetched, Bytes int64 }
	if err := json.Unmarshal(w.quern("pull", ref, "-o", filepath.Join(w.dir, "out"), "--json"), &doc); err != nil {
		t.Fatal(err)
	}
	t.Logf("the last pull fetched %d of %d bytes", doc.Fetched, doc.Bytes)
	if sum(t, filepath.Join(w.dir, "out", "big.bin")) != sum(t, big) {
		t.Error("other bytes came")
	}
	w.quern("store", "verify")
}

// TestMounts pushes what the registry has in another repository.
func TestMounts(t *testing.T) {
	w := newWorld(t, "")
	w.push(w.host + "/one/tiny:v1")
	w.quern("pull", w.host+"/one/tiny:v1")
	var doc struct {
		Sent int64
		Tags []struct{ Blobs []struct{ How string } }
	}
	if err := json.Unmarshal(w.quern("push", w.host+"/one/tiny:v1", w.host+"/two/tiny:v1", "--json"), &doc); err != nil {
		t.Fatal(err)
	}
	for _, b := range doc.Tags[0].Blobs {
		if b.How != "mounted" {
			t.Errorf("a blob was %s", b.How)
		}
	}
	if doc.Sent != 0 {
		t.Errorf("%d bytes were sent", doc.Sent)
	}
}

// TestPassword logs in to a registry with users.
func TestPassword(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users")
	b, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(users, append([]byte("me:"), b...), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "auth:\n  htpasswd: {realm: test, path: "+users+"}\n")
	ref := w.host + "/models/tiny:v1"
	cmd := exec.Command(os.Getenv("QUERN"), "push", w.model, ref)
	if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != 4 || !bytes.Contains(out, []byte("docker login")) {
		t.Errorf("without a password: %v\n%s", err, out)
	}
	cmd = exec.Command(os.Getenv("QUERN"), "push", w.model, ref, "--username", "me", "--password-stdin")
	cmd.Stdin = strings.NewReader("secret\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	w.write("docker/config.json", `{"auths":{"`+w.host+`":{"auth":"bWU6c2VjcmV0"}}}`)
	w.quern("pull", ref, "-o", filepath.Join(w.dir, "out"))
	w.has(filepath.Join(w.dir, "out"), filepath.Base(w.model))
	if res, err := http.Get("http://" + w.host + "/v2/"); err != nil || res.StatusCode != 401 {
		t.Errorf("the registry asks for nobody: %v, %v", res, err)
	}
}

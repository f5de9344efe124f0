package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/artifacts"
	"quern/artifacts/registry/registrytest"
	"quern/internal/atomicfile"
	"quern/internal/faulty"
)

// registryBench is a bench with a registry of its own and a build in the store.
func registryBench(t *testing.T, srv *registrytest.Server) (*bench, string) {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("SOURCE_DATE_EPOCH", "")
	b := newBench(t)
	b.model("stories260k", "model")
	b.ok("build", b.recipe(q8), "-o", b.path("out"))
	return b, srv.Start(t) + "/team/tiny"
}

// pushDoc is what the tests read of push --json.
type pushDoc struct {
	Sent int64
	Tags []struct {
		Reference, Format, Manifest string
		Already                     bool `json:"already_there"`
		Provenance                  string
		Referrers                   []string
		Blobs                       []struct{ How, MediaType, Digest string }
	}
}

type pullDoc struct {
	Name, Manifest, Format, Provenance string
	Bytes, Fetched                     int64
	Files                              []struct{ File, SHA256, Path, Method string }
}

// TestPushAndPull takes a build to a registry and to another machine's store, with
// the registry's own list of referrers and without.
func TestPushAndPull(t *testing.T) {
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("referrers %v", own), func(t *testing.T) {
			srv := &registrytest.Server{Referrers: own}
			b, repo := registryBench(t, srv)
			ref := repo + ":v1"
			var doc pushDoc
			b.ok("push", "r", ref, "--json").json(t, &doc)
			if len(doc.Tags) != 1 || doc.Tags[0].Format != "modelpack" || doc.Tags[0].Provenance == "" || doc.Sent == 0 {
				t.Errorf("%+v", doc)
			}
			want := sum(t, b.path("out", "r.gguf"))
			var again pushDoc
			b.ok("push", "r", ref, "--json").json(t, &again)
			if !again.Tags[0].Already || again.Sent != 0 || again.Tags[0].Manifest != doc.Tags[0].Manifest {
				t.Errorf("again: %+v", again)
			}

			other := b.path("elsewhere")
			var got pullDoc
			b.ok("pull", ref, "--store", other, "-o", b.path("pulled"), "--json").json(t, &got)
			if got.Name != ref || got.Manifest != doc.Tags[0].Manifest || got.Format != "modelpack" || got.Provenance != doc.Tags[0].Provenance {
				t.Errorf("%+v", got)
			}
			// All came but the two manifests' bytes, and the model counts once.
			if left := got.Bytes - got.Fetched; left <= 0 || left > 4096 {
				t.Errorf("%d of %d bytes were fetched", got.Fetched, got.Bytes)
			}
			if sum(t, b.path("pulled", "r.gguf")) != want || len(got.Files) != 1 || got.Files[0].SHA256 != "sha256:"+want {
				t.Errorf("%+v", got.Files)
			}
			var r2 pullDoc
			b.ok("pull", ref, "--store", other, "-o", b.path("pulled"), "--json").json(t, &r2)
			if r2.Fetched != 0 || r2.Files[0].Method != "present" {
				t.Errorf("again: %+v", r2)
			}
			r := b.ok("store", "show", ref, "--store", other)
			for _, w := range []string{"modelpack", "file r.gguf", "its provenance", "source base: dir model", "token_embd.weight"} {
				if !strings.Contains(r.out, w) {
					t.Errorf("no %q in\n%s", w, r.out)
				}
			}
			b.ok("store", "verify", "--store", other)
			b.ok("store", "gc", "--grace", "0s", "--store", other)
			if r := b.ok("store", "show", ref, "--store", other); !strings.Contains(r.out, "its provenance") {
				t.Errorf("gc took the provenance:\n%s", r.out)
			}
			// It goes on to a third place with what refers to it.
			third := strings.Replace(repo, "/tiny", "/third", 1) + ":v1"
			var on pushDoc
			b.ok("push", ref, third, "--store", other, "--referrers", "--json").json(t, &on)
			if on.Tags[0].Manifest != doc.Tags[0].Manifest || !slices.Equal(on.Tags[0].Referrers, []string{doc.Tags[0].Provenance}) {
				t.Errorf("on: %+v", on.Tags[0])
			}
			for _, bl := range on.Tags[0].Blobs {
				if bl.How != "mounted" {
					t.Errorf("%s was %s", bl.Digest, bl.How)
				}
			}
			var last pullDoc
			b.ok("pull", third, "--store", b.path("last"), "--json").json(t, &last)
			if last.Provenance != doc.Tags[0].Provenance {
				t.Errorf("at the end: %+v", last)
			}
			b.ok("store", "export", ref, "--store", other, "-o", b.path("exported"))
			if sum(t, b.path("exported", "r.gguf")) != want {
				t.Error("another file was exported")
			}
			// It is a source of recipes, under the reference and with a file's name.
			for i, name := range []string{ref, ref + "/r.gguf"} {
				b.write("from.yaml", "version: 1\nname: from\nsources:\n  base: {artifact: '"+name+"'}\nsteps:\n  - quantize: {type: Q4_0, fallback: F16, allow-requantize: true}\noutputs:\n  - {format: gguf, file: q4.gguf}\n")
				b.ok("build", b.path("from.yaml"), "--store", other, "-o", b.path("out2", fmt.Sprint(i)))
			}
			if a, c := sum(t, b.path("out2", "0", "q4.gguf")), sum(t, b.path("out2", "1", "q4.gguf")); a == "" || a != c {
				t.Errorf("%q and %q were built of it", a, c)
			}
		})
	}
}

// TestForeignProvenance: a build that has other files than the artifact is not its
// provenance, whatever the registry's list takes it for.
func TestForeignProvenance(t *testing.T) {
	for _, listed := range []string{artifacts.ArtifactTypeBuild, "application/vnd.example.signature"} {
		srv := &registrytest.Server{}
		b, repo := registryBench(t, srv)
		b.ok("push", "r", repo+":v1", "--no-provenance")
		raw, mediaType := srv.Manifest("team/tiny", "v1")
		srv.PutBlob("team/tiny", artifacts.DigestOf([]byte("evil")), []byte("evil"))
		evil := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"artifactType":%q,"config":{"mediaType":"text/plain","digest":"%s","size":4},"layers":[{"mediaType":"text/plain","digest":"%[3]s","size":4,"annotations":{"org.opencontainers.image.title":"evil"}}],"subject":{"mediaType":%[1]q,"digest":"%[4]s","size":%d}}`,
			mediaType, artifacts.ArtifactTypeBuild, artifacts.DigestOf([]byte("evil")), artifacts.DigestOf(raw), len(raw))
		d := srv.PutManifest("team/tiny", "evil", mediaType, evil)
		srv.Before = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/referrers/") {
				return false
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			fmt.Fprintf(w, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":%q,"digest":"%s","size":%d,"artifactType":%q}]}`, mediaType, d, len(evil), listed)
			return true
		}
		for _, more := range [][]string{{}, {"--referrers"}} {
			r := b.ok(append([]string{"pull", repo + ":v1", "--store", b.path("other"), "--json"}, more...)...)
			var doc pullDoc
			r.json(t, &doc)
			if doc.Provenance != "" || strings.Contains(b.ok("store", "show", repo+":v1", "--store", b.path("other")).out, "provenance") {
				t.Errorf("listed as %s: %+v", listed, doc)
			}
			if (listed == artifacts.ArtifactTypeBuild || len(more) > 0) && !strings.Contains(r.err, "other files") {
				t.Errorf("listed as %s: no warning in %s", listed, r.err)
			}
			if _, err := os.Stat(b.path("other", "blobs", "sha256", artifacts.DigestOf([]byte("evil")).Hex())); err == nil {
				t.Errorf("listed as %s: its file came", listed)
			}
		}
	}
}

// TestPullIntoAFolder: nothing that is there is replaced or left half done, and
// nothing gets out of the folder.
func TestPullIntoAFolder(t *testing.T) {
	srv := &registrytest.Server{}
	b, repo := registryBench(t, srv)
	b.ok("push", "r", repo+":v1")
	dir := b.path("dir")
	theirs := b.write("dir/r.gguf", "mine")
	for _, more := range [][]string{{}, {"--no-store"}} {
		before := srv.Count("GET /v2/team/tiny/blobs")
		b.fails(exitFailed, []string{"already exists", "--replace"}, append([]string{"pull", repo + ":v1", "-o", dir, "--store", b.path("s2")}, more...)...)
		if string(mustRead(t, theirs)) != "mine" || srv.Count("GET /v2/team/tiny/blobs") != before {
			t.Error("it was touched, or something was fetched for nothing")
		}
	}
	b.ok("pull", repo+":v1", "-o", dir, "--no-store", "--replace")
	if sum(t, theirs) != sum(t, b.path("out", "r.gguf")) {
		t.Error("it was not replaced")
	}
	b.fails(exitUsage, []string{"--out"}, "pull", repo+":v1", "--no-store")
	b.fails(exitUsage, []string{"--out"}, "pull", repo+":v1", "--replace")
	b.fails(exitUsage, []string{"--as"}, "pull", repo+":v1", "--no-store", "-o", dir, "--as", "x")
	b.fails(exitUsage, []string{"--referrers"}, "pull", repo+":v1", "--no-store", "-o", dir, "--referrers")
	b.fails(exitUsage, []string{"inside the store"}, "pull", repo+":v1", "-o", b.path("store", "blobs"))

	evil := func(title string) string {
		blob := []byte("evil")
		srv.PutBlob("team/evil", artifacts.DigestOf(blob), blob)
		srv.PutBlob("team/evil", artifacts.DigestOf([]byte("{}")), []byte("{}"))
		raw := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"%s","size":2},`+
			`"layers":[{"mediaType":"text/plain","digest":"%s","size":4,"annotations":{"org.opencontainers.image.title":%q}}]}`,
			artifacts.DigestOf([]byte("{}")), artifacts.DigestOf(blob), title)
		srv.PutManifest("team/evil", "v1", "application/vnd.oci.image.manifest.v1+json", []byte(raw))
		return strings.Replace(repo, "/tiny", "/evil", 1) + ":v1"
	}
	out := b.path("victim", "folder")
	for _, name := range []string{"../up", "/tmp/abs", `..\up`, "a/../../up"} {
		b.fails(exitSource, []string{"unsafe"}, "pull", evil(name), "-o", out)
	}
	if got := files(t, b.path("victim")); len(got) != 0 {
		t.Errorf("%v was written", got)
	}
	// A link in the folder leads nowhere else.
	check(t, os.MkdirAll(out, 0o755))
	check(t, os.MkdirAll(b.path("victim", "outside"), 0o755))
	check(t, os.Symlink(b.path("victim", "outside"), filepath.Join(out, "sub")))
	for _, more := range [][]string{{}, {"--no-store"}} {
		r := b.run(append([]string{"pull", evil("sub/file"), "-o", out}, more...)...)
		if got := files(t, b.path("victim", "outside")); r.code == 0 || len(got) != 0 {
			t.Errorf("code %d, %v was written through a link", r.code, got)
		}
	}
	b.ok("pull", evil("sub2/file"), "-o", out)
	if string(mustRead(t, filepath.Join(out, "sub2", "file"))) != "evil" {
		t.Error("a good name was not written")
	}
	noTemps(t, b.dir)
}

// TestRegistryExitCodes: what the network does is no fault of the command line.
func TestRegistryExitCodes(t *testing.T) {
	srv := &registrytest.Server{}
	b, repo := registryBench(t, srv)
	b.fails(exitUsage, []string{"HOST[:PORT]/REPOSITORY"}, "pull", "tiny")
	b.fails(exitUsage, []string{"HOST[:PORT]/REPOSITORY"}, "push", "r", "http://reg.example/tiny")
	b.fails(exitUsage, []string{"together"}, "push", "r", repo+":v1", "--username", "me")
	b.fails(exitUsage, []string{"--chunk"}, "push", "r", repo+":v1", "--chunk", "many")
	b.fails(exitUsage, []string{"--as"}, "pull", repo+"/a__b:v1")
	r := b.fails(exitSource, []string{"not in the registry", "MANIFEST_UNKNOWN"}, "pull", repo+":none", "--json")
	var doc struct {
		Error string
		Code  int `json:"exit_code"`
	}
	r.json(t, &doc)
	if doc.Code != exitSource || doc.Error == "" {
		t.Errorf("%s", r.out)
	}
	b.fails(exitSource, []string{"127.0.0.1:1"}, "pull", "127.0.0.1:1/a:b")
	srv.Before = func(w http.ResponseWriter, r *http.Request) bool {
		registrytest.Fail(w, 403, "DENIED")
		return true
	}
	b.fails(exitSource, []string{"access denied", "docker login"}, "push", "r", repo+":v1")
	// Ctrl-C in the middle.
	ctx, cancel := context.WithCancelCause(context.Background())
	srv.Before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == "POST" {
			cancel(errInterrupted)
		}
		return false
	}
	if r := b.runCtx(ctx, "push", "r", repo+":v1"); r.code != exitInterrupted {
		t.Errorf("code %d: %s", r.code, r.err)
	}
	if raw, _ := srv.Manifest("team/tiny", "v1"); raw != nil {
		t.Error("a tag is there")
	}
}

// TestPullOthers: artifacts as other tools push them, by the reference alone.
func TestPullOthers(t *testing.T) {
	srv := &registrytest.Server{}
	b, repo := registryBench(t, srv)
	model := mustRead(t, b.path("out", "r.gguf"))
	d := artifacts.DigestOf(model)
	config := []byte(`{"model_format":"gguf"}`)
	for name, layer := range map[string]string{"ollama": "application/vnd.ollama.image.model", "docker": "application/vnd.docker.ai.gguf.v3"} {
		kind := map[string]string{"ollama": "application/vnd.docker.container.image.v1+json", "docker": "application/vnd.docker.ai.model.config.v0.1+json"}[name]
		srv.PutBlob("team/tiny", d, model)
		srv.PutBlob("team/tiny", artifacts.DigestOf(config), config)
		raw := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json","config":{"mediaType":%q,"digest":"%s","size":%d},"layers":[{"mediaType":%q,"digest":"%s","size":%d}]}`,
			kind, artifacts.DigestOf(config), len(config), layer, d, len(model))
		srv.PutManifest("team/tiny", name, "application/vnd.docker.distribution.manifest.v2+json", []byte(raw))
		var doc pullDoc
		b.ok("pull", repo+":"+name, "--as", "from-"+name, "-o", b.path(name), "--json").json(t, &doc)
		if doc.Format != name || doc.Name != "from-"+name || sum(t, b.path(name, "model.gguf")) != d.Hex() {
			t.Errorf("%+v", doc)
		}
		if doc.Fetched >= int64(len(model)) {
			t.Errorf("%d bytes of what the store had were fetched", doc.Fetched)
		}
		b.write("from.yaml", "version: 1\nname: from\nsources:\n  base: {artifact: from-"+name+"}\nsteps:\n  - quantize: {type: Q4_0, fallback: F16, allow-requantize: true}\noutputs:\n  - {format: gguf, file: q4.gguf}\n")
		b.ok("build", b.path("from.yaml"), "-o", b.path("built"))
	}
}

// packed makes a tar of entries NAME=CONTENT; a name with a / at its end is a folder,
// and a content that begins with -> a link.
func packed(t *testing.T, entries ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for _, e := range entries {
		name, content, _ := strings.Cut(e, "=")
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(content)), Mode: 0o777}
		if to, ok := strings.CutPrefix(content, "->"); ok {
			h.Typeflag, h.Linkname, h.Size, content = tar.TypeSymlink, to, 0, ""
		}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Size, content = tar.TypeDir, 0, ""
		}
		check(t, w.WriteHeader(h))
		_, err := w.Write([]byte(content))
		check(t, err)
	}
	check(t, w.Close())
	check(t, z.Close())
	return buf.Bytes()
}

// TestPullUnpacks: folders that oras has packed come as folders, and archives that
// mean harm do none.
func TestPullUnpacks(t *testing.T) {
	srv := &registrytest.Server{}
	b, repo := registryBench(t, srv)
	put := func(archive []byte) {
		srv.PutBlob("team/tiny", artifacts.DigestOf(archive), archive)
		srv.PutBlob("team/tiny", artifacts.DigestOf([]byte("{}")), []byte("{}"))
		raw := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"%s","size":2},`+
			`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"%s","size":%d,"annotations":{"org.opencontainers.image.title":"dir","io.deis.oras.content.unpack":"true"}}]}`,
			artifacts.DigestOf([]byte("{}")), artifacts.DigestOf(archive), len(archive))
		srv.PutManifest("team/tiny", "dir", "application/vnd.oci.image.manifest.v1+json", []byte(raw))
	}
	put(packed(t, "dir/", "dir/a.txt=one", "dir/sub/b.txt=two"))
	for i, more := range [][]string{{}, {"--no-store"}} {
		out := b.path("good", fmt.Sprint(i))
		for range 2 { // what is there stays
			b.ok(append([]string{"pull", repo + ":dir", "-o", out}, more...)...)
		}
		if got := files(t, out); !slices.Equal(got, []string{"dir/a.txt", "dir/sub/b.txt"}) || string(mustRead(t, filepath.Join(out, "dir", "sub", "b.txt"))) != "two" {
			t.Errorf("%v", got)
		}
		b.write("good/"+fmt.Sprint(i)+"/dir/a.txt", "mine")
		b.fails(exitFailed, []string{"already exists"}, append([]string{"pull", repo + ":dir", "-o", out}, more...)...)
		b.ok(append([]string{"pull", repo + ":dir", "-o", out, "--replace"}, more...)...)
		if string(mustRead(t, filepath.Join(out, "dir", "a.txt"))) != "one" {
			t.Error("it was not replaced")
		}
	}
	// One blob is the packed folder and a file too.
	archive := packed(t, "dir/a.txt=one")
	put(archive)
	raw, mediaType := srv.Manifest("team/tiny", "dir")
	head, layer, _ := strings.Cut(strings.TrimSuffix(string(raw), "]}"), `"layers":[`)
	plain := strings.NewReplacer(`.title":"dir"`, `.title":"dir.bin"`, `"true"`, `"false"`).Replace(layer)
	for i, layers := range []string{layer + "," + plain, plain + "," + layer} {
		srv.PutManifest("team/tiny", "both", mediaType, []byte(head+`"layers":[`+layers+"]}"))
		for j, more := range [][]string{{}, {"--no-store"}} {
			out := b.path("both", fmt.Sprint(i, j))
			b.ok(append([]string{"pull", repo + ":both", "-o", out}, more...)...)
			if got := files(t, out); !slices.Equal(got, []string{"dir.bin", "dir/a.txt"}) || sum(t, filepath.Join(out, "dir.bin")) != artifacts.DigestOf(archive).Hex() {
				t.Errorf("%v", got)
			}
		}
	}
	// A file of the artifact and one in a folder of it cannot both have a name.
	other := []byte("another one")
	srv.PutBlob("team/tiny", artifacts.DigestOf(other), other)
	for i, title := range []string{"dir/a.txt", "DIR/a.txt"} {
		also := fmt.Sprintf(`{"mediaType":"text/plain","digest":"%s","size":%d,"annotations":{"org.opencontainers.image.title":"%s"}}`, artifacts.DigestOf(other), len(other), title)
		for j, layers := range []string{layer + "," + also, also + "," + layer} {
			srv.PutManifest("team/tiny", "clash", mediaType, []byte(head+`"layers":[`+layers+"]}"))
			for k, more := range [][]string{{}, {"--no-store"}} {
				out := b.path("clash", fmt.Sprint(i, j, k))
				b.fails(exitSource, []string{"dir/a.txt", "two layers"}, append([]string{"pull", repo + ":clash", "-o", out, "--replace"}, more...)...)
				if got := files(t, out); len(got) > 1 || len(got) == 1 && string(mustRead(t, filepath.Join(out, got[0]))) != string(other) {
					t.Errorf("%v", got)
				}
			}
		}
	}
	zeros := strings.Repeat("\x00", 8<<20)
	for name, archive := range map[string][]byte{
		"goes up":            packed(t, "dir/a=1", "../up=2"),
		"absolute":           packed(t, "dir/a=1", "/tmp/abs=2"),
		"a link":             packed(t, "dir/a=1", "dir/l=->/etc/passwd"),
		"through a link":     packed(t, "dir/a=1", "dir=->..", "dir/b=2"),
		"one name twice":     packed(t, "dir/a=1", "dir/a=2"),
		"by letter case":     packed(t, "dir/a=1", "DIR/A=2"),
		"file and folder":    packed(t, "dir/a=1", "dir/a/b=2"),
		"cut off":            packed(t, "dir/a=1", "dir/b="+strings.Repeat("x", 5000))[:60],
		"no archive":         []byte("not a tar, nor compressed"),
		"much out of little": packed(t, "dir/a=1", "dir/zeros="+zeros),
	} {
		put(archive)
		for i, more := range [][]string{{}, {"--no-store"}} {
			out := b.path("bad", name, fmt.Sprint(i))
			b.fails(exitSource, nil, append([]string{"pull", repo + ":dir", "-o", out}, more...)...)
			if got := files(t, b.path("bad")); len(got) != 0 {
				t.Errorf("%s: %v was written", name, got)
			}
		}
	}
}

// TestPullIndex: an index comes whole; its files come one manifest at a time.
func TestPullIndex(t *testing.T) {
	srv := &registrytest.Server{}
	b, repo := registryBench(t, srv)
	var doc pushDoc
	b.ok("push", "r", repo+":v1", "--format", "modelpack,docker", "--no-provenance", "--json").json(t, &doc)
	var list []string
	for _, tag := range doc.Tags {
		raw, mediaType := srv.Manifest("team/tiny", tag.Manifest)
		list = append(list, fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, mediaType, tag.Manifest, len(raw)))
	}
	const index = "application/vnd.oci.image.index.v1+json"
	srv.PutManifest("team/tiny", "all", index, []byte(`{"schemaVersion":2,"mediaType":"`+index+`","manifests":[`+strings.Join(list, ",")+`]}`))
	other := b.path("other")
	b.fails(exitUsage, []string{"index of 2 manifests", doc.Tags[0].Manifest}, "pull", repo+":all", "-o", b.path("x"), "--store", other)
	b.ok("pull", repo+":all", "--store", other)
	if r := b.ok("store", "show", repo+":all", "--store", other); !strings.Contains(r.out, "manifest "+doc.Tags[1].Manifest) {
		t.Errorf("%s", r.out)
	}
	b.ok("store", "verify", "--store", other)
	b.ok("pull", repo+"@"+doc.Tags[1].Manifest, "-o", b.path("x"), "--store", other)
	if sum(t, b.path("x", "r.gguf")) != sum(t, b.path("out", "r.gguf")) {
		t.Error("other bytes came")
	}
	// And it goes on to another repository as it is.
	b.ok("push", repo+":all", strings.Replace(repo, "/tiny", "/copy", 1)+":all", "--store", other)
	a, _ := srv.Manifest("team/tiny", "all")
	c, _ := srv.Manifest("team/copy", "all")
	if !bytes.Equal(a, c) {
		t.Errorf("%s\n%s", a, c)
	}
}

// TestPullOnAFullDisk lets every step of a pull that touches the disk fail in turn.
// The pull says so, leaves nothing that is not whole, and works afterwards.
func TestPullOnAFullDisk(t *testing.T) {
	srv := &registrytest.Server{}
	b, repo := registryBench(t, srv)
	b.ok("push", "r", repo+":v1")
	want := sum(t, b.path("out", "r.gguf"))
	for _, more := range [][]string{{}, {"--no-store"}} {
		by := 3
		if testing.Short() {
			by = 11
		}
		for step := 0; ; step += by {
			store, out := b.path("full", "store"), b.path("full", "out")
			check(t, os.RemoveAll(b.path("full")))
			args := append([]string{"pull", repo + ":v1", "--store", store, "-o", out}, more...)
			count := faulty.FailFrom(step, faulty.ErrDiskFull)
			where := ""
			b.hooks.before = func(s atomicfile.Step, path string) error {
				err := count.Next()
				if err != nil && where == "" {
					where = fmt.Sprintf("step %d (%s of %s)", step, s, path)
				}
				return err
			}
			r := b.run(args...)
			b.hooks.before = nil
			if !count.Fired() {
				if r.code != exitDone || step < 4 {
					t.Errorf("%d steps: code %d\n%s", step, r.code, r.err)
				}
				break
			}
			if got := sum(t, filepath.Join(out, "r.gguf")); got != "" && got != want {
				t.Errorf("%s: a file with other bytes is there", where)
			}
			if r.code != exitFailed || !strings.Contains(r.err, "disk is full") && !strings.Contains(r.err, "no space") {
				// A file is whole although the sync of its folder failed.
				t.Errorf("%s: code %d\n%s", where, r.code, r.err)
			}
			if _, err := os.Stat(filepath.Join(store, "oci-layout")); err == nil {
				b.ok("store", "verify", "--store", store)
			}
			b.ok(append(args, "--replace")...)
			if sum(t, filepath.Join(out, "r.gguf")) != want {
				t.Errorf("%s: afterwards other bytes came", where)
			}
			noTemps(t, out)
		}
	}
}

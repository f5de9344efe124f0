package registry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"quern/artifacts"
	"quern/artifacts/mem"
	"quern/artifacts/pack"
	"quern/artifacts/registry"
	"quern/artifacts/registry/registrytest"
)

func TestMain(m *testing.M) {
	// The user's own docker configuration must not reach the tests.
	dir, err := os.MkdirTemp("", "registry")
	if err != nil {
		panic(err)
	}
	os.Setenv("DOCKER_CONFIG", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// world is a registry, a client that pauses for no time, and an image to push.
type world struct {
	*testing.T
	srv    *registrytest.Server
	host   string
	opt    registry.Options
	client *registry.Client
	ref    registry.Ref
	src    *pack.Overlay
	image  artifacts.Descriptor
	model  []byte
	sum    artifacts.Digest

	mu     sync.Mutex
	pauses []time.Duration
	said   []string
}

// noise are bytes that no compression and no luck explains.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func newWorld(t *testing.T, srv *registrytest.Server, change ...func(*registry.Options)) *world {
	t.Helper()
	w := &world{T: t, srv: srv, host: srv.Start(t), src: &pack.Overlay{}, model: noise(10_000, 1)}
	w.opt = registry.Sleeper(registry.Options{Chunk: 4096, UserAgent: "quern/test", Say: func(s string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.said = append(w.said, s)
	}}, func(d time.Duration) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pauses = append(w.pauses, d)
	})
	for _, c := range change {
		c(&w.opt)
	}
	w.client = registry.New(w.opt)
	w.ref = w.parse(w.host + "/team/tiny:v1")
	w.repack()
	return w
}

func (w *world) parse(s string) registry.Ref {
	w.Helper()
	r, err := registry.ParseRef(s)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) push() (*registry.Pushed, error) {
	return w.client.Push(context.Background(), w.ref, w.src, w.image, registry.PushOptions{})
}

// pushed pushes and looks at what the registry has got.
func (w *world) pushed() *registry.Pushed {
	w.Helper()
	res, err := w.push()
	if err != nil {
		w.Fatal(err)
	}
	w.arrived()
	return res
}

func (w *world) arrived() {
	w.Helper()
	if b, _ := w.srv.Blob("team/tiny", w.sum); !bytes.Equal(b, w.model) {
		w.Errorf("the registry has %d other bytes of the model", len(b))
	}
	raw, mediaType := w.srv.Manifest("team/tiny", "v1")
	if artifacts.DigestOf(raw) != w.image.Digest || mediaType != w.image.MediaType {
		w.Errorf("the registry has %d other bytes of the manifest, as %s", len(raw), mediaType)
	}
}

// dest is a store in memory that keeps unfinished blobs as a local one does.
type dest struct {
	*mem.Store
	parts map[artifacts.Digest][]byte
	mu    sync.Mutex
}

func newDest() *dest { return &dest{Store: mem.New(), parts: map[artifacts.Digest][]byte{}} }

type destWriter struct {
	artifacts.BlobWriter
	d    *dest
	want artifacts.Digest
	all  []byte
	done bool
}

func (d *dest) Start(ctx context.Context, want artifacts.Descriptor) (artifacts.BlobWriter, error) {
	w, err := d.NewBlob(ctx, artifacts.BlobOptions{MediaType: want.MediaType, Size: want.Size})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &destWriter{BlobWriter: w, d: d, want: want.Digest}
	_, err = out.Write(d.parts[want.Digest])
	return out, err
}

func (w *destWriter) Write(p []byte) (int, error) {
	w.all = append(w.all, p...)
	return w.BlobWriter.Write(p)
}

func (w *destWriter) Commit(want artifacts.Digest) (artifacts.Descriptor, error) {
	w.done = true
	d, err := w.BlobWriter.Commit(want)
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	delete(w.d.parts, w.want)
	return d, err
}

func (w *destWriter) Abort() {
	if !w.done {
		w.d.mu.Lock()
		w.d.parts[w.want] = w.all
		w.d.mu.Unlock()
	}
	w.BlobWriter.Abort()
}

// serve gives the registry the image without a push.
func (w *world) serve() {
	raw, err := artifacts.ReadAll(context.Background(), w.src, w.image, artifacts.MaxManifest)
	if err != nil {
		w.Fatal(err)
	}
	var m struct {
		Config artifacts.Descriptor `json:"config"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		w.Fatal(err)
	}
	config, err := artifacts.ReadAll(context.Background(), w.src, m.Config, 1<<20)
	if err != nil {
		w.Fatal(err)
	}
	w.srv.PutBlob("team/tiny", m.Config.Digest, config)
	w.srv.PutBlob("team/tiny", w.sum, w.model)
	w.srv.PutManifest("team/tiny", "v1", w.image.MediaType, raw)
}

func (w *world) pull(d *dest) (*registry.Pulled, error) {
	desc, raw, err := w.client.Manifest(context.Background(), w.ref)
	if err != nil {
		return nil, err
	}
	return w.client.Pull(context.Background(), w.ref, d, desc, raw)
}

// pulled pulls and looks at what came.
func (w *world) pulled(d *dest) *registry.Pulled {
	w.Helper()
	res, err := w.pull(d)
	if err != nil {
		w.Fatal(err)
	}
	if res.Manifest.Digest != w.image.Digest {
		w.Errorf("manifest %s came, not %s", res.Manifest.Digest, w.image.Digest)
	}
	if err := artifacts.CheckComplete(context.Background(), d, res.Manifest); err != nil {
		w.Error(err)
	}
	b, err := artifacts.ReadAll(context.Background(), d, artifacts.Descriptor{Digest: w.sum, Size: int64(len(w.model))}, 1<<20)
	if err != nil || !bytes.Equal(b, w.model) {
		w.Errorf("the model came as %d other bytes: %v", len(b), err)
	}
	return res
}

// once makes a fault happen to the first n requests that begin so.
func once(n int, method, part string, f http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	var mu sync.Mutex
	return func(rw http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 || r.Method != method || !strings.Contains(r.URL.Path, part) {
			return false
		}
		n--
		f(rw, r)
		return true
	}
}

// cut breaks the connection.
func cut(rw http.ResponseWriter, _ *http.Request) {
	c, _, err := http.NewResponseController(rw).Hijack()
	if err == nil {
		c.Close()
	}
}

// repack makes the image anew after the model was changed.
func (w *world) repack() {
	w.Helper()
	w.sum = w.src.Add(w.model)
	im, err := pack.Make(pack.ModelPack, []pack.File{{Path: "tiny.gguf", Descriptor: artifacts.Descriptor{Digest: w.sum, Size: int64(len(w.model))}, Kind: pack.Weights}},
		pack.Meta{Name: "tiny", Architecture: "llama"})
	if err != nil {
		w.Fatal(err)
	}
	w.src.AddImage(im)
	w.image = im.Manifest
}

// heard is what a server was told that should hear nothing.
type heard struct {
	mu   sync.Mutex
	text string
}

func (h *heard) add(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text += s
}

func (h *heard) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text
}

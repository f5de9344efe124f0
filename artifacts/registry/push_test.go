package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"quern/artifacts"
	"quern/artifacts/registry"
	"quern/artifacts/registry/registrytest"
)

// TestPush goes through registries of all kinds; each must have everything in the
// end, and by the way that it can.
func TestPush(t *testing.T) {
	for _, c := range []struct {
		name    string
		srv     *registrytest.Server
		patches int // that were asked for
	}{
		{"plain", &registrytest.Server{}, 3},
		{"addresses that serve once", &registrytest.Server{OldAddresses: true}, 3},
		{"405 to a piece", &registrytest.Server{NoChunks: 405}, 1},
		{"404 to a piece", &registrytest.Server{NoChunks: 404}, 1},
		{"501 to a piece", &registrytest.Server{NoChunks: 501}, 1},
		{"201 to a piece", &registrytest.Server{NoChunks: 201}, 1},
		{"larger pieces", &registrytest.Server{MinChunk: 6000}, 2},
		{"pieces larger than the blob", &registrytest.Server{MinChunk: 60000}, 0},
		{"no HEAD", &registrytest.Server{NoHead: true}, 3},
		{"referrers", &registrytest.Server{Referrers: true}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.srv)
			res := w.pushed()
			if n := w.srv.Count("PATCH"); n != c.patches {
				t.Errorf("%d pieces were sent, want %d", n, c.patches)
			}
			if res.There || len(res.Blobs) != 2 || res.Bytes < 10_000 {
				t.Errorf("%+v", res)
			}
			if n := w.srv.Uploads(); n != 0 {
				t.Errorf("%d uploads were left open", n)
			}
			log := w.srv.Log()
			if last := log[len(log)-1]; last != "PUT /v2/team/tiny/manifests/v1 201" {
				t.Errorf("the last request is %s", last)
			}
			if len(w.pauses) > 0 {
				t.Errorf("pauses %v", w.pauses)
			}
		})
	}
}

func TestPushAgainSendsNothing(t *testing.T) {
	w := newWorld(t, &registrytest.Server{})
	w.pushed()
	before := len(w.srv.Log())
	res := w.pushed()
	if !res.There || res.Bytes != 0 || slices.ContainsFunc(res.Blobs, func(b registry.PushedBlob) bool { return b.How != registry.Present }) {
		t.Errorf("%+v", res)
	}
	for _, l := range w.srv.Log()[before:] {
		if !strings.HasPrefix(l, "HEAD") {
			t.Errorf("%s", l)
		}
	}
}

func TestMount(t *testing.T) {
	for _, can := range []bool{true, false} {
		t.Run(fmt.Sprint(can), func(t *testing.T) {
			w := newWorld(t, &registrytest.Server{NoMount: !can})
			w.srv.PutBlob("other/model", w.sum, w.model)
			res, err := w.client.Push(context.Background(), w.ref, w.src, w.image, registry.PushOptions{From: func(d artifacts.Digest) []string {
				if d != w.sum {
					return nil
				}
				return []string{"other/model"}
			}})
			if err != nil {
				t.Fatal(err)
			}
			w.arrived()
			i := slices.IndexFunc(res.Blobs, func(b registry.PushedBlob) bool { return b.Digest == w.sum })
			if want := map[bool]string{true: registry.Mounted, false: registry.Sent}[can]; res.Blobs[i].How != want {
				t.Errorf("the model was %s, want %s", res.Blobs[i].How, want)
			}
			// A mount that fails is an upload that has begun: one POST for each blob.
			if n := w.srv.Count("POST"); n != 2 {
				t.Errorf("%d uploads were begun", n)
			}
		})
	}
}

// TestPushGoesOn breaks connections at every kind of request.
func TestPushGoesOn(t *testing.T) {
	half := func(srv *registrytest.Server) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			io.CopyN(io.Discard, r.Body, r.ContentLength/2)
			cut(rw, r)
		}
	}
	for _, c := range []struct {
		name, method, part string
		n                  int
		f                  func(*registrytest.Server) http.HandlerFunc
	}{
		{"a piece", "PATCH", "uploads", 1, half},
		{"three pieces", "PATCH", "uploads", 3, half},
		{"the close", "PUT", "uploads", 1, func(*registrytest.Server) http.HandlerFunc { return cut }},
		{"the start", "POST", "uploads", 2, func(*registrytest.Server) http.HandlerFunc { return cut }},
		{"HEAD", "HEAD", "blobs", 2, func(*registrytest.Server) http.HandlerFunc { return cut }},
		{"the manifest", "PUT", "manifests", 1, func(*registrytest.Server) http.HandlerFunc { return cut }},
		{"503 to a piece", "PATCH", "uploads", 2, func(*registrytest.Server) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) { registrytest.Fail(rw, 503, "UNAVAILABLE") }
		}},
		{"the registry forgets", "PATCH", "uploads", 1, func(*registrytest.Server) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Content-Range") == "0-4095" {
					cut(rw, r)
					return
				}
				registrytest.Fail(rw, 404, "BLOB_UPLOAD_UNKNOWN")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := &registrytest.Server{}
			srv.Before = once(c.n, c.method, c.part, c.f(srv))
			w := newWorld(t, srv)
			w.pushed()
			if len(w.pauses) == 0 {
				t.Error("it did not wait")
			}
		})
	}
}

// TestPieceRefused: the registry has more than it said, and answers 416.
func TestPieceRefused(t *testing.T) {
	srv := &registrytest.Server{}
	lost := false
	srv.Before = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != "PATCH" || lost {
			return false
		}
		lost = true
		// The piece arrives, and its answer does not.
		inner := httptestRecorder{}
		srv.ServeHTTP(&inner, r)
		cut(rw, r)
		return true
	}
	w := newWorld(t, srv)
	w.pushed()
	// The piece that had arrived is not taken again, and the others once: 3 pieces
	// make the blob.
	if taken(w.srv) != 3 || w.srv.Count("GET /v2/team/tiny/blobs/uploads") == 0 {
		t.Errorf("%v", w.srv.Log())
	}
}

// taken counts the pieces that a registry has taken.
func taken(srv *registrytest.Server) int {
	n := 0
	for _, l := range srv.Log() {
		if strings.HasPrefix(l, "PATCH") && strings.HasSuffix(l, " 202") {
			n++
		}
	}
	return n
}

type httptestRecorder struct{ head http.Header }

func (h *httptestRecorder) Header() http.Header {
	if h.head == nil {
		h.head = http.Header{}
	}
	return h.head
}
func (h *httptestRecorder) Write(b []byte) (int, error) { return len(b), nil }
func (h *httptestRecorder) WriteHeader(int)             {}

// TestShorterPieces: a proxy takes no long bodies, whether the registry can say
// how far the upload is or not.
func TestShorterPieces(t *testing.T) {
	for _, c := range []struct {
		name    string
		srv     *registrytest.Server
		patches int
	}{
		{"state", &registrytest.Server{MaxBody: 3 << 20}, 6}, // one too long, four of 2 MiB, one of 1 MiB
		{"no state", &registrytest.Server{MaxBody: 3 << 20, NoState: true}, 6},
		{"two steps", &registrytest.Server{MaxBody: 3 << 19, NoState: true}, 11},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.srv, func(o *registry.Options) { o.Chunk = 4 << 20 })
			w.model = noise(9<<20, 2)
			w.repack()
			w.pushed()
			if n := w.srv.Count("PATCH"); n != c.patches {
				t.Errorf("%d pieces", n)
			}
		})
	}
}

// TestNoPieceFits: the registry wants longer pieces than its proxy takes.
func TestNoPieceFits(t *testing.T) {
	w := newWorld(t, &registrytest.Server{MaxBody: 3 << 20, MinChunk: 4 << 20, NoState: true}, func(o *registry.Options) { o.Chunk = 4 << 20 })
	w.model = noise(9<<20, 2)
	w.repack()
	if _, err := w.push(); !errors.Is(err, registry.ErrRegistry) || !strings.Contains(err.Error(), "413") {
		t.Errorf("error %v", err)
	}
}

// remembered counts the uploads in a journal's folder.
func remembered(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if st, err := e.Info(); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others: %v, %v", e.Name(), st.Mode(), err)
		}
	}
	return len(list)
}

// TestPushResumes: a second process goes on where the first was killed.
func TestPushResumes(t *testing.T) {
	for _, c := range []struct {
		name  string
		srv   *registrytest.Server
		again int // pieces that the second process sends
	}{
		{"state", &registrytest.Server{}, 2},
		{"addresses that serve once", &registrytest.Server{OldAddresses: true}, 2},
		{"no state", &registrytest.Server{NoState: true}, 3},
		{"mounts nothing", &registrytest.Server{NoMount: true}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := registry.PushOptions{From: func(artifacts.Digest) []string { return []string{"other/model"} }}
			dir := t.TempDir()
			w := newWorld(t, c.srv, func(o *registry.Options) { o.Journal = registry.FileJournal(dir) })
			ctx, cancel := context.WithCancelCause(context.Background())
			killed := errors.New("killed")
			n := 0
			w.srv.Before = func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method == "PATCH" {
					if n++; n == 2 {
						cancel(killed)
						cut(rw, r)
						return true
					}
				}
				return false
			}
			if _, err := w.client.Push(ctx, w.ref, w.src, w.image, from); err != killed {
				t.Fatalf("error %v", err)
			}
			if n := remembered(t, dir); n != 1 {
				t.Fatalf("%d uploads are remembered", n)
			}
			w.srv.Before = nil
			w.client = registry.New(w.opt)
			before := taken(w.srv)
			res, err := w.client.Push(context.Background(), w.ref, w.src, w.image, from)
			if err != nil {
				t.Fatal(err)
			}
			w.arrived()
			if got := taken(w.srv) - before; got != c.again {
				t.Errorf("%d pieces, want %d", got, c.again)
			}
			if c.again == 2 && res.Bytes >= 10_000 {
				t.Errorf("%d bytes were sent", res.Bytes)
			}
			if n := remembered(t, dir); n != 0 {
				t.Errorf("the journal still has %d uploads", n)
			}
		})
	}
}

// TestDamagedHere: what is damaged in the store goes nowhere.
func TestDamagedHere(t *testing.T) {
	w := newWorld(t, &registrytest.Server{})
	w.model[17] ^= 1
	_, err := w.push()
	if !errors.Is(err, artifacts.ErrCorrupt) || errors.Is(err, registry.ErrRegistry) {
		t.Fatalf("error %v", err)
	}
	if n := w.srv.Count("PUT /v2/team/tiny/manifests"); n != 0 {
		t.Error("the manifest was sent")
	}
	if _, ok := w.srv.Blob("team/tiny", w.sum); ok {
		t.Error("the blob was sent")
	}
}

// TestPushFails names what the registry says, and gives up in time.
func TestPushFails(t *testing.T) {
	for _, c := range []struct {
		name         string
		method, part string
		f            http.HandlerFunc
		want         error
		words        []string
		most         int // requests
	}{
		{"denied", "POST", "uploads", func(rw http.ResponseWriter, r *http.Request) { registrytest.Fail(rw, 403, "DENIED") },
			registry.ErrDenied, []string{"403", "DENIED", "docker login"}, 10},
		{"always 503", "POST", "uploads", func(rw http.ResponseWriter, r *http.Request) { registrytest.Fail(rw, 503, "") },
			registry.ErrRegistry, []string{"503"}, 60},
		{"wrong digest", "PUT", "uploads", func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			registrytest.Fail(rw, 400, "DIGEST_INVALID")
		}, registry.ErrRegistry, []string{"DIGEST_INVALID"}, 20},
		{"no room", "PATCH", "uploads", func(rw http.ResponseWriter, r *http.Request) { registrytest.Fail(rw, 507, "") },
			registry.ErrRegistry, []string{"507", "full"}, 20},
		{"other digest taken", "PUT", "uploads", func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			rw.Header().Set("Docker-Content-Digest", artifacts.DigestOf(nil).String())
			rw.WriteHeader(201)
		}, registry.ErrBytes, []string{"taken the blob for"}, 20},
		{"manifest refused", "PUT", "manifests", func(rw http.ResponseWriter, r *http.Request) { registrytest.Fail(rw, 400, "MANIFEST_INVALID") },
			registry.ErrRegistry, []string{"MANIFEST_INVALID"}, 20},
		{"a pause too long", "POST", "uploads", func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Retry-After", "7200")
			registrytest.Fail(rw, 429, "TOOMANYREQUESTS")
		}, registry.ErrRegistry, []string{"2h0m0s"}, 30},
		{"nowhere", "POST", "uploads", func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(202) },
			registry.ErrRegistry, []string{"no address"}, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := &registrytest.Server{Before: once(-1, c.method, c.part, c.f)}
			w := newWorld(t, srv)
			_, err := w.push()
			if !errors.Is(err, c.want) || !errors.Is(err, registry.ErrRegistry) {
				t.Fatalf("error %v", err)
			}
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is not in: %v", word, err)
				}
			}
			if n := len(srv.Log()); n > c.most {
				t.Errorf("%d requests", n)
			}
			if raw, _ := srv.Manifest("team/tiny", "v1"); raw != nil {
				t.Error("the tag is there")
			}
		})
	}
}

// TestPause: all wait as long as the registry asks, and no longer.
func TestPause(t *testing.T) {
	srv := &registrytest.Server{Before: once(1, "HEAD", "blobs", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Retry-After", "7")
		registrytest.Fail(rw, 429, "TOOMANYREQUESTS")
	})}
	w := newWorld(t, srv)
	w.pushed()
	long := 0
	for _, p := range w.pauses {
		if p > 6*time.Second && p <= 7*time.Second {
			long++
		}
	}
	if long == 0 {
		t.Errorf("pauses %v", w.pauses)
	}
}

// TestUploadElsewhere: blobs go to whatever host the registry names, and the
// credentials do not.
func TestUploadElsewhere(t *testing.T) {
	other := &registrytest.Server{}
	elsewhere := other.Start(t)
	var leaked heard
	srv := &registrytest.Server{Users: map[string]string{"me": "secret"}}
	srv.Before = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method == "POST" && r.Header.Get("Authorization") != "" {
			rw.Header().Set("Location", "http://"+elsewhere+"/v2/team/tiny/blobs/uploads/x?signature=abc")
			rw.WriteHeader(202)
			return true
		}
		return false
	}
	other.Before = func(rw http.ResponseWriter, r *http.Request) bool {
		leaked.add(r.Header.Get("Authorization"))
		b, _ := io.ReadAll(r.Body)
		d, _ := artifacts.ParseDigest(r.URL.Query().Get("digest"))
		if r.URL.Query().Get("signature") != "abc" {
			registrytest.Fail(rw, 403, "DENIED")
			return true
		}
		if r.Method == "PATCH" {
			rw.WriteHeader(405)
			return true
		}
		srv.PutBlob("team/tiny", d, b)
		rw.WriteHeader(201)
		return true
	}
	w := newWorld(t, srv, func(o *registry.Options) { o.Username, o.Password = "me", "secret" })
	w.pushed()
	if got := leaked.all(); got != "" {
		t.Errorf("the other host was told %q", got)
	}
}

package registry_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"quern/artifacts"
	"quern/artifacts/registry"
	"quern/artifacts/registry/registrytest"
)

func TestPull(t *testing.T) {
	for _, c := range []struct {
		name string
		srv  *registrytest.Server
	}{
		{"plain", &registrytest.Server{}},
		{"no HEAD", &registrytest.Server{NoHead: true}},
		{"another content type", &registrytest.Server{ContentType: "application/json"}},
		{"a content type with parameters", &registrytest.Server{ContentType: "application/vnd.oci.image.manifest.v1+json; charset=utf-8"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.srv)
			w.serve()
			d := newDest()
			res := w.pulled(d)
			if res.Fetched != res.Bytes-w.image.Size || res.Blobs != 2 {
				t.Errorf("%+v", res)
			}
			// What is there is not fetched again.
			before := w.srv.Count("GET /v2/team/tiny/blobs")
			if res = w.pulled(d); res.Fetched != 0 || w.srv.Count("GET /v2/team/tiny/blobs") != before {
				t.Errorf("again: %+v", res)
			}
		})
	}
}

// TestPullGoesOn: answers that break off, that ignore the range, and that ask for
// patience.
func TestPullGoesOn(t *testing.T) {
	part := func(n int) func(w *world) http.HandlerFunc {
		return func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				b := w.model
				if at, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
					k, _ := strconv.Atoi(strings.TrimSuffix(at, "-"))
					rw.Header().Set("Content-Range", "bytes "+at+strconv.Itoa(len(b)-1)+"/"+strconv.Itoa(len(b)))
					b = b[k:]
					rw.Header().Set("Content-Length", strconv.Itoa(len(b)))
					rw.WriteHeader(206)
				} else {
					rw.Header().Set("Content-Length", strconv.Itoa(len(b)))
				}
				rw.Write(b[:min(n, len(b))])
				rw.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(http.Flusher).Flush()
				cut(rw, r)
			}
		}
	}
	for _, c := range []struct {
		name  string
		n     int
		f     func(w *world) http.HandlerFunc
		bytes int64 // that came of the model, 0: any
	}{
		{"breaks off", 1, part(3000), 10_000},
		{"breaks off three times", 3, part(2000), 10_000},
		{"ten times, with progress", 9, part(1000), 10_000},
		{"breaks off at once", 2, part(0), 10_000},
		{"the range is ignored", 2, func(w *world) http.HandlerFunc {
			first := true
			return func(rw http.ResponseWriter, r *http.Request) {
				if first {
					first = false
					part(4000)(w)(rw, r)
					return
				}
				rw.Header().Set("Content-Length", strconv.Itoa(len(w.model)))
				rw.Write(w.model)
			}
		}, 10_000},
		{"503, 429", 2, func(w *world) http.HandlerFunc {
			status := 429
			return func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Retry-After", "1")
				registrytest.Fail(rw, status, "TOOMANYREQUESTS")
				status = 503
			}
		}, 10_000},
		{"a flipped bit", 1, func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				b := bytes.Clone(w.model)
				b[5000] ^= 4
				registrytest.ServeBlob(rw, r, b)
			}
		}, 20_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := &registrytest.Server{}
			w := newWorld(t, srv)
			w.serve()
			srv.Before = once(c.n, "GET", "/blobs/"+w.sum.String(), c.f(w))
			res := w.pulled(newDest())
			if want := c.bytes + res.Bytes - w.image.Size - 10_000; res.Fetched != want {
				t.Errorf("%d bytes came, want %d", res.Fetched, want)
			}
		})
	}
}

// TestPullResumes: what a first pull has got the second does not ask for.
func TestPullResumes(t *testing.T) {
	srv := &registrytest.Server{}
	w := newWorld(t, srv)
	w.serve()
	d := newDest()
	d.parts[w.sum] = bytes.Clone(w.model[:7000])
	res := w.pulled(d)
	if want := res.Bytes - w.image.Size - 7000; res.Fetched != want {
		t.Errorf("%d bytes came, want %d", res.Fetched, want)
	}
	// A beginning that is wrong costs everything again, and no more.
	d = newDest()
	d.parts[w.sum] = noise(7000, 9)
	if res = w.pulled(d); res.Fetched != res.Bytes-w.image.Size+3000 {
		t.Errorf("%d bytes came", res.Fetched)
	}
}

// TestPullFails: whatever the registry does, nothing wrong comes into the store.
func TestPullFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		part  string
		f     func(w *world) http.HandlerFunc
		want  error
		words []string
	}{
		{"wrong bytes twice", "/blobs/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				b := bytes.Clone(w.model)
				b[0]++
				registrytest.ServeBlob(rw, r, b)
			}
		}, registry.ErrBytes, nil},
		{"too long", "/blobs/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) { registrytest.ServeBlob(rw, r, append(w.model, 1)) }
		}, registry.ErrBytes, []string{"10001", "10000"}},
		{"too long without a length", "/blobs/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				rw.Write(w.model)
				rw.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(http.Flusher).Flush()
				rw.Write([]byte("more"))
			}
		}, registry.ErrBytes, nil},
		{"too short for ever", "/blobs/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) { registrytest.ServeBlob(rw, r, w.model[:9000]) }
		}, registry.ErrRegistry, []string{"416"}},
		{"another range", "/blobs/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Range", "bytes 5-9999/10000")
				rw.WriteHeader(206)
			}
		}, registry.ErrBytes, []string{"5-9999"}},
		{"gone", "/blobs/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) { registrytest.Fail(rw, 404, "BLOB_UNKNOWN") }
		}, registry.ErrNotFound, []string{"BLOB_UNKNOWN"}},
		{"no such tag", "/manifests/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) { registrytest.Fail(rw, 404, "MANIFEST_UNKNOWN") }
		}, registry.ErrNotFound, []string{"MANIFEST_UNKNOWN", "check the name"}},
		{"a login page", "/manifests/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", "text/html")
				rw.Write([]byte("<!DOCTYPE html><p>log in"))
			}
		}, artifacts.ErrManifest, []string{"text/html"}},
		{"another manifest than its digest says", "/manifests/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", w.image.MediaType)
				rw.Header().Set("Docker-Content-Digest", artifacts.DigestOf(nil).String())
				rw.Write([]byte(`{"schemaVersion":2}`))
			}
		}, registry.ErrBytes, nil},
		{"schema 1", "/manifests/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) { rw.Write([]byte(`{"schemaVersion":1,"layers":[]}`)) }
		}, artifacts.ErrManifest, nil},
		{"a manifest without end", "/manifests/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) { rw.Write(make([]byte, artifacts.MaxManifest+2)) }
		}, registry.ErrRegistry, []string{"longer than"}},
		{"401 without a challenge", "/manifests/", func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) { registrytest.Fail(rw, 401, "UNAUTHORIZED") }
		}, registry.ErrDenied, []string{"docker login"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := &registrytest.Server{}
			w := newWorld(t, srv)
			w.serve()
			part := c.part
			if part == "/blobs/" {
				part += w.sum.String()
			}
			srv.Before = once(-1, "GET", part, c.f(w))
			d := newDest()
			_, err := w.pull(d)
			if !errors.Is(err, c.want) || !errors.Is(err, registry.ErrRegistry) {
				t.Fatalf("error %v", err)
			}
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is not in: %v", word, err)
				}
			}
			for _, d2 := range []artifacts.Digest{w.sum, w.image.Digest} {
				if _, err := d.Stat(context.Background(), d2); !errors.Is(err, artifacts.ErrNotFound) {
					t.Errorf("%s is in the store: %v", d2, err)
				}
			}
			if n := len(srv.Log()); n > 40 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestPullByDigest: the digest of the reference is held against the bytes.
func TestPullByDigest(t *testing.T) {
	w := newWorld(t, &registrytest.Server{})
	w.serve()
	w.ref.Digest = w.image.Digest
	w.pulled(newDest())
	w.ref.Digest = artifacts.DigestOf([]byte("another"))
	raw, mediaType := w.srv.Manifest("team/tiny", "v1")
	w.srv.PutManifest("team/tiny", w.ref.Digest.String(), mediaType, raw)
	if _, err := w.pull(newDest()); !errors.Is(err, registry.ErrBytes) {
		t.Errorf("error %v", err)
	}
}

// TestStorageElsewhere: blobs come from whatever host the registry redirects to,
// and credentials do not go there, nor to a server without TLS.
func TestStorageElsewhere(t *testing.T) {
	var w *world
	var leaked heard
	storage := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		leaked.add(r.Header.Get("Authorization"))
		d, _ := artifacts.ParseDigest(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
		b, _ := w.srv.Blob("team/tiny", d)
		registrytest.ServeBlob(rw, r, b)
	}))
	defer storage.Close()
	w = newWorld(t, &registrytest.Server{Storage: storage.URL, Users: map[string]string{"me": "secret"}, Tokens: true},
		func(o *registry.Options) { o.Username, o.Password = "me", "secret" })
	w.serve()
	w.pulled(newDest())
	d := newDest()
	d.parts[w.sum] = bytes.Clone(w.model[:6000])
	if res := w.pulled(d); res.Fetched != res.Bytes-w.image.Size-6000 {
		t.Errorf("%d bytes came: the range got lost on the way", res.Fetched)
	}
	if got := leaked.all(); got != "" {
		t.Errorf("the storage was told %q", got)
	}
}

// TestReferrers: pushed and found again with the registry's own list and without.
func TestReferrers(t *testing.T) {
	for _, own := range []bool{true, false} {
		w := newWorld(t, &registrytest.Server{Referrers: own})
		w.pushed()
		empty := w.src.Add([]byte("{}"))
		signature := func(kind string) artifacts.Descriptor {
			raw := []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"` + kind + `",` +
				`"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"` + empty.String() + `","size":2},` +
				`"layers":[{"mediaType":"application/vnd.oci.empty.v1+json","digest":"` + empty.String() + `","size":2}],` +
				`"subject":{"mediaType":"` + w.image.MediaType + `","digest":"` + w.image.Digest.String() + `","size":` + strconv.FormatInt(w.image.Size, 10) + `}}`)
			return artifacts.Descriptor{MediaType: w.image.MediaType, Digest: w.src.Add(raw), Size: int64(len(raw))}
		}
		about := signature("application/x.signature")
		// Pushed twice it is there once; another one does not need the registry to
		// delete an older index.
		for _, d := range []artifacts.Descriptor{about, about, signature("application/x.sbom")} {
			if _, err := w.client.PushAbout(context.Background(), w.ref, w.src, d, registry.PushOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		list, err := w.client.Referrers(context.Background(), w.ref, w.image, "application/x.signature")
		if err != nil || len(list) != 1 || list[0].Digest != about.Digest {
			t.Errorf("own list %v: %v, %v", own, list, err)
		}
		if list, err = w.client.Referrers(context.Background(), w.ref, w.image, "application/x.other"); err != nil || len(list) != 0 {
			t.Errorf("own list %v: %v, %v", own, list, err)
		}
		tag := "sha256-" + w.image.Digest.Hex()
		if raw, _ := w.srv.Manifest("team/tiny", tag); (raw == nil) != own {
			t.Errorf("own list %v: the index under a tag has %d bytes", own, len(raw))
		}
	}
}

// TestStall: a connection over which nothing comes any more is given up, and the
// rest comes over another.
func TestStall(t *testing.T) {
	srv := &registrytest.Server{}
	w := newWorld(t, srv, func(o *registry.Options) { *o = registry.Patience(*o, 50*time.Millisecond) })
	w.serve()
	srv.Before = once(1, "GET", "/blobs/"+w.sum.String(), func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Length", "10000")
		rw.Write(w.model[:4000])
		rw.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(http.Flusher).Flush()
		<-r.Context().Done()
	})
	if res := w.pulled(newDest()); res.Fetched != res.Bytes-w.image.Size {
		t.Errorf("%d bytes came", res.Fetched)
	}
	srv.Before = once(2, "GET", "/manifests/", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Length", "300")
		rw.Write([]byte("{"))
		rw.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(http.Flusher).Flush()
		<-r.Context().Done()
	})
	w.pulled(newDest())
}

package registry_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"quern/artifacts/registry"
	"quern/artifacts/registry/registrytest"
)

// dockerConfig makes a configuration of docker's for one test.
func dockerConfig(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCredentials pushes and pulls with every kind of credentials at both kinds of
// registries.
func TestCredentials(t *testing.T) {
	users := map[string]string{"me": "secret"}
	for _, tokens := range []bool{false, true} {
		for _, how := range []string{"flags", "configuration", "helper", "wrong password", "none"} {
			t.Run(fmt.Sprintf("tokens %v, %s", tokens, how), func(t *testing.T) {
				w := newWorld(t, &registrytest.Server{Users: users, Tokens: tokens})
				works := false
				switch how {
				case "flags":
					w.opt.Username, w.opt.Password = "me", "secret"
					works = true
				case "wrong password":
					w.opt.Username, w.opt.Password = "me", "sesame"
				case "configuration":
					dockerConfig(t, fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, w.host, base64.StdEncoding.EncodeToString([]byte("me:secret"))))
					works = true
				case "helper":
					if runtime.GOOS == "windows" {
						t.Skip("a shell script stands in for the helper")
					}
					helper(t, `read -r host; echo "{\"ServerURL\":\"$host\",\"Username\":\"me\",\"Secret\":\"secret\"}"`)
					dockerConfig(t, fmt.Sprintf(`{"credHelpers":{%q:"test"}}`, w.host))
					works = true
				}
				w.client = registry.New(w.opt)
				_, err := w.push()
				if !works {
					if !errors.Is(err, registry.ErrDenied) {
						t.Errorf("error %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				w.arrived()
				w.client = registry.New(w.opt)
				w.pulled(newDest())
			})
		}
	}
}

// helper puts a credential helper of the name "test" on the path.
func helper(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// TestHelperIsAskedOnlyWhenNeeded: a registry that asks for nobody's name needs
// neither helper nor configuration.
func TestHelperIsAskedOnlyWhenNeeded(t *testing.T) {
	dockerConfig(t, `{"credsStore":"that-is-not-there"}`)
	w := newWorld(t, &registrytest.Server{})
	w.pushed()
	w = newWorld(t, &registrytest.Server{Users: map[string]string{"me": "secret"}})
	if _, err := w.push(); err == nil || !strings.Contains(err.Error(), "docker's configuration") || !strings.Contains(err.Error(), "--username") {
		t.Errorf("error %v", err)
	}
}

// TestNoTokenWithoutTLS: nothing goes over HTTP unless that was agreed on, whatever
// an answer says.
func TestNoTokenWithoutTLS(t *testing.T) {
	var got heard
	plain := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { got.add(r.Method + r.Header.Get("Authorization")) }))
	defer plain.Close()
	for _, c := range []struct {
		name string
		f    http.HandlerFunc
	}{
		{"realm", func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("WWW-Authenticate", `Bearer realm="`+plain.URL+`/token",service="x"`)
			rw.WriteHeader(401)
		}},
		{"redirect", func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, plain.URL+"/v2/x", http.StatusTemporaryRedirect)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewTLSServer(c.f)
			defer srv.Close()
			host := strings.TrimPrefix(srv.URL, "https://")
			secure := false
			opt := registry.Transport(registry.Options{Username: "me", Password: "secret", PlainHTTP: &secure}, srv.Client().Transport)
			ref, err := registry.ParseRef(host + "/a/b:c")
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := registry.New(opt).Manifest(context.Background(), ref); !errors.Is(err, registry.ErrRegistry) {
				t.Errorf("error %v", err)
			}
		})
	}
	if got := got.all(); got != "" {
		t.Errorf("the plain server got %q", got)
	}
}

// TestPlainHTTP: registries of this machine are spoken to over HTTP unless it is
// forbidden.
func TestPlainHTTP(t *testing.T) {
	w := newWorld(t, &registrytest.Server{})
	secure := false
	w.opt.PlainHTTP = &secure
	w.client = registry.New(w.opt)
	if _, err := w.push(); err == nil || !strings.Contains(err.Error(), "--plain-http") {
		t.Errorf("error %v", err)
	}
}

func TestParseRef(t *testing.T) {
	sum := "sha256:" + strings.Repeat("ab", 32)
	for _, c := range []struct{ in, host, repo, tag, out string }{
		{"localhost:5000/a/b:v1", "localhost:5000", "a/b", "v1", ""},
		{"localhost/a", "localhost", "a", "latest", "localhost/a:latest"},
		{"[::1]:5000/a:V_1.x", "[::1]:5000", "a", "V_1.x", ""},
		{"reg.example/ns/a_b--c__d:x", "reg.example", "ns/a_b--c__d", "x", ""},
		{"reg.example/a@" + sum, "reg.example", "a", "", ""},
		{"reg.example/a:v1@" + sum, "reg.example", "a", "v1", ""},
		{"oci://reg.example/a:v1", "reg.example", "a", "v1", "reg.example/a:v1"},
	} {
		r, err := registry.ParseRef(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if c.out == "" {
			c.out = c.in
		}
		if r.Host != c.host || r.Repository != c.repo || r.Tag != c.tag || r.String() != c.out {
			t.Errorf("%s: %+v, %s", c.in, r, r)
		}
	}
	for _, bad := range []string{
		"", "tiny", "ns/tiny:v1", "http://reg.example/a", "reg.example/A:v1", "reg.example/a:" + strings.Repeat("t", 129),
		"reg.example/a:-x", "reg.example/", "reg.example/a@sha256:12", "reg.example/a@sha512:" + strings.Repeat("ab", 64), "reg.example/a b", "reg.example//a",
		"reg.example/a:-x@" + sum, "reg.example/a:v1@sha256:" + strings.Repeat("0", 64),
	} {
		if r, err := registry.ParseRef(bad); !errors.Is(err, registry.ErrRef) {
			t.Errorf("%q: %+v, %v", bad, r, err)
		}
	}
}

func FuzzParseRef(f *testing.F) {
	f.Add("localhost:5000/a/b:v1@sha256:" + strings.Repeat("ab", 32))
	f.Add("oci://[::1]:5000/a")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := registry.ParseRef(s)
		if err != nil {
			return
		}
		again, err := registry.ParseRef(r.String())
		if err != nil || again != r {
			t.Errorf("%q is %+v, and that is %+v: %v", s, r, again, err)
		}
	})
}

// TestProxyEndsTLS: a registry behind a proxy calls itself http. It is the same
// host, so the blob goes there over HTTPS as before.
func TestProxyEndsTLS(t *testing.T) {
	w := newWorld(t, &registrytest.Server{})
	srv := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.srv.ServeHTTP(&absolute{rw, "http://" + r.Host}, r)
	}))
	defer srv.Close()
	w.opt = registry.Transport(w.opt, srv.Client().Transport)
	secure := false
	w.opt.PlainHTTP = &secure
	w.client = registry.New(w.opt)
	w.ref.Host = strings.TrimPrefix(srv.URL, "https://")
	w.pushed()
	w.pulled(newDest())
}

// absolute puts the scheme and host before the path of an answer's Location.
type absolute struct {
	http.ResponseWriter
	host string
}

func (a *absolute) WriteHeader(code int) {
	if l := a.Header().Get("Location"); strings.HasPrefix(l, "/") {
		a.Header().Set("Location", a.host+l)
	}
	a.ResponseWriter.WriteHeader(code)
}

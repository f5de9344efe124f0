package sink_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"quern/artifacts/sink"
	"quern/artifacts/sink/sinktest"
)

// server is a place on an HTTP server.
type server struct {
	*sinktest.Server
	url string
	opt sink.Options
}

const remote = "/models/a model.gguf"

func serve(t *testing.T, s *sinktest.Server) server {
	t.Helper()
	return server{s, s.Start(t), sink.Options{Chunk: 2048}}
}

func (s server) Open(t *testing.T) sink.Sink {
	t.Helper()
	return sinktest.Open(t, s.url+strings.ReplaceAll(remote, " ", "%20"), s.opt)
}

func (s server) Read(_ *testing.T, name string) ([]byte, bool) {
	return s.File("/models/" + name)
}

func (s server) Write(_ *testing.T, name string, b []byte) { s.Put("/models/"+name, b) }

func TestHTTP(t *testing.T) {
	for _, c := range []struct {
		name   string
		traits sinktest.Traits
		make   func() *sinktest.Server
	}{
		{"WebDAV with parts and digests", sinktest.Traits{Late: true, Unproved: true}, func() *sinktest.Server {
			return &sinktest.Server{DAV: true, Parts: true, Digests: true}
		}},
		{"WebDAV with parts", sinktest.Traits{Late: true, Unproved: true}, func() *sinktest.Server {
			return &sinktest.Server{DAV: true, Parts: true}
		}},
		{"WebDAV", sinktest.Traits{NoParts: true}, func() *sinktest.Server {
			return &sinktest.Server{DAV: true}
		}},
		{"plain, parts", sinktest.Traits{Late: true, Unproved: true, Direct: true}, func() *sinktest.Server {
			return &sinktest.Server{Parts: true}
		}},
		{"plain", sinktest.Traits{NoParts: true, Direct: true}, func() *sinktest.Server {
			return &sinktest.Server{}
		}},
		{"plain, refuses parts", sinktest.Traits{NoParts: true, Direct: true}, func() *sinktest.Server {
			return &sinktest.Server{Refuse: true, Digests: true}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sinktest.Run(t, c.traits, func(t *testing.T) sinktest.Place { return serve(t, c.make()) })
		})
	}
}

// TestHTTPBreaks ends connections on the server's side.
func TestHTTPBreaks(t *testing.T) {
	data := sinktest.Content(300_000)
	for _, parts := range []bool{true, false} {
		for _, at := range []int64{1, 150_000, 299_999} {
			s := serve(t, &sinktest.Server{DAV: true, Parts: parts, Digests: true, BreakAt: at, Breaks: 2})
			s.opt.Chunk = 100_000
			send := &sinktest.Send{Data: data}
			if err := send.Run(t.Context(), s.Open(t)); err != nil {
				t.Errorf("parts %v, at %d: %v", parts, at, err)
				continue
			}
			if b, ok := s.File(remote); !ok || !bytes.Equal(b, data) || len(s.Paths()) != 1 {
				t.Errorf("parts %v, at %d: %d bytes, %q", parts, at, len(b), s.Paths())
			}
		}
	}
}

// TestHTTPGoesOn: what a break left is not sent again.
func TestHTTPGoesOn(t *testing.T) {
	data := sinktest.Content(300_000)
	s := serve(t, &sinktest.Server{DAV: true, Parts: true, BreakAt: 150_000, Breaks: 1})
	s.opt.Chunk = 100_000
	if err := (&sinktest.Send{Data: data}).Run(t.Context(), s.Open(t)); err != nil {
		t.Fatal(err)
	}
	want := "PUT " + remote + ".quern-part bytes 150000-249999/300000"
	if !slices.Contains(s.Log, want) {
		t.Errorf("no request %q:\n%s", want, strings.Join(s.Log, "\n"))
	}
}

func TestHTTPAnswers(t *testing.T) {
	for _, c := range []struct {
		s     *sinktest.Server
		want  error
		says  string
		tries bool // it is tried again
	}{
		{&sinktest.Server{Status: []int{503, 502, 429}}, nil, "", true},
		{&sinktest.Server{Status: []int{403}}, sink.ErrRefused, "403", false},
		{&sinktest.Server{Status: []int{413}}, sink.ErrRefused, "413", false},
		{&sinktest.Server{Status: []int{507}}, sink.ErrNoSpace, "507", false},
		{&sinktest.Server{Status: []int{409}}, sink.ErrRefused, "is the folder there?", false},
		{&sinktest.Server{Status: []int{302}}, sink.ErrRefused, "give the address that it leads to", false},
		{&sinktest.Server{DAV: true, Quota: 9_999}, sink.ErrNoSpace, "10000 bytes are to be sent and 9999 are free", false},
		{&sinktest.Server{DAV: true, Quota: 10_000}, nil, "", false},
		{&sinktest.Server{Auth: "Bearer secret"}, sink.ErrRefused, "QUERN_PUT_TOKEN", false},
		{&sinktest.Server{NoGet: true}, nil, "cannot be looked at", false},
	} {
		s := serve(t, c.s)
		send := &sinktest.Send{Data: sinktest.Content(10_000)}
		err := send.Run(t.Context(), s.Open(t))
		if !errors.Is(err, c.want) || c.want != nil && !strings.Contains(err.Error(), c.says) || c.tries != (send.Pauses > 0) {
			t.Errorf("%s: %v after %d pauses", c.says, err, send.Pauses)
		}
		if c.want == nil && c.says != "" && !strings.Contains(strings.Join(send.Said, "\n"), c.says) {
			t.Errorf("%s: said %q", c.says, send.Said)
		}
	}
}

// TestCredentials stay with the host that they are for, and out of every message.
func TestCredentials(t *testing.T) {
	data := sinktest.Content(200_000)
	other := serve(t, &sinktest.Server{})
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:s3cret"))
	first := serve(t, &sinktest.Server{Auth: basic, Redirect: other.url})
	target := strings.Replace(first.url, "://", "://me:s3cret@", 1) + "/x?sig=s3cret"
	send := &sinktest.Send{Data: data}
	sk := sinktest.Open(t, target, sink.Options{})
	err := send.Run(t.Context(), sk)
	// The other host has the file; the first one cannot show it.
	if b, ok := other.File("/x"); !ok || !bytes.Equal(b, data) {
		t.Errorf("%d bytes went where the redirect leads: %v", len(b), err)
	}
	if len(other.Leaks) > 0 {
		t.Errorf("the other host was told %q", other.Leaks)
	}
	all := sk.String() + strings.Join(send.Said, "\n")
	if err != nil {
		all += err.Error()
	}
	if strings.Contains(all, "s3cret") {
		t.Errorf("a secret is shown: %s", all)
	}
	// The same with a target that nobody answers at.
	send = &sinktest.Send{Data: data}
	err = send.Run(t.Context(), sinktest.Open(t, "http://me:s3cret@127.0.0.1:1/x?sig=s3cret", sink.Options{Token: "s3cret"}))
	if err == nil || strings.Contains(err.Error()+strings.Join(send.Said, ""), "s3cret") {
		t.Errorf("%v: %q", err, send.Said)
	}
}

func TestToken(t *testing.T) {
	s := serve(t, &sinktest.Server{Auth: "Bearer abc", DAV: true, Parts: true})
	s.opt.Token = "abc"
	if err := (&sinktest.Send{Data: sinktest.Content(5000)}).Run(t.Context(), s.Open(t)); err != nil {
		t.Error(err)
	}
}

// TestRedirects are followed five times, also when a file is sent, and then no more.
func TestRedirects(t *testing.T) {
	data := sinktest.Content(200_000)
	for _, n := range []int{1, 5, 6, 1000} {
		s := &sinktest.Server{}
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var k int
			if _, err := fmt.Sscanf(r.URL.Path, "/%d", &k); r.Method == http.MethodPut && err == nil && k < n {
				http.Redirect(w, r, fmt.Sprint("/", k+1), http.StatusTemporaryRedirect)
				return
			}
			s.ServeHTTP(w, r)
		}))
		err := (&sinktest.Send{Data: data}).Run(t.Context(), sinktest.Open(t, ts.URL+"/0", sink.Options{}))
		ts.Close()
		got, ok := s.File(fmt.Sprint("/", n))
		switch {
		case n <= 5 && (err != nil || !bytes.Equal(got, data)):
			t.Errorf("%d redirects: %v, %d bytes arrived", n, err, len(got))
		case n > 5 && (!errors.Is(err, sink.ErrRefused) || !errors.Is(err, sink.ErrTarget) || ok):
			t.Errorf("%d redirects: %v, a file: %v", n, err, ok)
		}
	}
}

// TestDowngrade: https is not given up for http.
func TestDowngrade(t *testing.T) {
	plain := serve(t, &sinktest.Server{})
	ts := httptest.NewTLSServer(http.RedirectHandler(plain.url+"/x", http.StatusTemporaryRedirect))
	defer ts.Close()
	sk := sinktest.Open(t, ts.URL+"/x", sink.Options{})
	sink.Trust(sk, ts.Client())
	err := (&sinktest.Send{Data: []byte("abc")}).Run(t.Context(), sk)
	if !errors.Is(err, sink.ErrRefused) || len(plain.Log) > 0 {
		t.Errorf("%v: %q", err, plain.Log)
	}
}

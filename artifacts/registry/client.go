package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	orasregistry "oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
)

// Options change how a client works. The zero value is right for most.
type Options struct {
	// PlainHTTP chooses HTTP or HTTPS; nil means HTTP for this machine's own
	// registries and HTTPS for all others.
	PlainHTTP *bool
	UserAgent string
	// Username and Password are for the registry of a reference alone. With an
	// empty Username docker's configuration is asked.
	Username, Password string
	// Chunk is the length of the pieces of an upload, in bytes; 0 means 64 MiB.
	// What is not longer than one goes in one request.
	Chunk int64
	// Journal, if set, remembers uploads across processes.
	Journal Journal
	// Say is told what the user should know; nil drops it.
	Say func(string)
	// Progress is told how many bytes of how many there are; it may be called by
	// several goroutines.
	Progress func(done, total int64)

	// What follows is for tests.
	sleep     func(context.Context, time.Duration) error
	transport http.RoundTripper
	stall     time.Duration
}

const (
	defaultChunk = 64 << 20
	maxRedirects = 8
	// parallel is how many blobs are on their way at a time.
	parallel = 3
)

// Client talks to registries. It is safe for several goroutines.
type Client struct {
	opt   Options
	cache auth.Cache
	base  http.RoundTripper
	// docker reads docker's configuration when a registry first asks who we are.
	docker func() (credentials.Store, error)
}

// New makes a client. It sends nothing and reads no configuration yet.
func New(opt Options) *Client {
	if opt.Chunk <= 0 {
		opt.Chunk = defaultChunk
	}
	if opt.Say == nil {
		opt.Say = func(string) {}
	}
	if opt.Progress == nil {
		opt.Progress = func(int64, int64) {}
	}
	if opt.stall == 0 {
		opt.stall = stall
	}
	if opt.sleep == nil {
		opt.sleep = sleep
	}
	base := opt.transport
	if base == nil {
		base = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout:   20 * time.Second,
			ExpectContinueTimeout: 2 * time.Second,
			MaxIdleConnsPerHost:   2 * parallel,
			IdleConnTimeout:       60 * time.Second,
			ResponseHeaderTimeout: 10 * time.Minute, // registries hash and move a blob before they answer
			DisableCompression:    true,
			WriteBufferSize:       256 << 10,
			ReadBufferSize:        256 << 10,
		}
	}
	return &Client{
		opt: opt, cache: auth.NewCache(), base: &retrier{next: base, sleep: opt.sleep, say: opt.Say},
		docker: sync.OnceValues(func() (credentials.Store, error) {
			return credentials.NewStoreFromDocker(credentials.StoreOptions{})
		}),
	}
}

// place is a repository with the ways to talk to it.
type place struct {
	c     *Client
	ref   Ref
	plain bool
	oras  *remote.Repository
	authc *auth.Client
	bare  *http.Client // for addresses of other hosts: it knows no credentials
}

// at makes the ways to talk to a repository.
func (c *Client) at(ref Ref) *place {
	p := &place{c: c, ref: ref, plain: isLoopback(ref.Host)}
	if c.opt.PlainHTTP != nil {
		p.plain = *c.opt.PlainHTTP
	}
	p.bare = &http.Client{Transport: guard{c.base, p.plain}, CheckRedirect: p.checkRedirect}
	p.authc = &auth.Client{
		Client: p.bare, Cache: c.cache, ClientID: "quern",
		Header:     http.Header{"User-Agent": {c.opt.UserAgent}},
		Credential: c.credential(ref.Host),
	}
	p.oras = &remote.Repository{
		Client: p.authc, PlainHTTP: p.plain, ReferrerListMaxPages: 64,
		SkipReferrersGC: true, // most registries delete nothing: an index that is out of date may stay
		Reference:       orasregistry.Reference{Registry: ref.Host, Repository: ref.Repository},
	}
	return p
}

// credential gives user and password to the registry of the reference alone;
// docker's configuration is asked about whatever host wants to know.
func (c *Client) credential(host string) auth.CredentialFunc {
	if c.opt.Username != "" {
		return auth.StaticCredential(host, auth.Credential{Username: c.opt.Username, Password: c.opt.Password})
	}
	return func(ctx context.Context, hostport string) (auth.Credential, error) {
		s, err := c.docker()
		if err != nil {
			return auth.EmptyCredential, fmt.Errorf("docker's configuration: %w", err)
		}
		cred, err := credentials.Credential(s)(ctx, hostport)
		if err != nil {
			return cred, fmt.Errorf("docker's configuration: credentials of %s: %w; --username and --password-stdin do without it", hostport, err)
		}
		return cred, nil
	}
}

// checkRedirect follows to any host, but never from HTTPS to HTTP and never as
// another request than the first. oras-go has taken the credentials off by then
// if the address is of another origin.
func (p *place) checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case req.Method != first.Method:
		return fmt.Errorf("a redirect of a %s that would make it a %s", first.Method, req.Method)
	case req.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https":
		return errors.New("a redirect from https to " + req.URL.Scheme)
	}
	if req.URL.Host != first.URL.Host || req.URL.Scheme != first.URL.Scheme {
		req.Header.Del("Authorization")
	}
	return nil
}

// guard sends nothing over plain HTTP that was not to go so, whatever an answer
// said: no token to a realm, no blob to an upload's address.
type guard struct {
	next  http.RoundTripper
	plain bool
}

func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !g.plain {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, fmt.Errorf("the registry leads to %s://%s, and only https was agreed on", req.URL.Scheme, req.URL.Host)
	}
	return g.next.RoundTrip(req)
}

// url is an address of the repository's API.
func (p *place) url(rest string) *url.URL {
	scheme := "https"
	if p.plain {
		scheme = "http"
	}
	host := p.oras.Reference.Host() // docker.io is called otherwise
	return &url.URL{Scheme: scheme, Host: host, Path: "/v2/" + p.ref.Repository + "/" + rest}
}

// request makes a request with what every one carries.
func request(ctx context.Context, method string, u *url.URL, body io.Reader, length int64) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, errors.New("the address that the registry gave cannot be used")
	}
	req.Header.Set("Accept-Encoding", "identity")
	if body != nil {
		req.ContentLength = length
	} else if method == http.MethodPost || method == http.MethodPut {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	return req, nil
}

// do sends a request: with credentials to the registry itself, without any to
// other hosts.
func (p *place) do(req *http.Request, actions ...string) (*http.Response, error) {
	own := p.url("")
	if req.URL.Host != own.Host || req.URL.Scheme != own.Scheme {
		req.Header.Set("User-Agent", p.c.opt.UserAgent)
		return p.bare.Do(req)
	}
	ctx := auth.AppendRepositoryScope(req.Context(), p.oras.Reference, actions...)
	return p.authc.Do(req.WithContext(ctx))
}

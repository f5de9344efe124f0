package hubtest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

// Options are the hub's lasting habits; the zero value is the public one's.
type Options struct {
	// PageSize of trees; 0 means 1000 as on the public hub.
	PageSize int
	// LinkHost makes the Link to the next page name another host, as mirrors
	// do ("https://huggingface.co").
	LinkHost string
	// DirectGit answers 200 for files in git without the redirect.
	DirectGit bool
	// AbsoluteRename redirects renamed repositories with an absolute 308.
	AbsoluteRename bool
	// SignedUses limits how often a signed address works; 0 means always.
	SignedUses int
	// NoXet leaves out the Xet headers.
	NoXet bool
	// NoTree answers 404 to the tree call, as some mirrors do.
	NoTree bool
	// Tokens are the known ones and the private or gated repositories they
	// open.
	Tokens map[string][]string
	// HubAddr and CDNAddr are where to listen; empty means any free port of
	// 127.0.0.1, and of 127.0.0.2 where that exists.
	HubAddr, CDNAddr string
}

// Hub is a running hub.
type Hub struct {
	opt Options
	// URL is the hub's address, CDNURL the storage host's, HostileURL that of
	// a host that must never get a token.
	URL, CDNURL, HostileURL string

	servers []*httptest.Server
	log     log
	ids     atomic.Int64
	done    chan struct{}

	mu      sync.Mutex
	repos   map[string]*Repo
	renamed map[string]string
	faults  []*Fault
	signed  map[string]*signature
	signs   int
}

// TB is the part of testing.TB that New uses.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// New starts a hub that ends with the test. Violations of the token rules
// fail the test.
func New(tb TB, opt Options, repos ...*Repo) *Hub {
	tb.Helper()
	h, err := Start(opt, repos...)
	if err != nil {
		tb.Fatalf("start the test hub: %v", err)
	}
	tb.Cleanup(func() {
		h.Close()
		for _, v := range h.Violations() {
			tb.Errorf("hub: %s", v)
		}
	})
	return h
}

// Start starts a hub that runs until Close.
func Start(opt Options, repos ...*Repo) (*Hub, error) {
	if opt.PageSize <= 0 {
		opt.PageSize = 1000
	}
	h := &Hub{opt: opt, repos: map[string]*Repo{}, renamed: map[string]string{}, signed: map[string]*signature{}, done: make(chan struct{})}
	for _, r := range repos {
		h.repos[r.ID] = r
	}
	var err error
	for _, s := range []struct {
		url     *string
		addrs   []string
		handler http.HandlerFunc
	}{
		{&h.URL, []string{opt.HubAddr, "127.0.0.1:0"}, h.serveHub},
		{&h.CDNURL, []string{opt.CDNAddr, "127.0.0.2:0", "127.0.0.1:0"}, h.serveCDN},
		{&h.HostileURL, []string{"127.0.0.1:0"}, h.serveHostile},
	} {
		if *s.url, err = h.listen(s.addrs, s.handler); err != nil {
			h.Close()
			return nil, err
		}
	}
	return h, nil
}

func (h *Hub) listen(addrs []string, handler http.Handler) (string, error) {
	var last error
	for i, a := range addrs {
		if a == "" {
			continue
		}
		l, err := net.Listen("tcp", a)
		if err != nil {
			last = err
			if i == 0 {
				break // asked for by name
			}
			continue
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler, ErrorLog: quiet()}}
		s.Start()
		h.servers = append(h.servers, s)
		return s.URL, nil
	}
	return "", last
}

// Close stops the hub.
func (h *Hub) Close() {
	select {
	case <-h.done:
		return
	default:
		close(h.done)
	}
	for _, s := range h.servers {
		s.CloseClientConnections()
		s.Close()
	}
}

// Add adds a repository.
func (h *Hub) Add(r *Repo) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repos[r.ID] = r
}

// Rename makes requests for the old name redirect to the new one.
func (h *Hub) Rename(old, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renamed[old] = id
}

func (h *Hub) repo(id string) (*Repo, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.repos[id], h.renamed[id]
}

// call is a request with what its path says.
type call struct {
	h        *Hub
	w        http.ResponseWriter
	r        *http.Request
	kind     Kind
	repo     string
	rev      string
	path     string
	prefix   string // of the path, up to the repository
	rest     string // of the path, after the repository
	fault    *Fault
	id       string
	token    string
	hasToken bool
}

func (h *Hub) serveHub(w http.ResponseWriter, r *http.Request) {
	c := route(r)
	c.h = h
	c.id = fmt.Sprintf("Root=1-%08x", h.ids.Add(1))
	if v := r.Header.Get("Authorization"); v != "" {
		c.token, c.hasToken = strings.TrimPrefix(v, "Bearer "), true
	}
	entry := &Request{Kind: c.kind, Method: r.Method, URL: r.URL.RequestURI(), Path: c.path, Range: r.Header.Get("Range"), Auth: r.Header.Get("Authorization"), Header: r.Header.Clone()}
	h.log.add(entry)
	c.w = &recorder{w, &h.log, entry}
	c.r = r
	c.w.Header().Set("X-Request-Id", c.id)
	c.rateLimit()
	c.fault = h.faultFor(c.kind, r, c.path)
	if c.fault.replaced(c.w, r) {
		return
	}
	c.fault.headers(c.w)
	switch c.kind {
	case Info, Tree, PathsInfo, Refs, XetToken:
		c.api()
	case Resolve, ResolveCache, Raw:
		c.content()
	default:
		c.fail(http.StatusNotFound, "", "Sorry, we can't find the page you are looking for.")
	}
}

// rateLimit is on every answer of the public hub.
func (c *call) rateLimit() {
	class := "api"
	if c.kind == Resolve || c.kind == ResolveCache || c.kind == Raw {
		class = "resolvers"
	}
	c.w.Header().Set("RateLimit", fmt.Sprintf("%q;r=2999;t=299", class))
	c.w.Header().Set("RateLimit-Policy", fmt.Sprintf("\"fixed window\";%q;q=3000;w=300", class))
}

// route reads the path. It works on the escaped form: a revision's own slash
// is %2F there.
func route(r *http.Request) *call {
	c := &call{kind: Unknown}
	p := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(p, "/api/models/"); ok {
		c.prefix = "/api/models/"
		c.routeAPI(rest)
		return c
	}
	if rest, ok := strings.CutPrefix(p, "/api/resolve-cache/models/"); ok {
		seg := strings.Split(rest, "/")
		for n := 1; n <= 2 && len(seg) > n+1; n++ {
			if s := unescape(seg[n]); len(s) == 40 {
				c.kind, c.repo, c.rev, c.path = ResolveCache, unescape(strings.Join(seg[:n], "/")), s, unescape(strings.Join(seg[n+1:], "/"))
				return c
			}
		}
		return c
	}
	c.prefix = "/"
	seg := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for n := 1; n <= 2 && len(seg) > n+2; n++ {
		if k := Kind(seg[n]); k == Resolve || k == Raw {
			c.kind, c.repo, c.rev = k, unescape(strings.Join(seg[:n], "/")), unescape(seg[n+1])
			c.path = unescape(strings.Join(seg[n+2:], "/"))
			c.rest = "/" + strings.Join(seg[n:], "/")
			return c
		}
	}
	return c
}

func (c *call) routeAPI(rest string) {
	seg := strings.Split(rest, "/")
	for n := 1; n <= 2 && len(seg) > n; n++ {
		k := Kind(seg[n])
		if k == "revision" {
			k = Info
		}
		switch k {
		case Info, Tree, PathsInfo, Refs, XetToken:
			c.kind, c.repo = k, unescape(strings.Join(seg[:n], "/"))
			c.rest = "/" + strings.Join(seg[n:], "/")
			c.rev = "main"
			if len(seg) > n+1 {
				c.rev = unescape(seg[n+1])
			}
			if len(seg) > n+2 {
				c.path = unescape(strings.Join(seg[n+2:], "/"))
			}
			return
		}
	}
	if len(seg) <= 2 {
		c.kind, c.repo, c.rev = Info, unescape(rest), "main"
	}
}

func unescape(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

package hub

import (
	"net/http"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Client speaks to one hub. It is safe for use by several goroutines; its
// connection limit and its pauses hold over all that is opened through it.
type Client struct {
	opt   Options
	end   *url.URL
	slots *semaphore.Weighted
	gates gates

	mu     sync.Mutex
	warned map[string]bool // topics of X-HF-Warning already shown
}

// New checks the options and makes a Client. It sends nothing.
func New(opt Options) (*Client, error) {
	o, end, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Client{
		opt:    o,
		end:    end,
		slots:  semaphore.NewWeighted(int64(o.Concurrency)),
		warned: map[string]bool{},
	}, nil
}

// Close gives up idle connections. Snapshots and files are closed on their own.
func (c *Client) Close() {
	if t, ok := c.opt.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Endpoint is the hub's address without a trailing slash.
func (c *Client) Endpoint() string { return c.end.String() }

func (c *Client) event(e Event) { c.opt.Events(e) }

// address builds a URL below the endpoint from parts that are escaped already.
func (c *Client) address(escaped string) (*url.URL, error) {
	return url.Parse(c.end.String() + escaped)
}

// escapeSegments escapes each part of a file path and keeps the slashes.
func escapeSegments(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// origin is scheme, host and port with the default port written out.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// tokenHost reports whether the token may go to u: the endpoint itself, scheme
// and port included, or the public hub over https.
func (c *Client) tokenHost(u *url.URL) bool {
	switch o := origin(u); o {
	case origin(c.end), "https://huggingface.co:443", "https://hf.co:443":
		return true
	}
	return false
}

func (c *Client) hostAllowed(u *url.URL) bool {
	if len(c.opt.AllowHosts) == 0 || origin(u) == origin(c.end) {
		return true
	}
	name := strings.ToLower(u.Hostname())
	for _, h := range c.opt.AllowHosts {
		h = strings.ToLower(h)
		if h == name || h == strings.ToLower(u.Host) || strings.HasPrefix(h, ".") && strings.HasSuffix(name, h) {
			return true
		}
	}
	return false
}

// serverWarning passes X-HF-Warning on, once a topic.
func (c *Client) serverWarning(h http.Header) {
	for _, v := range h.Values("X-HF-Warning") {
		topic, text, ok := strings.Cut(v, ";")
		if !ok {
			topic, text = "", v
		}
		topic = strings.TrimSpace(topic)
		c.mu.Lock()
		seen := c.warned[topic] || len(c.warned) >= 100
		c.warned[topic] = true
		c.mu.Unlock()
		if !seen {
			c.event(Event{Kind: EventWarning, What: clean(topic), Text: clean(text)})
		}
	}
}

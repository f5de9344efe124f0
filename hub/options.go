package hub

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

// Options configure a Client. The zero value reads the public hub anonymously,
// without a cache, into memory.
type Options struct {
	// Endpoint is the hub's address; empty means DefaultEndpoint. A path
	// after the host is kept in front of every request path.
	Endpoint string
	// Token goes to the endpoint and the known hub hosts only, never to the
	// hosts that files are redirected to.
	Token string
	// Offline makes every request an ErrOffline.
	Offline bool
	// CacheDirs are Hugging Face cache folders ("hub" folders), read in this
	// order and never written. Missing ones are no error.
	CacheDirs []string
	// SpoolDir holds fetched ranges between runs. Empty keeps them in memory
	// only, at most Memory bytes.
	SpoolDir string
	// Memory bounds buffered bytes when SpoolDir is empty; 0 means 64 MiB.
	Memory int64
	// Concurrency is the number of connections in use at once, over all
	// snapshots of the client; 0 means 8.
	Concurrency int
	// AllowHosts, when not empty, are the only hosts besides the endpoint's
	// that may be contacted. A leading dot allows sub-domains.
	AllowHosts []string
	// Transport carries the requests; nil means one with proxies from the
	// environment. It must not follow redirects or keep cookies.
	Transport http.RoundTripper
	// MetadataTimeout bounds the wait for a metadata answer's header,
	// DownloadTimeout the wait for a header or for the next bytes of a file;
	// 0 means 10 s each.
	MetadataTimeout, DownloadTimeout time.Duration
	// MaxWait bounds the time one request may spend on retries and on pauses
	// that the server asks for; 0 means 15 minutes.
	MaxWait time.Duration
	// UserAgent is sent with each request; empty means "quern".
	UserAgent string
	// Events receives warnings and progress notes; it may be called from
	// several goroutines at once.
	Events func(Event)
	// Clock replaces the system's for waits between retries.
	Clock Clock

	// hooks let tests put faults under the spool.
	hooks hooks
}

// Clock tells the time and waits. Sleep returns the cause when ctx ends first.
type Clock interface {
	Now() time.Time
	Sleep(ctx context.Context, d time.Duration) error
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// EventKind says what an Event is about.
type EventKind string

// The kinds of events.
const (
	EventRetry    EventKind = "retry"    // a request failed and will be sent again
	EventPause    EventKind = "pause"    // the server asked for a pause
	EventWarning  EventKind = "warning"  // a warning of the server or about its answer
	EventFallback EventKind = "fallback" // a cached revision is used instead of the server's
	EventRefetch  EventKind = "refetch"  // bytes are dropped and fetched again
	EventRepair   EventKind = "repair"   // damaged bytes were found and replaced
	EventCache    EventKind = "cache"    // a cached file is not used, and why
)

// Event is a note for logs. It never holds a token or a signed URL.
type Event struct {
	Kind EventKind
	What string
	Text string
	Wait time.Duration
}

const (
	defaultMemory      = 64 << 20
	defaultConcurrency = 8
	defaultTimeout     = 10 * time.Second
	defaultMaxWait     = 15 * time.Minute
)

// withDefaults fills the zero fields and checks the rest.
func (o Options) withDefaults() (Options, *url.URL, error) {
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	end, err := parseEndpoint(o.Endpoint)
	if err != nil {
		return o, nil, err
	}
	if err := checkToken(o.Token); err != nil {
		return o, nil, err
	}
	if o.Memory <= 0 {
		o.Memory = defaultMemory
	}
	o.Memory = max(o.Memory, 1<<20)
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.MetadataTimeout <= 0 {
		o.MetadataTimeout = defaultTimeout
	}
	if o.DownloadTimeout <= 0 {
		o.DownloadTimeout = defaultTimeout
	}
	if o.MaxWait <= 0 {
		o.MaxWait = defaultMaxWait
	}
	if o.UserAgent == "" {
		o.UserAgent = "quern (" + runtime.GOOS + "; " + runtime.GOARCH + ")"
	}
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	if o.Transport == nil {
		o.Transport = newTransport(o.Concurrency)
	}
	o.hooks = o.hooks.withDefaults()
	return o, end, nil
}

func newTransport(concurrency int) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = http.ProxyFromEnvironment
	t.DisableCompression = true
	t.MaxIdleConnsPerHost = concurrency
	t.MaxResponseHeaderBytes = 256 << 10
	return t
}

func parseEndpoint(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(s), "/"))
	switch {
	case err != nil:
		// The parser's message would repeat the address with any password.
		return nil, fmt.Errorf("%w: the endpoint is not a URL", ErrOptions)
	case u.User != nil:
		return nil, fmt.Errorf("%w: endpoint %s holds a user name or password; give a token instead", ErrOptions, redact(u))
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("%w: endpoint %q: want http://HOST or https://HOST", ErrOptions, redact(u))
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("%w: endpoint %s: no query or fragment allowed", ErrOptions, redact(u))
	}
	return u, nil
}

// checkToken refuses what cannot be a header value, before net/http does so
// with a less helpful message.
func checkToken(token string) error {
	for i := 0; i < len(token); i++ {
		if token[i] <= ' ' || token[i] >= 0x7f {
			return &Error{Kind: ErrBadToken, Hint: fmt.Sprintf("character %d of the token is a space, a line break or not ASCII; copy it again", i+1)}
		}
	}
	return nil
}

// redact writes a URL without anything that may be secret.
func redact(u *url.URL) string {
	if u == nil {
		return ""
	}
	c := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	s := clean(c.String())
	if u.RawQuery != "" {
		s += "?..."
	}
	return s
}

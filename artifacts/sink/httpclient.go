package sink

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

// newHTTPClient follows no redirect by itself: the rules are redirect's.
func newHTTPClient() *http.Client {
	tr := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   20 * time.Second,
		ExpectContinueTimeout: 2 * time.Second,
		MaxIdleConnsPerHost:   2,
		DisableCompression:    true,
		WriteBufferSize:       256 << 10,
	}
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// maxRedirects bounds a chain.
const maxRedirects = 5

// request makes a request with what every one carries. The credentials go to the
// target's own scheme, host and port, and to nobody else.
func (s *httpSink) request(ctx context.Context, method string, u *url.URL, head http.Header, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, errors.New("the address cannot be used")
	}
	for k, v := range head {
		req.Header[k] = v
	}
	req.Header.Set("Accept-Encoding", "identity")
	if s.opt.UserAgent != "" {
		req.Header.Set("User-Agent", s.opt.UserAgent)
	}
	if s.auth != "" && u.Scheme == s.base.Scheme && strings.EqualFold(u.Host, s.base.Host) {
		req.Header.Set("Authorization", s.auth)
	}
	return req, nil
}

// send makes a small request and drains the answer's body. Redirects that keep
// method and body are followed.
func (s *httpSink) send(ctx context.Context, method string, u *url.URL, head http.Header, body *strings.Reader) (*http.Response, error) {
	for range maxRedirects + 1 {
		var r io.Reader
		if body != nil {
			body.Seek(0, io.SeekStart)
			r = body
		}
		req, err := s.request(ctx, method, u, head, r)
		if err != nil {
			return nil, err
		}
		res, err := s.httpc.Do(req)
		if err != nil {
			return nil, netFault(ctx, err)
		}
		keepText(res)
		next, err := s.redirect(res, u, method)
		if err != nil || next == nil {
			return res, err
		}
		u = next
	}
	return nil, fmt.Errorf("%w: more than %d redirects", ErrRefused, maxRedirects)
}

// keepText ends an answer and keeps the beginning of its body, which says why
// where it is an error.
func keepText(res *http.Response) {
	text, _ := io.ReadAll(io.LimitReader(res.Body, 2048)) // only to be shown
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(text))
}

// get reads a body.
func (s *httpSink) get(ctx context.Context, u *url.URL) (*http.Response, io.ReadCloser, error) {
	for range maxRedirects + 1 {
		req, err := s.request(ctx, http.MethodGet, u, nil, nil)
		if err != nil {
			return nil, nil, err
		}
		res, err := s.httpc.Do(req)
		if err != nil {
			return nil, nil, netFault(ctx, err)
		}
		next, err := s.redirect(res, u, http.MethodGet)
		if err != nil || next == nil {
			return res, res.Body, err
		}
		res.Body.Close()
		u = next
	}
	return nil, nil, fmt.Errorf("%w: more than %d redirects", ErrRefused, maxRedirects)
}

// errRedirected is why a PUT starts over at another address.
var errRedirected = errors.New("redirected")

// put sends one body. A redirect is remembered, and what has been sent of the body
// is sent again.
func (s *httpSink) put(ctx context.Context, name string, head http.Header, body io.Reader) error {
	u := s.at(name)
	length, err := strconv.ParseInt(head.Get("Content-Length"), 10, 64)
	if err != nil {
		return err
	}
	req, err := s.request(ctx, http.MethodPut, u, head, body)
	if err != nil {
		return err
	}
	req.Header.Del("Content-Length")
	req.ContentLength = length
	req.Header.Set("Content-Type", "application/octet-stream")
	if length > 1<<16 {
		req.Header.Set("Expect", "100-continue") // a refusal comes before the bytes
	}
	res, err := s.httpc.Do(req)
	if err != nil {
		return netFault(ctx, err)
	}
	keepText(res)
	next, err := s.redirect(res, u, http.MethodPut)
	if err != nil {
		return err
	}
	if next != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.hops++; s.hops > maxRedirects {
			return fmt.Errorf("%w: more than %d redirects", ErrRefused, maxRedirects)
		}
		s.moved[name] = next
		return &restart{fmt.Errorf("%w to %s", errRedirected, showURL(next))}
	}
	if res.StatusCode/100 != 2 {
		return s.refusal(res)
	}
	return nil
}

// redirect gives the next address of an answer, nil when there is none. 307 and
// 308 keep the method; 301, 302 and 303 do so only for requests without a body.
func (s *httpSink) redirect(res *http.Response, from *url.URL, method string) (*url.URL, error) {
	reads := method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
	switch res.StatusCode {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if !reads {
			return nil, fmt.Errorf("%w: %s of a %s; give the address that it leads to", ErrRefused, res.Status, method)
		}
	default:
		return nil, nil
	}
	next, err := from.Parse(res.Header.Get("Location"))
	if err != nil || next.Host == "" {
		return nil, fmt.Errorf("%w: a redirect to nowhere", ErrRefused)
	}
	if next.Scheme != "https" && next.Scheme != from.Scheme || next.Scheme != "http" && next.Scheme != "https" {
		return nil, fmt.Errorf("%w: a redirect from %s to %s", ErrRefused, from.Scheme, next.Scheme)
	}
	next.User = nil
	return next, nil
}

// refusal is the error of an answer.
func (s *httpSink) refusal(res *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(res.Body, 512)) // only to be shown
	why := fmt.Errorf("the server answers %s", res.Status)
	if t := strings.TrimSpace(string(bytes.ToValidUTF8(text, []byte("?")))); t != "" && !strings.Contains(t, "<") {
		why = fmt.Errorf("%w%s", why, said(t))
	}
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		if s.auth == "" {
			return fmt.Errorf("%w: %w; give user and password in the address, or a token in QUERN_PUT_TOKEN", ErrRefused, why)
		}
		return fmt.Errorf("%w: %w", ErrRefused, why)
	case http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %w; it takes no file of this length", ErrRefused, why)
	case http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %w", ErrNoSpace, why)
	case http.StatusConflict:
		return fmt.Errorf("%w: %w; is the folder there?", ErrRefused, why)
	case http.StatusRequestedRangeNotSatisfiable:
		// A request that broke off may still have been at work on the file after we
		// had looked: look again.
		return Passing(why)
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Passing(why)
	}
	return fmt.Errorf("%w: %w", ErrRefused, why)
}

// netFault takes the address out of an error of the network: its query may be a
// secret.
func netFault(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return Passing(err)
}

// quota asks a WebDAV folder for its free bytes (RFC 4331).
func (s *httpSink) quota(ctx context.Context) (int64, error) {
	u := *s.base
	u.Path, u.RawPath = path.Dir(u.Path)+"/", ""
	if u.Path == "//" {
		u.Path = "/"
	}
	const ask = `<?xml version="1.0"?><D:propfind xmlns:D="DAV:"><D:prop><D:quota-available-bytes/></D:prop></D:propfind>`
	req, err := s.request(ctx, "PROPFIND", &u, http.Header{"Depth": {"0"}, "Content-Type": {"application/xml"}}, strings.NewReader(ask))
	if err != nil {
		return 0, err
	}
	res, err := s.httpc.Do(req)
	if err != nil {
		return 0, netFault(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusMultiStatus {
		return 0, errors.ErrUnsupported
	}
	dec := xml.NewDecoder(io.LimitReader(res.Body, 1<<20))
	for {
		tok, err := dec.Token()
		if err != nil {
			return 0, errors.ErrUnsupported
		}
		if el, ok := tok.(xml.StartElement); ok && el.Name.Space == "DAV:" && el.Name.Local == "quota-available-bytes" {
			var text string
			if dec.DecodeElement(&text, &el) != nil {
				return 0, errors.ErrUnsupported
			}
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil || n < 0 {
				return 0, errors.ErrUnsupported
			}
			return n, nil
		}
	}
}

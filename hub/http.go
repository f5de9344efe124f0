package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// counters are what Stats reports about requests.
type counters struct {
	requests, retries, fetched atomic.Int64
}

// request is one GET, before redirects.
type request struct {
	url *url.URL
	// auth allows the token, if the host may have it.
	auth bool
	// rng is a Range header value, ifRange the validator for it.
	rng, ifRange string
	timeout      time.Duration
	op           *operation
}

// operation is one logical request with its retries: it bounds them in number
// and in time and counts for Stats.
type operation struct {
	what    string
	attempt int
	start   time.Time
	count   *counters
	// own asks the hub for an address of one's own: the kept one was refused,
	// and so may be the next that another worker is given.
	own bool
}

func (c *Client) newOperation(what string, count *counters) *operation {
	if count == nil {
		count = new(counters)
	}
	return &operation{what: what, start: c.opt.Clock.Now(), count: count}
}

// backoff is the wait after the first, second, ... failure when the server
// asks for none. Its length is the number of retries.
var backoff = [...]time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second}

func (op *operation) wait() time.Duration { return backoff[min(op.attempt, len(backoff)-1)] }

// again reports whether a failure may be tried again and counts it.
func (c *Client) again(op *operation, err error) bool {
	var e *Error
	if !errors.As(err, &e) || !retryable(e) || op.attempt >= len(backoff) {
		return false
	}
	if c.opt.Clock.Now().Sub(op.start) > c.opt.MaxWait {
		return false
	}
	op.attempt++
	op.count.retries.Add(1)
	c.event(Event{Kind: EventRetry, What: op.what, Text: e.Error()})
	return true
}

func retryable(e *Error) bool {
	switch e.Status {
	case 0:
		return e.Kind == ErrNetwork && !permanent(e.Err)
	case http.StatusRequestTimeout, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// permanent finds failures that a retry cannot cure: certificates, an address
// that speaks another protocol, a name that does not exist.
func permanent(err error) bool {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	return errors.As(err, &cert) || errors.As(err, &record) ||
		errors.As(err, &dns) && dns.IsNotFound ||
		err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

var errStall = errors.New("nothing came within the time limit")

// roundTrip sends one request and returns the answer's header. The body holds
// a connection slot until it is closed and fails when the server stalls.
func (c *Client) roundTrip(ctx context.Context, q request) (*http.Response, error) {
	fail := func(kind error, err error, hint string) error {
		return &Error{Kind: kind, What: q.op.what, URL: redact(q.url), Err: err, Hint: hint}
	}
	if c.opt.Offline {
		return nil, fail(ErrOffline, nil, "run once without offline mode (HF_HUB_OFFLINE, --offline)")
	}
	if !c.hostAllowed(q.url) {
		return nil, fail(ErrHost, nil, "add it to the list of allowed hosts if it is trusted")
	}
	g := c.gates.of(q.url.Host)
	probe, err := g.enter(ctx, c.opt.Clock, q.op.start.Add(c.opt.MaxWait))
	if err != nil {
		return nil, about(q.op.what, err)
	}
	if err := c.slots.Acquire(ctx, 1); err != nil {
		g.done(probe, false)
		return nil, context.Cause(ctx)
	}
	rctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(q.timeout, func() { cancel(errStall) })
	release := sync.OnceFunc(func() {
		timer.Stop()
		cancel(context.Canceled)
		c.slots.Release(1)
	})
	q.op.count.requests.Add(1)
	res, err := c.opt.Transport.RoundTrip(c.prepare(rctx, q))
	timer.Stop()
	if err != nil {
		// The cause must be read before release cancels with its own.
		stalled := errors.Is(context.Cause(rctx), errStall)
		release()
		if ctx.Err() != nil {
			g.done(probe, false)
			return nil, context.Cause(ctx)
		}
		if stalled {
			err = fmt.Errorf("no answer within %v", q.timeout)
		}
		e := fail(ErrNetwork, plainCause(err), "check the connection, the proxy settings and the endpoint").(*Error)
		if permanent(e.Err) {
			g.done(probe, true)
		} else {
			c.pause(q.url.Host, q.op.wait())
			g.done(probe, false)
		}
		return nil, e
	}
	c.serverWarning(res.Header)
	if troubled(res.StatusCode) {
		wait, asked := retryWait(res.Header, c.opt.Clock.Now())
		if !asked {
			wait = q.op.wait()
		}
		c.pause(q.url.Host, wait)
		g.done(probe, false)
	} else {
		g.done(probe, true)
	}
	res.Body = &body{rc: res.Body, ctx: rctx, outer: ctx, timer: timer, stall: q.timeout, release: release}
	return res, nil
}

// troubled statuses say that the host wants fewer requests, not that this one
// was wrong.
func troubled(status int) bool { return retryable(&Error{Status: status}) }

func (c *Client) pause(host string, wait time.Duration) {
	c.gates.of(host).close(c.opt.Clock.Now(), wait)
	c.event(Event{Kind: EventPause, What: host, Text: "pause before the next request", Wait: wait})
}

func (c *Client) prepare(ctx context.Context, q request) *http.Request {
	// User information in a redirect would become an Authorization header.
	u := *q.url
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	h := http.Header{
		"Accept":          {"*/*"},
		"Accept-Encoding": {"identity"},
		"User-Agent":      {c.opt.UserAgent},
	}
	if q.rng != "" {
		h["Range"] = []string{q.rng}
		if q.ifRange != "" {
			h["If-Range"] = []string{q.ifRange}
		}
	}
	if q.auth && c.opt.Token != "" && c.tokenHost(&u) {
		h["Authorization"] = []string{"Bearer " + c.opt.Token}
	}
	r := &http.Request{Method: http.MethodGet, URL: &u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	return r.WithContext(ctx)
}

// plainCause drops wrappers whose text repeats the URL with its signature.
func plainCause(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return plainCause(ue.Err)
	}
	return err
}

// body fails when no byte comes within the stall limit.
type body struct {
	rc      io.ReadCloser
	ctx     context.Context // of the request; its cause says whether it stalled
	outer   context.Context
	timer   *time.Timer
	stall   time.Duration
	release func()
}

func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.rc.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		switch {
		case b.outer.Err() != nil:
			err = context.Cause(b.outer)
		case errors.Is(context.Cause(b.ctx), errStall):
			err = fmt.Errorf("%w of %v", errStall, b.stall)
		default:
			err = plainCause(err)
		}
	}
	return n, err
}

func (b *body) Close() error {
	// Cancel first: closing would otherwise read on to reuse the connection.
	b.release()
	return b.rc.Close()
}

// discard reads a short body to its end so that the connection can be used
// again, and closes it.
func discard(res *http.Response) {
	io.CopyN(io.Discard, res.Body, 4<<10)
	if b, ok := res.Body.(*body); ok {
		b.rc.Close()
		b.release()
		return
	}
	res.Body.Close()
}

package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// attempts is how often a small request is made in all.
	attempts = 5
	// maxPause is the longest pause that a registry may ask for.
	maxPause = 5 * time.Minute
	// smallBody is the longest body that is simply sent again. Pieces of blobs
	// are the upload's own business.
	smallBody = 64 << 10
)

// retrier makes small requests again that failed for a passing reason. When a
// registry asks for a pause all requests wait, so that none prolongs it.
type retrier struct {
	next  http.RoundTripper
	sleep func(context.Context, time.Duration) error
	say   func(string)

	answered atomic.Bool

	mu    sync.Mutex
	until time.Time
}

func (r *retrier) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		if err := r.wait(req.Context()); err != nil {
			return nil, err
		}
		if try > 1 && req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			again := req.Clone(req.Context())
			again.Body = body
			req = again
		}
		res, err := r.next.RoundTrip(req)
		again := try < attempts && req.Context().Err() == nil && (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil && req.ContentLength <= smallBody)
		var pause time.Duration
		switch {
		case err != nil:
			again = again && !permanent(err, r.answered.Load())
			pause = backoff(try)
		case !passing(res.StatusCode):
			r.answered.Store(true)
			return res, nil
		default:
			pause = backoff(try)
			if asked, ok := retryAfter(res.Header.Get("Retry-After")); ok {
				if asked > maxPause {
					res.Body.Close()
					return nil, fmt.Errorf("the registry answers %s and asks to wait %v; try again then", res.Status, asked.Round(time.Second))
				}
				pause = max(asked, 0)
				r.hold(pause)
			}
		}
		if !again {
			return res, err
		}
		if err == nil {
			r.say(fmt.Sprintf("the registry answers %s; trying again in %v", res.Status, pause.Round(time.Millisecond)))
			io.Copy(io.Discard, io.LimitReader(res.Body, 4<<10))
			res.Body.Close()
		}
		if err := r.sleep(req.Context(), pause); err != nil {
			return nil, err
		}
	}
}

// hold makes all requests wait.
func (r *retrier) hold(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := time.Now().Add(d); t.After(r.until) {
		r.until = t
	}
}

func (r *retrier) wait(ctx context.Context) error {
	r.mu.Lock()
	d := time.Until(r.until)
	r.mu.Unlock()
	if d <= 0 {
		return nil
	}
	return r.sleep(ctx, d)
}

// passing reports whether a status may be another one later.
func passing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// backoff is the pause after a failed try: half a second, doubled each time.
func backoff(try int) time.Duration {
	return min(time.Second/2<<min(try-1, 10), 20*time.Second)
}

// retryAfter reads seconds or a date.
func retryAfter(s string) (time.Duration, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 && n < 1<<30 {
		return time.Duration(n) * time.Second, true
	}
	if t, err := http.ParseTime(s); err == nil {
		return time.Until(t), true
	}
	return 0, false
}

// permanent knows errors of the connection that time does not heal. Nobody at an
// address is one only until somebody has answered there.
func permanent(err error, answered bool) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &certificate), errors.As(err, &record), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return true
	case errors.As(err, &dns) && dns.IsNotFound, errors.Is(err, syscall.ECONNREFUSED):
		return !answered
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

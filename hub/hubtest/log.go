package hubtest

import (
	"fmt"
	"net/http"
	"sync"
)

// Request is one request that the hub got.
type Request struct {
	Kind   Kind
	Method string
	// URL is the escaped path with the query.
	URL string
	// Path is the file's path in the repository.
	Path   string
	Range  string
	Auth   string // Authorization
	Header http.Header
	Status int
	Bytes  int64 // of the body, as written
}

type log struct {
	mu         sync.Mutex
	requests   []*Request
	violations []string
}

func (l *log) add(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, r)
}

func (l *log) violate(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violations = append(l.violations, fmt.Sprintf(format, args...))
}

// Requests lists what came so far, in order of arrival.
func (h *Hub) Requests() []Request {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	out := make([]Request, len(h.log.requests))
	for i, r := range h.log.requests {
		out[i] = *r
	}
	return out
}

// ResetLog forgets the requests so far.
func (h *Hub) ResetLog() {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	h.log.requests = nil
}

// Count is the number of requests of a kind (Any: all) for a path (empty:
// all).
func (h *Hub) Count(kind Kind, path string) int {
	n := 0
	for _, r := range h.Requests() {
		if (kind == Any || r.Kind == kind) && (path == "" || r.Path == path) {
			n++
		}
	}
	return n
}

// Sent is the number of body bytes written for a file's content (empty: all
// files).
func (h *Hub) Sent(path string) int64 {
	var n int64
	for _, r := range h.Requests() {
		if (r.Kind == CDN || r.Kind == ResolveCache || r.Kind == Resolve && r.Status < 300) && (path == "" || r.Path == path) {
			n += r.Bytes
		}
	}
	return n
}

// Violations lists breaches of the token rules.
func (h *Hub) Violations() []string {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	return append([]string(nil), h.log.violations...)
}

// recorder counts what is written.
type recorder struct {
	http.ResponseWriter
	l   *log
	req *Request
}

func (r *recorder) WriteHeader(status int) {
	r.l.mu.Lock()
	if r.req.Status == 0 {
		r.req.Status = status
	}
	r.l.mu.Unlock()
	r.ResponseWriter.WriteHeader(status)
}

// Write counts before it writes: a client that has got the bytes must find
// them counted.
func (r *recorder) Write(p []byte) (int, error) {
	r.count(len(p))
	n, err := r.ResponseWriter.Write(p)
	r.count(n - len(p))
	return n, err
}

func (r *recorder) count(n int) {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if r.req.Status == 0 {
		r.req.Status = http.StatusOK
	}
	r.req.Bytes += int64(n)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

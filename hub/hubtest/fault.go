package hubtest

import (
	"math"
	"net/http"
	"strings"
)

// Kind says which part of the hub a request is for.
type Kind string

// The kinds of requests.
const (
	Any          Kind = ""
	Info         Kind = "info" // api/models/.../revision
	Tree         Kind = "tree"
	PathsInfo    Kind = "paths-info"
	Refs         Kind = "refs"
	XetToken     Kind = "xet-read-token"
	Resolve      Kind = "resolve"
	ResolveCache Kind = "resolve-cache"
	Raw          Kind = "raw"
	CDN          Kind = "cdn"
	Hostile      Kind = "hostile"
	Unknown      Kind = "unknown"
)

// Fault changes the answers to some requests. The first fault that matches and
// is not used up is applied.
type Fault struct {
	// On, Method and Path choose requests; empty ones match all. Path is the
	// file's path in the repository.
	On     Kind
	Method string
	Path   string
	// Covering, when above 0, matches only requests for a range that has the
	// byte at Covering-1, and those without a range.
	Covering int64
	// Skip matching requests are left alone first; then Times are hit, 0
	// meaning one and -1 all that follow.
	Skip, Times int

	// Status replaces the answer by an error or redirect with these.
	Status        int
	Code, Message string
	Location      string
	Body          string
	ContentType   string
	// Header is added to whatever is answered; an empty value removes.
	Header map[string]string

	// The rest changes how content is sent.

	IgnoreRange bool
	// After CutAfter bytes of the body, Cut breaks the connection and Stall
	// stops sending until the client goes away.
	CutAfter int64
	Cut      bool
	Stall    bool
	// Stalled is called when that point is reached.
	Stalled func()
	// Hold is called there too, and sending goes on when it returns.
	Hold func()
	// Chunked sends no Content-Length; Drop bytes fewer, or Extra bytes more
	// than promised are sent then, and the body ends normally.
	Chunked     bool
	Drop, Extra int64
	Gzip        bool
	// Flip inverts the byte at a file offset (plus one, so that the zero
	// value flips nothing).
	Flip int64
	// ETag, ContentRange and Multipart lie about the content.
	ETag         string
	ContentRange string
	Multipart    bool
	// ZeroLength says Content-Length: 0 on HEAD.
	ZeroLength bool

	seen int
}

// match counts a matching request and reports whether it is hit.
func (f *Fault) match(kind Kind, r *http.Request, path string) bool {
	if f.On != Any && f.On != kind || f.Method != "" && f.Method != r.Method || f.Path != "" && f.Path != path {
		return false
	}
	if f.Covering > 0 {
		if lo, hi, ok := parseRange(r.Header.Get("Range"), math.MaxInt64); ok && (f.Covering <= lo || f.Covering > hi) {
			return false
		}
	}
	f.seen++
	n := f.seen - f.Skip
	times := f.Times
	if times == 0 {
		times = 1
	}
	return n > 0 && (times < 0 || n <= times)
}

// Inject adds faults; earlier ones go first.
func (h *Hub) Inject(faults ...Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range faults {
		f := faults[i]
		h.faults = append(h.faults, &f)
	}
}

// ClearFaults removes all faults.
func (h *Hub) ClearFaults() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = nil
}

func (h *Hub) faultFor(kind Kind, r *http.Request, path string) *Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.faults {
		if f.match(kind, r, path) {
			c := *f
			return &c
		}
	}
	return nil
}

// replaced answers with the fault's own status, if it has one.
func (f *Fault) replaced(w http.ResponseWriter, r *http.Request) bool {
	if f == nil || f.Status == 0 {
		return false
	}
	f.headers(w)
	if f.Code != "" {
		w.Header().Set("X-Error-Code", f.Code)
	}
	if f.Message != "" {
		w.Header().Set("X-Error-Message", f.Message)
	}
	if f.Location != "" {
		w.Header().Set("Location", f.Location)
	}
	ct := f.ContentType
	if ct == "" {
		ct = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", ct)
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		w.Write([]byte(f.Body))
	}
	return true
}

func (f *Fault) headers(w http.ResponseWriter) {
	if f == nil {
		return
	}
	for k, v := range f.Header {
		if v == "" {
			w.Header()[http.CanonicalHeaderKey(k)] = nil
			continue
		}
		for _, part := range strings.Split(v, "\n") {
			w.Header().Add(k, part)
		}
	}
}

package hub

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// locator finds and checks the bytes of one remote file. The signed address
// that the hub redirects to is kept and used until it is refused; the file's
// identity never depends on it.
type locator struct {
	c     *Client
	what  string
	start *url.URL
	count *counters
	// hub demands the headers of a hub; commit and digest are what they must
	// agree with.
	hub    bool
	commit string
	digest Digest
	// page allows HTML, for files that are HTML by name.
	page bool

	turn chan struct{} // held while the address is resolved

	mu       sync.Mutex
	loc      *url.URL
	locAuth  bool
	size     int64             // -1 unknown
	tags     map[string]string // strong ETag by host
	modified string            // Last-Modified of a url source
	noRange  bool
}

func (c *Client) newLocator(what string, start *url.URL, size int64, count *counters) *locator {
	return &locator{c: c, what: what, start: start, size: size, count: count, turn: make(chan struct{}, 1), tags: map[string]string{}}
}

var (
	// errStale: the kept address was refused; a fresh one may work.
	errStale = errors.New("the link to the file was refused")
	// errTag: the ETag is not that of the parts before.
	errTag = errors.New("the ETag changed between two parts")
	// errIgnored: the server sent the whole file where a far part was asked.
	errIgnored = errors.New("the server ignores Range")
)

// part is an answer to a range request: the body's first byte is file byte
// lo, and the server promised to send up to hi.
type part struct {
	*answer
	lo, hi int64
}

// knownSize is the file's length, -1 when not known yet.
func (l *locator) knownSize() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

func (l *locator) ignoresRange() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noRange
}

// forgetTags starts the file over: what was fetched before is dropped.
func (l *locator) forgetTags() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loc, l.modified = nil, ""
	clear(l.tags)
}

// open asks for bytes [lo, hi); hi < 0 means to the end.
func (l *locator) open(ctx context.Context, op *operation, lo, hi int64) (*part, error) {
	q := request{timeout: l.c.opt.DownloadTimeout, op: op}
	l.mu.Lock()
	kept := l.loc
	if op.own {
		kept = nil
	}
	q.url, q.auth = kept, l.locAuth
	whole := lo == 0 && (hi < 0 || hi == l.size)
	if !l.noRange && !(whole && l.size >= 0) {
		q.rng = rangeHeader(lo, hi)
	}
	if !l.hub {
		q.ifRange = l.validator()
	}
	l.mu.Unlock()
	if kept == nil {
		return l.resolve(ctx, q, lo, hi)
	}
	a, err := l.c.follow(ctx, q)
	if err != nil {
		return nil, err
	}
	switch a.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone, http.StatusBadRequest:
		l.forget(kept)
		discard(a.Response)
		return nil, errStale
	}
	return l.check(a, lo, hi, true)
}

// resolve asks the hub for the file. One worker does so at a time: the others
// use the address that it finds.
func (l *locator) resolve(ctx context.Context, q request, lo, hi int64) (*part, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l.mu.Lock()
	found := l.loc != nil && !q.op.own
	l.mu.Unlock()
	if found {
		<-l.turn
		return l.open(ctx, q.op, lo, hi)
	}
	defer func() { <-l.turn }()
	q.url, q.auth = l.start, true
	a, err := l.c.follow(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := l.checkHub(a); err != nil {
		a.Body.Close()
		return nil, err
	}
	p, err := l.check(a, lo, hi, false)
	if err == nil {
		l.mu.Lock()
		l.loc, l.locAuth = a.url, a.auth
		l.mu.Unlock()
	}
	return p, err
}

func (l *locator) forget(u *url.URL) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loc == u {
		l.loc = nil
	}
}

// checkHub compares what the hub says about the file with the pinned listing.
func (l *locator) checkHub(a *answer) error {
	if !l.hub || a.StatusCode >= 400 && a.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		return nil
	}
	fail := func(kind, err error, hint string) error {
		return &Error{Kind: kind, What: l.what, URL: redact(l.start), RequestID: requestID(a.Header), Err: err, Hint: hint}
	}
	switch {
	case a.commit == "":
		return fail(ErrNotHub, errors.New("the answer lacks X-Repo-Commit"), "check the endpoint (HF_ENDPOINT) and any proxy in the way")
	case a.commit != l.commit:
		return fail(ErrChanged, fmt.Errorf("asked for commit %s, got %s", l.commit, clean(a.commit)), "")
	case l.digest.Algorithm == SHA256 && isHex(a.linkedTag, 64) && a.linkedTag != l.digest.Hex:
		return fail(ErrChanged, fmt.Errorf("the listing has %s, the server now says sha256:%s", l.digest, a.linkedTag), "")
	}
	return nil
}

// check accepts an answer only if it is exactly what was asked for.
func (l *locator) check(a *answer, lo, hi int64, kept bool) (*part, error) {
	close := func(err error) (*part, error) {
		a.Body.Close()
		return nil, err
	}
	switch a.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
	case http.StatusRequestedRangeNotSatisfiable:
		return close(l.unsatisfied(a, lo))
	default:
		if a.foreign && l.hub && a.StatusCode < 500 && !retryable(&Error{Status: a.StatusCode}) {
			discard(a.Response)
			return nil, fmt.Errorf("%w (HTTP %d from %s)", errStale, a.StatusCode, a.url.Host)
		}
		return nil, l.c.classify(a, l.what)
	}
	if enc := a.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") || a.Uncompressed {
		return close(l.fault(ErrEncoding, a, fmt.Errorf("Content-Encoding %q", clean(enc)), "a proxy or mirror changes the files; use another one"))
	}
	mt, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	switch {
	case mt == "text/html" && !l.page:
		return close(l.fault(ErrHTML, a, nil, "a login page, a captive portal or a wrong address; open it in a browser"))
	case strings.HasPrefix(mt, "multipart/"):
		return close(l.fault(ErrRange, a, fmt.Errorf("Content-Type %s", clean(mt)), ""))
	}
	if err := l.checkTag(a); err != nil {
		return close(err)
	}
	p := &part{answer: a}
	var err error
	if a.StatusCode == http.StatusOK {
		err = l.full(p, lo, hi)
	} else {
		err = l.partial(p, lo, hi)
	}
	if err != nil {
		return close(err)
	}
	return p, nil
}

// full accepts a 200: the body is the whole file from byte 0.
func (l *locator) full(p *part, lo, hi int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := p.ContentLength
	// A length of 0 with a body to come is how some mirrors say "unknown".
	if n > 0 || n == 0 && l.size == 0 {
		if l.size >= 0 && n != l.size {
			return l.wrongTotal(p.answer, n)
		}
		l.size = n
	}
	p.lo, p.hi = 0, l.size
	if lo > 0 || hi >= 0 && hi != l.size {
		l.noRange = true
	}
	return nil
}

// partial accepts a 206 that starts where we asked and ends there or before.
func (l *locator) partial(p *part, lo, hi int64) error {
	cr, err := parseContentRange(p.Header.Get("Content-Range"))
	switch {
	case err != nil:
		return l.fault(ErrRange, p.answer, err, "")
	case cr.Unsatisfied:
		return l.fault(ErrRange, p.answer, errors.New("no range in a 206"), "")
	case cr.Start != lo, hi >= 0 && cr.End >= hi:
		return l.fault(ErrRange, p.answer, fmt.Errorf("asked for %s, got bytes %d-%d", rangeHeader(lo, hi), cr.Start, cr.End), "")
	case p.ContentLength >= 0 && p.ContentLength != cr.End-cr.Start+1:
		return l.fault(ErrRange, p.answer, fmt.Errorf("Content-Length %d for bytes %d-%d", p.ContentLength, cr.Start, cr.End), "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if cr.Total >= 0 {
		if l.size >= 0 && cr.Total != l.size {
			return l.wrongTotal(p.answer, cr.Total)
		}
		l.size = cr.Total
	}
	p.lo, p.hi = lo, cr.End+1
	return nil
}

// unsatisfied reads a 416. Past the end of an empty file it tells the size;
// with another total the link leads to another object, an error page perhaps.
func (l *locator) unsatisfied(a *answer, lo int64) error {
	cr, err := parseContentRange(a.Header.Get("Content-Range"))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loc = nil
	if err == nil && cr.Unsatisfied {
		if l.size < 0 && lo >= cr.Total {
			l.size = cr.Total
			return errPastEnd
		}
		if l.size >= 0 && cr.Total != l.size {
			return l.wrongTotal(a, cr.Total)
		}
	}
	return fmt.Errorf("%w (HTTP 416)", errStale)
}

// errPastEnd: the size was not known and the range lies after the end.
var errPastEnd = errors.New("range after the end of the file")

// wrongTotal is called with l.mu held.
func (l *locator) wrongTotal(a *answer, got int64) error {
	l.loc = nil
	return &Error{Kind: ErrSize, What: l.what, URL: redact(a.url), Status: a.StatusCode, RequestID: requestID(a.Header),
		Err: fmt.Errorf("expected %d bytes, the server has %d", l.size, got)}
}

func (l *locator) fault(kind error, a *answer, err error, hint string) error {
	return &Error{Kind: kind, What: l.what, URL: redact(a.url), Status: a.StatusCode, RequestID: requestID(a.Header), Err: err, Hint: hint}
}

// checkTag keeps the first strong ETag of each host and refuses another one.
// Hosts differ: a second storage host has its own tag for the same bytes.
func (l *locator) checkTag(a *answer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	tag, weak := parseETag(a.Header.Get("ETag"))
	if tag == "" || weak {
		// Of a url source the date is better than nothing.
		date := clean(a.Header.Get("Last-Modified"))
		if !l.hub && date != "" {
			if l.modified != "" && l.modified != date {
				return errTag
			}
			l.modified = date
		}
		return nil
	}
	host := a.url.Host
	if len(tag) > 256 {
		return nil
	}
	if old := l.tags[host]; old != "" && old != tag {
		return errTag
	}
	l.tags[host] = tag
	return nil
}

// validator is what If-Range sends to the kept address: its strong ETag, else
// the date. It is called with l.mu held.
func (l *locator) validator() string {
	if l.loc == nil {
		return ""
	}
	if tag := l.tags[l.loc.Host]; tag != "" {
		return `"` + tag + `"`
	}
	return l.modified
}

func rangeHeader(lo, hi int64) string {
	if hi < 0 {
		return fmt.Sprintf("bytes=%d-", lo)
	}
	return fmt.Sprintf("bytes=%d-%d", lo, hi-1)
}

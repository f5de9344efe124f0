package sink

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"

	"quern/internal/digest"
)

// httpSink sends by PUT. What a server can do beyond that is found out by asking
// and, for parts of files, by trying on a name of our own:
//
//	MOVE (WebDAV)                  a temporary name, then a rename; else the final name
//	PUT with Content-Range         parts, so that a break costs one part at most
//	Want-Repr-Digest, Want-Digest  the server's own SHA-256; else the file is read back
//	quota-available-bytes          free space
type httpSink struct {
	base  *url.URL
	opt   Options
	auth  string // for base's host alone
	httpc *http.Client

	mu     sync.Mutex
	probed bool
	move   bool
	dav    bool
	parts  int                 // 0 unknown, 1 yes, -1 no
	moved  map[string]*url.URL // where redirects led, by name
	hops   int                 // how many PUTs met
}

const defaultChunk = 64 << 20

func newHTTP(t Target, opt Options) (Sink, error) {
	s := &httpSink{opt: opt, moved: map[string]*url.URL{}}
	u := *t.URL
	switch {
	case u.User != nil:
		pass, _ := u.User.Password()
		s.auth = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+pass))
		u.User = nil
	case opt.Token != "":
		s.auth = "Bearer " + opt.Token
	}
	if s.opt.Chunk <= 0 {
		s.opt.Chunk = defaultChunk
	}
	s.base = &u
	s.httpc = newHTTPClient()
	return s, nil
}

func (s *httpSink) String() string { return showURL(s.base) }
func (s *httpSink) Name() string   { return path.Base(s.base.Path) }

// Temp is a name of its own only where the server renames.
func (s *httpSink) Temp() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.move {
		return s.Name() + TempSuffix
	}
	return s.Name()
}

func (s *httpSink) Close() error {
	s.httpc.CloseIdleConnections()
	return nil
}

// at is the address of a name beside the target.
func (s *httpSink) at(name string) *url.URL {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.moved[name]; u != nil {
		return u
	}
	if name == s.Name() {
		return s.base
	}
	u := *s.base
	u.Path, u.RawPath = path.Join(path.Dir(u.Path), name), ""
	return &u
}

// probe asks once what the server can do.
func (s *httpSink) probe(ctx context.Context) error {
	s.mu.Lock()
	done := s.probed
	s.mu.Unlock()
	if done {
		return nil
	}
	res, err := s.send(ctx, http.MethodOptions, s.base, nil, nil)
	if err != nil && (IsPassing(err) || ctx.Err() != nil) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probed = true
	if err == nil && res.StatusCode < 300 {
		s.dav = res.Header.Get("DAV") != ""
		allow := strings.ToUpper(strings.Join(res.Header.Values("Allow"), ","))
		s.move = strings.Contains(allow, "MOVE") || s.dav && allow == ""
	}
	return nil
}

// Stat is part of Sink.
func (s *httpSink) Stat(ctx context.Context, name string) (int64, error) {
	if err := s.probe(ctx); err != nil {
		return 0, err
	}
	res, err := s.send(ctx, http.MethodHead, s.at(name), nil, nil)
	if err != nil {
		return 0, err
	}
	switch {
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusGone:
		return 0, ErrNotExist
	case res.StatusCode == http.StatusMethodNotAllowed || res.StatusCode == http.StatusNotImplemented:
		return 0, errors.ErrUnsupported // it takes files and shows none
	case res.StatusCode == http.StatusForbidden && s.auth == "" && s.base.RawQuery != "":
		return 0, errors.ErrUnsupported // an address signed for PUT alone
	case res.StatusCode/100 != 2:
		return 0, s.refusal(res)
	case res.ContentLength < 0:
		return 0, fmt.Errorf("the server does not say how long %s is", name)
	}
	return res.ContentLength, nil
}

// Free is part of Sink: the quota of a WebDAV folder.
func (s *httpSink) Free(ctx context.Context) (int64, error) {
	if !s.dav {
		return 0, errors.ErrUnsupported
	}
	return s.quota(ctx)
}

// Open is part of Sink.
func (s *httpSink) Open(ctx context.Context, name string, off, size int64) (io.WriteCloser, error) {
	if err := s.probe(ctx); err != nil {
		return nil, err
	}
	if off > 0 || size > s.opt.Chunk {
		if err := s.probeParts(ctx); err != nil {
			return nil, err
		}
	}
	if off > 0 && s.parts != 1 {
		return nil, fmt.Errorf("the server takes no parts of files")
	}
	return &putWriter{s: s, ctx: ctx, name: name, at: off, size: size}, nil
}

// CanAppend reports whether an unfinished file is of any use.
func (s *httpSink) CanAppend(ctx context.Context) (bool, error) {
	err := s.probeParts(ctx)
	return s.parts == 1, err
}

// probeParts tries a file of two bytes. A server that ignores Content-Range would
// take the second part for the whole file, without an error.
func (s *httpSink) probeParts(ctx context.Context) error {
	if s.parts != 0 {
		return nil
	}
	name := s.Name() + TempSuffix + "-probe"
	u := s.at(name)
	ok, err := s.tryParts(ctx, u)
	if err != nil && (IsPassing(err) || ctx.Err() != nil) {
		return err
	}
	_, _ = s.send(ctx, http.MethodDelete, u, nil, nil) // that a probe stays is no reason to fail
	s.parts = -1
	if ok {
		s.parts = 1
	}
	return nil
}

func (s *httpSink) tryParts(ctx context.Context, u *url.URL) (bool, error) {
	for i, b := range []string{"o", "k"} {
		head := http.Header{"Content-Range": {fmt.Sprintf("bytes %d-%d/2", i, i)}}
		res, err := s.send(ctx, http.MethodPut, u, head, strings.NewReader(b))
		if err != nil || res.StatusCode/100 != 2 {
			return false, err
		}
	}
	res, body, err := s.get(ctx, u)
	if err != nil {
		return false, err
	}
	defer body.Close()
	got, err := io.ReadAll(io.LimitReader(body, 3))
	return err == nil && res.StatusCode == http.StatusOK && string(got) == "ok", nil
}

// Sum is part of Sink. The beginning of a file is not compared: reading it back
// takes as long as sending it, and the whole is compared at the end.
func (s *httpSink) Sum(ctx context.Context, name string, n int64) (digest.Digest, error) {
	head := http.Header{"Want-Repr-Digest": {"sha-256=10"}, "Want-Digest": {"sha-256"}}
	res, err := s.send(ctx, http.MethodHead, s.at(name), head, nil)
	if err != nil {
		return digest.Digest{}, err
	}
	switch {
	case res.StatusCode == http.StatusNotFound:
		return digest.Digest{}, ErrNotExist
	case res.StatusCode/100 == 2 && res.ContentLength == n:
		if d, ok := headerDigest(res.Header); ok {
			return d, nil
		}
	case res.StatusCode/100 == 2 && res.ContentLength >= 0:
		return digest.Digest{}, errors.ErrUnsupported
	}
	return digest.Digest{}, errReadBack
}

// errReadBack is ErrUnsupported where the whole file can still be read.
var errReadBack = fmt.Errorf("%w: the server computes no digest", errors.ErrUnsupported)

// ReadBack hashes the file by reading all of it.
func (s *httpSink) ReadBack(ctx context.Context, name string, n int64) (digest.Digest, error) {
	res, body, err := s.get(ctx, s.at(name))
	if err != nil {
		return digest.Digest{}, err
	}
	defer body.Close()
	switch {
	case res.StatusCode == http.StatusNotFound:
		return digest.Digest{}, ErrNotExist
	case res.StatusCode != http.StatusOK:
		return digest.Digest{}, errors.ErrUnsupported
	}
	sum, got, err := digest.OfReader(io.LimitReader(body, n+1))
	if cause := context.Cause(ctx); cause != nil {
		return digest.Digest{}, cause
	}
	if err != nil {
		return digest.Digest{}, Passing(fmt.Errorf("read back: %w", err))
	}
	if got != n {
		return digest.Digest{}, nil
	}
	return sum, nil
}

// headerDigest finds a SHA-256 in the fields of RFC 9530 or RFC 3230.
func headerDigest(h http.Header) (digest.Digest, bool) {
	for _, key := range []string{"Repr-Digest", "Digest"} {
		for _, line := range h.Values(key) {
			for _, part := range strings.Split(line, ",") {
				name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
				if !ok || !strings.EqualFold(name, "sha-256") {
					continue
				}
				value = strings.TrimSuffix(strings.TrimPrefix(value, ":"), ":")
				b, err := base64.StdEncoding.DecodeString(value)
				if err == nil && len(b) == digest.Size {
					return digest.Digest(b), true
				}
			}
		}
	}
	return digest.Digest{}, false
}

// Rename is part of Sink: MOVE.
func (s *httpSink) Rename(ctx context.Context, from, to string) error {
	head := http.Header{"Destination": {s.at(to).String()}, "Overwrite": {"T"}}
	res, err := s.send(ctx, "MOVE", s.at(from), head, nil)
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return s.refusal(res)
	}
	return nil
}

// Remove is part of Sink.
func (s *httpSink) Remove(ctx context.Context, name string) error {
	res, err := s.send(ctx, http.MethodDelete, s.at(name), nil, nil)
	if err != nil {
		return err
	}
	switch res.StatusCode {
	case http.StatusNotFound, http.StatusGone, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return nil // a file that cannot be deleted is written over
	}
	if res.StatusCode/100 != 2 {
		return s.refusal(res)
	}
	return nil
}

// putWriter sends a file as one request, or as several where the server takes
// parts.
type putWriter struct {
	s        *httpSink
	ctx      context.Context
	name     string
	at, size int64

	body *io.PipeWriter
	end  int64 // of the request under way
	done chan error
}

func (w *putWriter) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if w.body == nil {
			if err := w.begin(); err != nil {
				return n, err
			}
		}
		b := p[n:]
		if rest := w.end - w.at; int64(len(b)) > rest {
			b = b[:rest]
		}
		k, err := w.body.Write(b)
		n += k
		w.at += int64(k)
		if err != nil {
			w.body.CloseWithError(err)
			w.body = nil
			if derr := <-w.done; derr != nil {
				err = derr
			}
			return n, err
		}
		if w.at == w.end {
			if err := w.finish(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (w *putWriter) begin() error {
	if w.at >= w.size {
		return fmt.Errorf("more than %d bytes", w.size)
	}
	w.end = w.size
	if w.s.parts == 1 {
		w.end = min(w.size, w.at+w.s.opt.Chunk)
	}
	head := http.Header{}
	if w.at > 0 || w.end < w.size {
		head.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", w.at, w.end-1, w.size))
	}
	head.Set("Content-Length", strconv.FormatInt(w.end-w.at, 10))
	r, body := io.Pipe()
	w.body, w.done = body, make(chan error, 1)
	go func() {
		err := w.s.put(w.ctx, w.name, head, r)
		if err != nil {
			r.CloseWithError(err)
		} else {
			r.CloseWithError(errors.New("the server answered before everything was sent"))
		}
		w.done <- err
	}()
	return nil
}

func (w *putWriter) finish() error {
	w.body.Close()
	w.body = nil
	return <-w.done
}

func (w *putWriter) Close() error {
	if w.body != nil { // broken off
		w.body.CloseWithError(errAborted)
		w.body = nil
		return <-w.done
	}
	if w.size == 0 && w.done == nil {
		return w.s.put(w.ctx, w.name, http.Header{"Content-Length": {"0"}}, http.NoBody)
	}
	return nil
}

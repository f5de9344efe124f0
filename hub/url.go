package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// URLOptions say what is known of a file before it is fetched.
type URLOptions struct {
	// SHA256 is the digest the file must have, lower-case hex.
	SHA256 string
	// Size is the length it must have; 0 means not known.
	Size int64
	// Ranges are digests of parts.
	Ranges []RangeDigest
}

// URLFile is a single file of any HTTP server, read by ranges where the server
// has them and downloaded as a whole otherwise. It is a tensor.Blob and must
// be closed.
type URLFile struct {
	c         *Client
	eng       *engine
	f         *remote
	name      string
	validator string
	temporary bool // nothing identifies the content: its entry is removed
}

// OpenURL finds out the file's size and opens it. The token goes along only
// if the address is the hub's own. With SHA256 given and all of the file in
// the spool no request is made.
func (c *Client) OpenURL(ctx context.Context, raw string, opt URLOptions) (*URLFile, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the source is not a URL", ErrOptions)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("%w: %s: want http:// or https://", ErrOptions, redact(u))
	case u.User != nil:
		return nil, fmt.Errorf("%w: %s holds a user name or password, which is not supported", ErrOptions, redact(u))
	case opt.SHA256 != "" && !isHex(opt.SHA256, 64):
		return nil, fmt.Errorf("%w: %s: sha256 %q is not 64 lower-case hex digits", ErrOptions, redact(u), clean(opt.SHA256))
	case opt.Size < 0:
		return nil, fmt.Errorf("%w: %s: negative size", ErrOptions, redact(u))
	}
	u.Fragment, u.RawFragment = "", ""
	o := &URLFile{c: c, name: path.Base(u.Path)}
	what := redact(u)
	var digest Digest
	if opt.SHA256 != "" {
		digest = Digest{SHA256, opt.SHA256}
	}
	size := int64(-1)
	if opt.Size > 0 {
		size = opt.Size
	}
	dir := c.opt.SpoolDir
	if size < 0 && dir != "" && !digest.IsZero() {
		// An earlier run knows it.
		if info, err := readInfo(filepath.Join(dir, entryName(digest))); err == nil && info.Digest == digest.String() && info.Size > 0 {
			size = info.Size
		}
	}
	o.eng = c.newEngine(ctx, dir != "")
	l := c.newLocator(what, u, size, &o.eng.count)
	l.page = isPage(u.Path)
	if size < 0 || digest.IsZero() {
		if err := l.measure(ctx); err != nil {
			o.eng.close()
			return nil, err
		}
	}
	o.validator = l.identity()
	o.f = &remote{eng: o.eng, what: what, size: l.knownSize(), digest: digest, loc: l, expect: opt.Ranges}
	if dir != "" {
		if o.f.spool, err = openSpool(dir, o.entryName(u), entryInfo{What: what, Digest: digestText(digest), Size: o.f.size}, c.opt.hooks); err != nil {
			o.eng.close()
			return nil, err
		}
	}
	o.eng.add(o.f)
	return o, nil
}

// identity is the strongest validator seen: an ETag, else a date.
func (l *locator) identity() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loc != nil {
		if tag := l.tags[l.loc.Host]; tag != "" {
			return "etag " + tag
		}
	}
	if l.modified != "" {
		return "date " + l.modified
	}
	return ""
}

// entryName keys the spool by content as well as can be: by the digest, else
// by what the server says identifies this version of the file.
func (o *URLFile) entryName(u *url.URL) string {
	if n := entryName(o.f.digest); n != "" {
		return n
	}
	if o.validator != "" {
		return keyedName("url", origin(u), u.EscapedPath(), o.validator, fmt.Sprint(o.f.size))
	}
	o.temporary = true
	return strings.ToLower("once-" + rand.Text())
}

// Name is the last part of the URL's path.
func (o *URLFile) Name() string { return o.name }

// Size is the file's length.
func (o *URLFile) Size() int64 { return o.f.size }

// Validator identifies this version of the file on its server ("etag ..." or
// "date ..."), where no digest is known; it may be empty.
func (o *URLFile) Validator() string { return o.validator }

// ReadAt fills p from off.
func (o *URLFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	return o.f.ReadAt(ctx, p, off)
}

// ReadAll returns the whole file, checked against its digest if one is known.
func (o *URLFile) ReadAll(ctx context.Context, limit int64) ([]byte, error) {
	if o.f.size > limit {
		return nil, &Error{Kind: ErrTooLarge, What: o.f.what, Err: fmt.Errorf("%d bytes, at most %d are read", o.f.size, limit)}
	}
	return o.f.readProved(ctx)
}

// Need declares ranges that will be read, in the order of reading.
func (o *URLFile) Need(ranges []Range) error { return o.eng.declare(o.f, ranges) }

// Prefetch starts to fetch what was declared.
func (o *URLFile) Prefetch() { o.eng.start() }

// Finish checks what is there, as Snapshot.Finish does.
func (o *URLFile) Finish(ctx context.Context) error { return o.f.verify(ctx) }

// Stats gives the counts so far.
func (o *URLFile) Stats() Stats {
	st := Stats{Fetched: o.eng.count.fetched.Load(), Requests: o.eng.count.requests.Load(), Retries: o.eng.count.retries.Load()}
	o.f.addTo(&st)
	return st
}

// Close stops fetching and closes the file.
func (o *URLFile) Close() error {
	o.eng.close()
	if o.f.spool == nil {
		return nil
	}
	err := o.f.spool.close()
	if o.temporary {
		err = errors.Join(err, os.RemoveAll(o.f.spool.dir))
	}
	return err
}

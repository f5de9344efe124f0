package hub

import (
	"context"
	"fmt"
	"io"
	"sync"
)

const (
	// A first read at a file's start fetches at least a 256th of the file,
	// within these bounds: it holds the header of most formats, and is little
	// beside what stays unread when the first tensors are not wanted.
	minHead  = 4 << 10
	maxHead  = 128 << 10
	headPart = 256
	// maxAhead bounds the read-ahead of undeclared sequential reads.
	maxAhead = 4 << 20
)

// remote is one file read by ranges. It is a tensor.Blob.
type remote struct {
	eng    *engine
	what   string
	size   int64
	digest Digest
	loc    *locator
	spool  *entry // nil: bytes live in eng.mem

	// The fields below belong to eng.mu.
	jobs    []*job // queued or running
	needs   spans  // declared or read
	asked   spans  // declared
	planned spans  // part of a job already made from a declaration
	fetched spans  // came over the network
	gapUsed int64
	whole   bool // all of it is fetched so that it can be verified
	noRange bool // the server sends whole files only

	genMu    sync.RWMutex // held by those who keep bytes; gen changes under it and eng.mu
	gen      int          // counts restarts after a changed ETag
	handed   bool         // bytes were given to a caller in this generation
	dirty    bool         // bytes were given out that were dropped later
	failed   error        // it changed again: nothing of it can be believed
	aheadEnd int64
	ahead    int64

	finish sync.Mutex // one verification at a time
	expect []RangeDigest
}

// RangeDigest is the SHA-256 (lower-case hex) that a range of a file must
// have, from a lock file.
type RangeDigest struct {
	Range
	SHA256 string
}

// Size is the file's length in bytes.
func (f *remote) Size() int64 { return f.size }

// ReadAt fills p from off, waiting for what has to be fetched.
func (f *remote) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > f.size || int64(len(p)) > f.size-off {
		return fmt.Errorf("%s: %w: %d bytes at offset %d of %d", f.what, io.ErrUnexpectedEOF, len(p), off, f.size)
	}
	for len(p) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := f.failure(); err != nil {
			return err
		}
		n, err := f.read(ctx, p, off)
		if err != nil {
			return err
		}
		if n == 0 {
			if n, err = f.wait(ctx, p, off); err != nil {
				return err
			}
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

func (f *remote) failure() error {
	f.eng.mu.Lock()
	defer f.eng.mu.Unlock()
	return f.failed
}

// read copies what is there already.
func (f *remote) read(ctx context.Context, p []byte, off int64) (n int, err error) {
	if f.spool != nil {
		n, err = f.spool.read(ctx, p, off)
	} else if n = f.eng.mem.read(f, p, off); n > 0 {
		f.eng.kick()
	}
	if n > 0 {
		f.eng.mu.Lock()
		f.handed = true
		f.eng.mu.Unlock()
	}
	return n, err
}

// wait makes sure that off is being fetched and waits until bytes arrive or
// the fetch fails. It may return 0 bytes and no error: look again.
func (f *remote) wait(ctx context.Context, p []byte, off int64) (int, error) {
	e := f.eng
	j, notify, err := e.cover(ctx, f, span{off, off + int64(len(p))})
	if err != nil {
		return 0, err
	}
	// The bytes may have come between the look before and cover.
	n, err := f.read(ctx, p, off)
	if n == 0 && err == nil {
		select {
		case <-notify:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return n, e.uncover(j, n > 0, err)
}

// missing returns the parts of x that are not there.
func (f *remote) missing(ctx context.Context, x span) ([]span, error) {
	if f.spool != nil {
		return f.spool.missing(ctx, x)
	}
	return f.eng.mem.missing(f, x), nil
}

// head is the least that a first read fetches.
func (f *remote) head() int64 { return min(f.size, max(minHead, min(f.size/headPart, maxHead))) }

// extend lengthens an undeclared read: to the usual size of a header at the
// start of a file, and by doubling steps where short reads follow one another,
// as parsers of long headers do. The first read behind the head is left as it
// is: it may be the rest of a header whose length is known by then. It is
// called with eng.mu held.
func (f *remote) extend(x span) span {
	if len(f.asked) > 0 {
		return x
	}
	switch {
	case x.lo < f.head():
		x.hi = max(x.hi, f.head())
		f.ahead = 0
	case x.lo == f.aheadEnd && f.ahead == 0:
		f.ahead = f.head()
	case x.lo == f.aheadEnd && x.len() < maxHead/2:
		f.ahead = min(2*f.ahead, maxAhead)
		if f.eng.mem != nil {
			f.ahead = min(f.ahead, f.eng.limits.segment)
		}
		x.hi = max(x.hi, min(x.lo+f.ahead, f.size))
	}
	f.aheadEnd = x.hi
	return x
}

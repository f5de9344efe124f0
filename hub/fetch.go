package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// pieceBytes is the unit in which a body is handed on and journaled: what
	// a killed process loses of each connection.
	pieceBytes = 256 << 10
	// sniffBytes of a file's start are looked at before any of it is kept.
	sniffBytes = 512
	// maxFresh is how often in a row a new address may be asked for without
	// a byte coming.
	maxFresh = 3
	// maxSkip is how much of a full answer is read and dropped to get to the
	// part that was asked for.
	maxSkip = 64 << 10
)

// sink takes fetched bytes in order. It must not keep p.
type sink func(off int64, p []byte) error

// fetch reads bytes [lo, hi) of the file and hands them to out in pieces. A
// body that breaks off is continued where it stopped. When it fails, what
// came before has been handed on.
func (l *locator) fetch(ctx context.Context, lo, hi int64, out sink) error {
	f := &fetcher{l: l, op: l.c.newOperation(l.what, l.count), start: lo, pos: lo, hi: hi, out: out}
	f.buf = make([]byte, 0, min(pieceBytes, max(hi-lo, 1)))
	err := f.run(ctx)
	if err != nil && f.pos == 0 && len(f.buf) < sniffBytes {
		// Too little to tell a page from a file.
		return err
	}
	if ferr := f.flush(); err == nil {
		err = ferr
	}
	return err
}

type fetcher struct {
	l   *locator
	op  *operation
	buf []byte // bytes [pos, pos+len(buf)), not handed on yet
	pos int64
	out sink
	// start and hi bound what the caller wants.
	start, hi int64

	fresh, breaks int
	last          error
}

func (f *fetcher) at() int64 { return f.pos + int64(len(f.buf)) }

func (f *fetcher) run(ctx context.Context) error {
	for f.at() < f.hi {
		before := f.at()
		err := f.once(ctx)
		if err == nil && f.at() <= before {
			err = fmt.Errorf("%w: an empty answer", errBroken)
		}
		if f.at() > before {
			f.fresh, f.op.attempt, f.op.own = 0, 0, false
			f.op.start = f.l.c.opt.Clock.Now()
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errStale), errors.Is(err, ErrSize), errors.Is(err, ErrRange):
			if err := f.another(err); err != nil {
				return err
			}
		case errors.Is(err, errBroken):
			if err := f.resume(err, f.at() > before); err != nil {
				return err
			}
		case f.l.c.again(f.op, err):
			f.l.forgetHost()
		default:
			return err
		}
	}
	return nil
}

// another asks for a fresh address, a few times in a row.
func (f *fetcher) another(err error) error {
	f.fresh++
	if f.fresh < maxFresh {
		f.l.forgetAddress()
		f.op.own = true
		f.op.count.retries.Add(1)
		return nil
	}
	if errors.Is(err, errStale) {
		return &Error{Kind: ErrServer, What: f.l.what, Err: err, Hint: "the storage host refuses fresh links too; try again later"}
	}
	return err
}

// errBroken: the body ended early, stalled or was longer than promised.
var errBroken = errors.New("the answer broke off")

// resume goes on after a broken body: at once when bytes came, like any other
// failure when none did. The total is bounded by the length, so that a server
// that sends byte by byte comes to an end.
func (f *fetcher) resume(err error, progress bool) error {
	f.breaks++
	limit := 8 + int((f.hi-f.pos)/4096)
	e := &Error{Kind: ErrNetwork, What: f.l.what, Err: err, Hint: "check the connection and run again: what came so far is kept"}
	if f.breaks > limit {
		return e
	}
	if progress {
		f.op.count.retries.Add(1)
		f.l.c.event(Event{Kind: EventRetry, What: f.l.what, Text: e.Error()})
		return nil
	}
	wait := f.op.wait()
	f.l.forgetHost()
	if !f.l.c.again(f.op, e) {
		return e
	}
	f.l.pause(wait)
	return nil
}

// once sends one request and reads its body.
func (f *fetcher) once(ctx context.Context) error {
	lo := f.at()
	p, err := f.l.open(ctx, f.op, lo, f.hi)
	if err != nil {
		return err
	}
	defer p.Body.Close()
	if p.lo < lo {
		// A caller that wants the file from its start has no better way.
		if lo-p.lo > maxSkip && f.start > 0 {
			return errIgnored
		}
		n, err := io.CopyN(io.Discard, p.Body, lo-p.lo)
		f.op.count.fetched.Add(n)
		if err != nil {
			return fmt.Errorf("%w after byte %d: %w", errBroken, n, unexpected(err))
		}
	}
	end := f.hi
	if p.hi >= 0 {
		end = min(end, p.hi)
	}
	for f.at() < end {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if len(f.buf) == cap(f.buf) {
			if err := f.flush(); err != nil {
				return err
			}
		}
		room := min(int64(cap(f.buf)-len(f.buf)), end-f.at())
		n, err := p.Body.Read(f.buf[len(f.buf) : int64(len(f.buf))+room])
		f.op.count.fetched.Add(int64(n))
		f.buf = f.buf[:len(f.buf)+n]
		if err != nil && f.at() < end {
			return fmt.Errorf("%w after byte %d: %w", errBroken, f.at(), unexpected(err))
		}
	}
	return f.overrun(p, end)
}

// overrun checks a body without a length for bytes after the promised end.
func (f *fetcher) overrun(p *part, end int64) error {
	if p.ContentLength >= 0 || p.hi != end {
		return nil
	}
	var one [1]byte
	if n, _ := io.ReadFull(p.Body, one[:]); n > 0 {
		f.buf = f.buf[:0]
		return f.l.fault(ErrRange, p.answer, fmt.Errorf("the body goes on after byte %d, where it should end", end), "")
	}
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// flush hands the buffered bytes on, after a look at the file's first ones.
func (f *fetcher) flush() error {
	if len(f.buf) == 0 {
		return nil
	}
	if f.pos == 0 {
		if err := f.l.sniff(f.buf); err != nil {
			f.buf = f.buf[:0]
			return err
		}
	}
	err := f.out(f.pos, f.buf)
	f.pos = f.at()
	f.buf = f.buf[:0]
	return err
}

// forgetAddress makes the next request ask the hub again.
func (l *locator) forgetAddress() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loc = nil
}

// forgetHost drops the kept address after a failure of its host.
func (l *locator) forgetHost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loc != nil && origin(l.loc) != origin(l.start) {
		l.loc = nil
	}
}

// pause keeps all requests to the file's host back for a while.
func (l *locator) pause(d time.Duration) {
	l.mu.Lock()
	host := l.start.Host
	if l.loc != nil {
		host = l.loc.Host
	}
	l.mu.Unlock()
	l.c.pause(host, d)
}

// sniff refuses what is not the file: an HTML page or a Git LFS pointer.
func (l *locator) sniff(head []byte) error {
	head = head[:min(len(head), sniffBytes)]
	if !l.page {
		t := bytes.ToLower(bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n"))
		if bytes.HasPrefix(t, []byte("<!doctype html")) || bytes.HasPrefix(t, []byte("<html")) {
			return &Error{Kind: ErrHTML, What: l.what, URL: redact(l.start), Hint: "a login page, a captive portal or a wrong address; open it in a browser"}
		}
	}
	if oid, size, ok := parsePointer(head); ok {
		return &Error{Kind: ErrPointer, What: l.what, URL: redact(l.start),
			Err: fmt.Errorf("it stands for %s, %s bytes", oid, size), Hint: "fetch the file itself: git lfs pull, or the /resolve/ address in place of /raw/"}
	}
	return nil
}

const pointerMagic = "version https://git-lfs.github.com/spec/v1\n"

// parsePointer reads the text that Git LFS keeps in git in place of a file:
//
//	version https://git-lfs.github.com/spec/v1
//	oid sha256:HEX
//	size DECIMAL
func parsePointer(head []byte) (oid, size string, ok bool) {
	text, ok := strings.CutPrefix(string(head), pointerMagic)
	if !ok {
		return "", "", false
	}
	oid, size = "an unknown object", "unknown"
	for _, line := range strings.Split(text, "\n") {
		k, v, _ := strings.Cut(line, " ")
		if v = clean(v); v == "" {
			continue
		}
		switch k {
		case "oid":
			oid = v
		case "size":
			size = v
		}
	}
	return oid, size, true
}

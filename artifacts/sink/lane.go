package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"quern/internal/digest"
)

// lane is the way of a file to one target.
type lane struct {
	sink Sink
	ctx  context.Context

	from   int64         // the target has the bytes before
	want   digest.Digest // of these, as the target says
	fed    int64         // up to here bytes were handed over
	fresh  bool          // what is there is worth nothing
	wrong  int           // how often other bytes arrived
	failed error         // of the last connection
	pump   *pump

	already   bool // the target had the file before
	published bool
}

func (l *lane) stream() bool {
	_, ok := l.sink.(Stream)
	return ok
}

// keeps reports whether an unfinished file survives the process.
func (l *lane) keeps() bool {
	k, ok := l.sink.(interface{ Keeps() bool })
	return !ok || k.Keeps()
}

func (l *lane) fault(op string, err error) error {
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return &Error{Target: l.sink.String(), Op: op, Err: err}
}

// look finds out what the target has: the finished file, the beginning of it, or
// nothing.
func (l *lane) look(ctx context.Context, t *Transfer) error {
	size := t.opt.Size
	if l.stream() {
		l.from = l.fed
		return nil
	}
	if c, ok := l.sink.(Limiter); ok {
		if err := c.Check(size); err != nil {
			return l.fault("check", err)
		}
	}
	n, err := l.sink.Stat(ctx, l.sink.Name())
	if err != nil && !errors.Is(err, ErrNotExist) && !errors.Is(err, errors.ErrUnsupported) {
		return l.fault("look", err)
	}
	if err == nil && n == size && !t.known.IsZero() && !l.fresh {
		sum, err := l.sumWhole(ctx, l.sink.Name(), n)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, ErrNotExist) {
			return l.fault("compare", err)
		}
		if err == nil && sum == t.known {
			l.already = true
			t.opt.Say(fmt.Sprintf("%s: already there, SHA-256 %s", l.sink, sum.Hex()))
			return nil
		}
	}
	if err := l.lookTemp(ctx, t); err != nil {
		return err
	}
	free, err := l.sink.Free(ctx)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		return l.fault("ask for free space", err)
	case free < size-l.from:
		return l.fault("check", fmt.Errorf("%w: %d bytes are to be sent and %d are free; make room there", ErrNoSpace, size-l.from, free))
	}
	return nil
}

// lookTemp finds the beginning of the file under its temporary name.
func (l *lane) lookTemp(ctx context.Context, t *Transfer) error {
	l.from, l.want = 0, digest.Digest{}
	temp := l.sink.Temp()
	direct := temp == l.sink.Name()
	if l.fresh || direct && !t.begun && l.fed == 0 {
		return nil
	}
	n, err := l.sink.Stat(ctx, temp)
	switch {
	case errors.Is(err, ErrNotExist), errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return l.fault("look", err)
	case n == 0 || n > t.opt.Size:
		return nil
	}
	if a, ok := l.sink.(appender); ok && n < t.opt.Size {
		if yes, err := a.CanAppend(ctx); err != nil {
			return l.fault("look", err)
		} else if !yes {
			return nil
		}
	}
	sum, err := l.sink.Sum(ctx, temp, n)
	switch {
	case errors.Is(err, ErrNotExist):
		return nil
	case err != nil && !errors.Is(err, errors.ErrUnsupported):
		return l.fault("compare", err)
	}
	l.from, l.want = n, sum
	t.opt.Say(fmt.Sprintf("%s: %d of %d bytes are there", l.sink, n, t.opt.Size))
	return nil
}

// appender is a Sink that may turn out to be unable to go on with a file.
type appender interface {
	CanAppend(context.Context) (bool, error)
}

// backReader is a Sink that can give a whole file back.
type backReader interface {
	ReadBack(ctx context.Context, name string, n int64) (digest.Digest, error)
}

// sumWhole is the digest of a whole file, read back where it is not to be had
// otherwise.
func (l *lane) sumWhole(ctx context.Context, name string, n int64) (digest.Digest, error) {
	sum, err := l.sink.Sum(ctx, name, n)
	if r, ok := l.sink.(backReader); ok && errors.Is(err, errors.ErrUnsupported) {
		return r.ReadBack(ctx, name, n)
	}
	return sum, err
}

func (l *lane) open(size int64) error {
	ctx, cancel := context.WithCancelCause(l.ctx)
	w, err := l.sink.Open(ctx, l.sink.Temp(), l.from, size)
	if err != nil {
		cancel(nil)
		return l.fault("open", err)
	}
	l.fresh = false
	l.pump = newPump(ctx, cancel, w)
	return nil
}

func (l *lane) abort(linger time.Duration) {
	if l.pump != nil {
		// A write to a stream that nobody reads cannot be woken up.
		l.pump.abort(linger, !l.stream())
		l.pump = nil
	}
}

// finish ends the connection and compares what has arrived with what was sent.
func (l *lane) finish(ctx context.Context, t *Transfer) error {
	if l.pump != nil {
		err := l.pump.finish()
		l.pump = nil
		if err != nil {
			l.failed = err
			return l.fault("write", err)
		}
	}
	if l.stream() {
		return nil
	}
	temp := l.sink.Temp()
	n, err := l.sink.Stat(ctx, temp)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		t.opt.Say(fmt.Sprintf("%s: what is there cannot be looked at; it took the file without an error", l.sink))
		return nil
	case errors.Is(err, ErrNotExist):
		return l.fault("compare", Passing(fmt.Errorf("%s is gone", temp)))
	case err != nil:
		return l.fault("compare", err)
	case n < t.opt.Size:
		return l.fault("compare", Passing(fmt.Errorf("%d of %d bytes have arrived", n, t.opt.Size)))
	}
	sum, err := l.sumWhole(ctx, temp, n)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		t.opt.Say(fmt.Sprintf("%s: nothing there computes a SHA-256 or reads the file back; only its length was compared", l.sink))
	case err != nil:
		return l.fault("compare", err)
	case n != t.opt.Size || sum != t.sum:
		return l.mismatch(ctx, t, n, sum)
	}
	return nil
}

// mismatch throws away what arrived wrong. The first time it is sent again.
func (l *lane) mismatch(ctx context.Context, t *Transfer, n int64, sum digest.Digest) error {
	err := l.fault("compare", fmt.Errorf("%w: %d bytes with SHA-256 %s, not %d with %s", ErrDigest, n, sum.Hex(), t.opt.Size, t.sum.Hex()))
	if rerr := l.sink.Remove(ctx, l.sink.Temp()); rerr != nil {
		return errors.Join(err, l.fault("remove", rerr))
	}
	l.fresh, l.from, l.fed = true, 0, 0
	if l.wrong++; l.wrong > 1 {
		return err
	}
	return &restart{err}
}

// clean takes an unfinished file away where the disk is full: it is in the way
// there.
func (l *lane) clean(ctx context.Context) {
	if errors.Is(l.failed, ErrNoSpace) && l.sink.Temp() != l.sink.Name() {
		_ = l.sink.Remove(ctx, l.sink.Temp()) // the full disk is what is reported
		l.from, l.fed = 0, 0
	}
}

// publish renames the file. An answer that was lost on the way is no failure.
func (l *lane) publish(ctx context.Context, t *Transfer) error {
	from, to := l.sink.Temp(), l.sink.Name()
	if l.stream() || from == to {
		return nil
	}
	rerr := l.sink.Rename(ctx, from, to)
	if rerr != nil && !IsPassing(rerr) {
		return l.fault("rename", rerr)
	}
	n, err := l.sink.Stat(ctx, to)
	switch {
	case err != nil && rerr != nil:
		return l.fault("rename", rerr)
	case err != nil:
		return l.fault("rename", err)
	case rerr != nil:
		if _, err := l.sink.Stat(ctx, from); !errors.Is(err, ErrNotExist) {
			return l.fault("rename", rerr)
		}
		if sum, err := l.sumWhole(ctx, to, n); err != nil || sum != t.sum {
			return l.fault("rename", rerr)
		}
	case n != t.opt.Size:
		return l.fault("rename", fmt.Errorf("%w: %s has %d bytes, %d were sent", ErrDigest, to, n, t.opt.Size))
	}
	return nil
}

// pump hands bytes to a writer from a goroutine of its own, so that the producer
// computes while the network is busy, and several targets are fed at once.
type pump struct {
	w      io.WriteCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	cur    []byte // being filled
	free   chan []byte
	full   chan []byte
	done   chan struct{}
	err    error // once done is closed
}

const (
	pumpBuffers = 8
	pumpBuffer  = 512 << 10
)

func newPump(ctx context.Context, cancel context.CancelCauseFunc, w io.WriteCloser) *pump {
	p := &pump{w: w, ctx: ctx, cancel: cancel,
		free: make(chan []byte, pumpBuffers), full: make(chan []byte, pumpBuffers), done: make(chan struct{})}
	for range pumpBuffers {
		p.free <- nil // made when it is needed
	}
	go p.run()
	return p
}

func (p *pump) run() {
	defer close(p.done)
	for b := range p.full {
		if _, err := p.w.Write(b); err != nil {
			p.err = err
			// What the other side has to say comes when the connection ends.
			if cerr := p.w.Close(); cerr != nil {
				p.err = cerr
			}
			return
		}
		p.free <- b[:0]
	}
	p.err = p.w.Close()
}

func (p *pump) write(b []byte) error {
	for len(b) > 0 {
		if p.cur == nil {
			select {
			case p.cur = <-p.free:
			case <-p.done:
				return p.ended()
			case <-p.ctx.Done():
				return context.Cause(p.ctx)
			}
			if p.cur == nil {
				p.cur = make([]byte, 0, pumpBuffer)
			}
		}
		n := min(len(b), cap(p.cur)-len(p.cur))
		p.cur = append(p.cur, b[:n]...)
		b = b[n:]
		if len(p.cur) == cap(p.cur) {
			p.flush()
		}
	}
	return nil
}

// flush hands over what is filled. There are never more buffers than full takes.
func (p *pump) flush() {
	if len(p.cur) > 0 {
		p.full <- p.cur
		p.cur = nil
	}
}

func (p *pump) ended() error {
	if p.err == nil {
		return Passing(errors.New("the connection ended early"))
	}
	return p.err
}

// finish waits until everything is written.
func (p *pump) finish() error {
	p.flush()
	close(p.full)
	<-p.done
	p.cancel(nil)
	return p.err
}

// abort breaks off, after what was handed over has had a moment to get through.
func (p *pump) abort(linger time.Duration, wait bool) {
	p.flush()
	close(p.full)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	}
	p.cancel(errAborted)
	if wait {
		<-p.done
	}
}

var errAborted = errors.New("broken off")

package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// measure finds the size of a file that no listing gives: one byte is asked
// for, and Content-Range has the total. A server that answers with the whole
// file and does not tell its length is read to the end once to count it.
func (l *locator) measure(ctx context.Context) error {
	op := l.c.newOperation(l.what, l.count)
	fresh := 0
	for {
		err := l.measureOnce(ctx, op)
		switch {
		case err == nil, errors.Is(err, errPastEnd):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errStale) && fresh < maxFresh:
			fresh++
			op.own = true
			op.count.retries.Add(1)
		case errors.Is(err, errStale):
			return &Error{Kind: ErrServer, What: l.what, Err: err}
		case l.c.again(op, err):
			l.forgetHost()
		default:
			return err
		}
	}
}

func (l *locator) measureOnce(ctx context.Context, op *operation) error {
	p, err := l.open(ctx, op, 0, 1)
	if err != nil {
		return err
	}
	defer p.Body.Close()
	if l.knownSize() >= 0 {
		return nil
	}
	if p.StatusCode == http.StatusPartialContent {
		return l.fault(ErrRange, p.answer, errors.New("Content-Range tells no total, so the file's size cannot be known"), "")
	}
	n, err := io.Copy(io.Discard, p.Body)
	op.count.fetched.Add(n)
	if err != nil {
		l.c.pause(p.url.Host, op.wait())
		return &Error{Kind: ErrNetwork, What: l.what, Err: fmt.Errorf("after byte %d: %w", n, err)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size = n
	return nil
}

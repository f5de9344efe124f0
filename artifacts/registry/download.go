package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"quern/artifacts"
)

const (
	// stall is how long a body may give nothing before the connection is given
	// up.
	stall = 60 * time.Second
	// barren is how many answers in a row may bring nothing.
	barren = 5
)

// Start opens the writer that a blob goes into. The writer may have a beginning
// of it already, and keeps what it has when it is aborted if it can.
type Start func(context.Context, artifacts.Descriptor) (artifacts.BlobWriter, error)

// fetch brings a blob into a writer and commits it. After a break the rest alone
// is asked for. Bytes that are wrong at the end are asked for once more from the
// start. It returns how many bytes came.
func (p *place) fetch(ctx context.Context, d artifacts.Descriptor, start Start, count func(int64)) (came int64, err error) {
	for try := 1; ; try++ {
		w, err := start(ctx, d)
		if err != nil {
			return came, err
		}
		got := w.Size()
		count(got)
		n, err := p.body(ctx, d, w, count)
		got += n
		came += n
		if err == nil {
			_, err = w.Commit(d.Digest)
		}
		w.Abort()
		switch {
		case err == nil:
			return came, nil
		case errors.Is(err, artifacts.ErrMismatch) && try < 2:
			count(-got)
			p.c.opt.Say(fmt.Sprintf("blob %s came with other bytes; fetching it again", d.Digest))
		case errors.Is(err, artifacts.ErrMismatch):
			return came, p.c.fault(ctx, p.ref, "blob "+d.Digest.String(), fmt.Errorf("%w: twice: %w", ErrBytes, err))
		default:
			return came, err
		}
	}
}

// body appends the missing bytes to w, however many requests it takes.
func (p *place) body(ctx context.Context, d artifacts.Descriptor, w artifacts.BlobWriter, count func(int64)) (got int64, err error) {
	what := "blob " + d.Digest.String()
	for fruitless := 0; w.Size() < d.Size; {
		n, err := p.part(ctx, d, w, count)
		got += n
		if err == nil {
			continue
		}
		var local *localFault
		if errors.As(err, &local) {
			return got, local.error
		}
		if n > 0 {
			fruitless = 0
		}
		fruitless++
		var a *answer
		if errors.As(err, &a) && !passing(a.status) || errors.Is(err, ErrBytes) || ctx.Err() != nil || fruitless >= barren {
			return got, p.c.fault(ctx, p.ref, what, err)
		}
		p.c.opt.Say(fmt.Sprintf("%s: %v at byte %d of %d; going on from there", what, err, w.Size(), d.Size))
		if err := p.c.opt.sleep(ctx, backoff(fruitless)); err != nil {
			return got, err
		}
	}
	return got, nil
}

// localFault is an error of the writer: no other answer of the registry mends it.
type localFault struct{ error }

func (l *localFault) Unwrap() error { return l.error }

// part makes one request for what w has not got.
func (p *place) part(ctx context.Context, d artifacts.Descriptor, w artifacts.BlobWriter, count func(int64)) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := request(ctx, http.MethodGet, p.url("blobs/"+d.Digest.String()), nil, 0)
	if err != nil {
		return 0, err
	}
	at := w.Size()
	if at > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", at))
	}
	res, err := p.do(req, auth.ActionPull)
	if err != nil {
		return 0, causeOf(ctx, err)
	}
	skip := int64(0)
	switch res.StatusCode {
	case http.StatusOK:
		skip = at // the whole, whatever was asked for
	case http.StatusPartialContent:
		first, total, ok := contentRange(res.Header.Get("Content-Range"))
		if !ok || first != at || total >= 0 && total != d.Size {
			res.Body.Close()
			return 0, fmt.Errorf("%w: asked for byte %d on of %d, got %q", ErrBytes, at, d.Size, shorten(res.Header.Get("Content-Range")))
		}
	default:
		return 0, readAnswer(res)
	}
	body := p.watch(res.Body, cancel)
	defer body.Close()
	want := d.Size - at
	if res.ContentLength >= 0 && res.ContentLength > want+skip {
		return 0, fmt.Errorf("%w: %d bytes, the manifest says %d", ErrBytes, res.ContentLength-skip+at, d.Size)
	}
	if skip > 0 {
		if _, err := io.CopyN(io.Discard, body, skip); err != nil {
			return 0, causeOf(ctx, short(err))
		}
	}
	return copyBody(ctx, w, body, want, count)
}

// copyBody writes exactly want bytes; what comes behind them is an error.
func copyBody(ctx context.Context, w io.Writer, body io.Reader, want int64, count func(int64)) (int64, error) {
	buf := make([]byte, min(want+1, 1<<20))
	done := int64(0)
	for {
		n, err := body.Read(buf)
		if int64(n) > want-done {
			return done, fmt.Errorf("%w: more than the %d bytes that were to come", ErrBytes, want)
		}
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return done, &localFault{werr}
			}
			done += int64(n)
			count(int64(n))
		}
		if err == io.EOF && done == want {
			return done, nil
		}
		if err != nil {
			return done, causeOf(ctx, short(err))
		}
	}
}

// short names an end that came too early.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the answer broke off")
	}
	return err
}

func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// watch makes an answer over which nothing comes any more end its request.
func (p *place) watch(body io.ReadCloser, cancel context.CancelCauseFunc) *watched {
	patience := p.c.opt.stall
	dog := time.AfterFunc(patience, func() { cancel(fmt.Errorf("nothing came for %v", patience)) })
	return &watched{body, dog, patience}
}

// watched feeds the watchdog with every byte.
type watched struct {
	io.ReadCloser
	dog      *time.Timer
	patience time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.dog.Reset(w.patience)
	}
	return n, err
}

func (w *watched) Close() error {
	w.dog.Stop()
	return w.ReadCloser.Close()
}

// contentRange reads "bytes FIRST-LAST/TOTAL"; total is -1 for "*".
func contentRange(s string) (first, total int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, all, cut := strings.Cut(s, "/")
	from, _, dash := strings.Cut(span, "-")
	first, err := strconv.ParseInt(from, 10, 64)
	if !ok || !cut || !dash || err != nil || first < 0 {
		return 0, 0, false
	}
	if all == "*" {
		return first, -1, true
	}
	total, err = strconv.ParseInt(all, 10, 64)
	return first, total, err == nil && total > 0
}

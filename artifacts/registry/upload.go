package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"oras.land/oras-go/v2/registry/remote/auth"

	"quern/artifacts"
)

// upload is one blob on its way into a registry.
//
//	POST …/blobs/uploads/            202, Location, OCI-Chunk-Min-Length
//	PATCH Location, Content-Range    202, new Location, Range: what it has by now
//	GET Location                     204, Range: after a break
//	PUT Location?digest=             201
//
// A blob of one piece, and any blob at a registry that takes no pieces, goes in
// the body of the PUT.
type upload struct {
	*place
	d       artifacts.Descriptor
	blob    io.ReaderAt
	loc     *url.URL
	at      int64 // what the registry has
	chunk   int64
	least   int64 // length of a piece that the registry takes
	whole   bool  // no pieces
	resumed bool
	had     int64 // what the registry had from an earlier process
	count   func(int64)
}

// errWhole says that the registry takes no pieces.
var errWhole = errors.New("the registry takes no pieces of blobs")

// errBroken marks answers that no other try mends.
var errBroken = errors.New("the registry breaks the protocol")

// errLost says that the registry has forgotten the upload.
var errLost = errors.New("the registry has forgotten the upload")

// run sends the blob. Whatever went wrong, it goes on with what the registry has
// then, and gives up when several tries in a row have brought nothing.
func (u *upload) run(ctx context.Context) error {
	best := u.at
	for fruitless := 0; ; {
		err := u.try(ctx)
		if err == nil {
			u.c.forget(u.ref, u.d)
			return nil
		}
		var a *answer
		isAnswer := errors.As(err, &a)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errWhole) && !u.whole:
			u.c.opt.Say(fmt.Sprintf("blob %s: %v; sending it in one request", u.d.Digest, err))
			u.whole = true
			u.drop(ctx)
			continue
		case errors.Is(err, errWhole):
			return u.c.fault(ctx, u.ref, "blob "+u.d.Digest.String(), err)
		case errors.Is(err, errBroken):
			return u.c.fault(ctx, u.ref, "blob "+u.d.Digest.String(), err)
		case errors.Is(err, errLost):
			u.restart()
		case isAnswer && !passing(a.status):
			u.drop(ctx)
			return u.c.fault(ctx, u.ref, "blob "+u.d.Digest.String(), err)
		}
		if u.at > best {
			best, fruitless = u.at, 0
		}
		if fruitless++; fruitless >= barren {
			return u.c.fault(ctx, u.ref, "blob "+u.d.Digest.String(), err)
		}
		u.c.opt.Say(fmt.Sprintf("blob %s: %v at byte %d of %d; trying again", u.d.Digest, shortError(err), u.at, u.d.Size))
		if err := u.c.opt.sleep(ctx, backoff(fruitless)); err != nil {
			return err
		}
		if err := u.look(ctx); err != nil {
			return err
		}
	}
}

// shortError leaves addresses out: they may hold secrets.
func shortError(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

// try goes from where the upload is to its end.
func (u *upload) try(ctx context.Context) error {
	for {
		if u.loc == nil { // also after a piece that made it start over
			if err := u.begin(ctx); err != nil {
				return err
			}
		}
		if u.whole || u.at == u.d.Size || u.at == 0 && u.d.Size <= u.chunk {
			return u.close(ctx)
		}
		if err := u.patch(ctx); err != nil {
			return err
		}
	}
}

// begin asks for a place to send the blob to.
func (u *upload) begin(ctx context.Context) error {
	req, err := request(ctx, http.MethodPost, u.url("blobs/uploads/"), nil, 0)
	if err != nil {
		return err
	}
	res, err := u.do(req, auth.ActionPull, auth.ActionPush)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusAccepted && res.StatusCode != http.StatusCreated {
		return readAnswer(res)
	}
	return u.begun(res)
}

// begun takes the answer to a POST.
func (u *upload) begun(res *http.Response) error {
	end(res)
	if err := u.move(res); err != nil {
		return err
	}
	if u.loc == nil {
		return fmt.Errorf("%w: no address for the blob in its answer", errBroken)
	}
	if least, err := strconv.ParseInt(res.Header.Get("OCI-Chunk-Min-Length"), 10, 64); err == nil {
		u.least, u.chunk = least, max(least, u.chunk)
	}
	u.remember()
	return nil
}

// move follows the Location of an answer, if it has one. A proxy that ends TLS
// lets registries name themselves with http; that host is the registry all the
// same.
func (u *upload) move(res *http.Response) error {
	text := res.Header.Get("Location")
	if text == "" {
		return nil
	}
	next, err := res.Request.URL.Parse(text)
	if err != nil || next.Host == "" || next.Scheme != "http" && next.Scheme != "https" {
		return fmt.Errorf("%w: it gives an address for the blob that cannot be used", errBroken)
	}
	own := u.url("")
	if own.Scheme == "https" && next.Scheme == "http" && (next.Hostname() == own.Hostname()) {
		next.Scheme, next.Host = own.Scheme, own.Host
	}
	next.User, next.Fragment = nil, ""
	u.loc = next
	return nil
}

// patch sends one piece.
func (u *upload) patch(ctx context.Context) error {
	n := min(u.chunk, u.d.Size-u.at)
	req, m, err := u.send(ctx, http.MethodPatch, u.loc, u.at, n)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Range", fmt.Sprintf("%d-%d", u.at, u.at+n-1))
	before := u.at
	res, err := u.do(req, auth.ActionPull, auth.ActionPush)
	took := int64(0)
	defer func() { m.settle(took) }()
	if err != nil {
		return err
	}
	switch {
	case res.StatusCode == http.StatusAccepted, res.StatusCode == http.StatusNoContent:
	case res.StatusCode == http.StatusRequestEntityTooLarge && u.chunk > 1<<20 && u.chunk/2 >= u.least:
		end(res)
		u.chunk /= 2
		u.c.opt.Say(fmt.Sprintf("blob %s: a piece is too long for the registry; trying %d bytes", u.d.Digest, u.chunk))
		return u.look(ctx)
	case res.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		end(res)
		if err := u.look(ctx); err != nil {
			return err
		}
		switch {
		case u.at == before || u.loc == nil:
			return fmt.Errorf("%w: it refuses the piece at byte %d and wants no other", errWhole, before)
		case u.at < before:
			return errors.New("the registry has lost a piece")
		}
		return nil
	case res.StatusCode == http.StatusCreated, res.StatusCode == http.StatusOK,
		res.StatusCode == http.StatusMethodNotAllowed, res.StatusCode == http.StatusNotImplemented,
		res.StatusCode == http.StatusBadRequest, res.StatusCode == http.StatusUnsupportedMediaType,
		res.StatusCode == http.StatusLengthRequired:
		a := readAnswer(res)
		return fmt.Errorf("%w: it answers %s to one", errWhole, a.text)
	case res.StatusCode == http.StatusNotFound && before == 0:
		a := readAnswer(res)
		return fmt.Errorf("%w: it answers %s to one", errWhole, a.text)
	case res.StatusCode == http.StatusNotFound:
		end(res)
		return errLost
	default:
		return readAnswer(res)
	}
	end(res)
	if err := u.move(res); err != nil {
		return err
	}
	has, ok := uploadRange(res.Header.Get("Range"))
	switch {
	case !ok:
		has = before + n // it does not say; the digest will
	case has > before+n, has < before:
		return fmt.Errorf("%w: it says it has %d bytes after the piece from %d to %d", errWhole, has, before, before+n)
	case has == before:
		return fmt.Errorf("%w: it took nothing of the piece at byte %d", errWhole, before)
	}
	took = has - before
	u.at = has
	u.remember()
	return nil
}

// close ends the upload, with the whole blob as the body if nothing was sent yet.
func (u *upload) close(ctx context.Context) error {
	to := *u.loc
	if to.RawQuery != "" {
		to.RawQuery += "&"
	}
	to.RawQuery += "digest=" + url.QueryEscape(u.d.Digest.String())
	req, m, err := u.send(ctx, http.MethodPut, &to, u.at, u.d.Size-u.at)
	if err != nil {
		return err
	}
	took := int64(0)
	defer func() { m.settle(took) }()
	res, err := u.do(req, auth.ActionPull, auth.ActionPush)
	if err != nil {
		// The answer may have got lost after the work was done.
		if there, herr := u.exists(ctx, u.d); herr != nil || !there {
			return err
		}
		took = u.d.Size - u.at
		return nil
	}
	switch res.StatusCode {
	case http.StatusCreated, http.StatusOK, http.StatusNoContent:
		end(res)
	case http.StatusNotFound:
		end(res)
		return errLost
	default:
		a := readAnswer(res)
		if a.has("DIGEST_INVALID") || a.has("SIZE_INVALID") {
			u.c.forget(u.ref, u.d)
			if u.resumed { // its beginning may be another's
				return errLost
			}
		}
		return a
	}
	if got := res.Header.Get("Docker-Content-Digest"); got != "" && got != u.d.Digest.String() {
		return fmt.Errorf("%w: %w: it has taken the blob for %.90q", errBroken, ErrBytes, got)
	}
	took = u.d.Size - u.at
	return nil
}

// look asks how far the upload is. An upload that the registry cannot speak about
// starts over.
func (u *upload) look(ctx context.Context) error {
	if u.loc == nil {
		return nil
	}
	if u.whole { // what is there of it is of no use
		u.restart()
		return nil
	}
	req, err := request(ctx, http.MethodGet, u.loc, nil, 0)
	if err != nil {
		return err
	}
	res, err := u.do(req, auth.ActionPull, auth.ActionPush)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		u.restart()
		return nil
	}
	has, ok := uploadRange(res.Header.Get("Range"))
	end(res)
	if res.StatusCode != http.StatusNoContent || !ok || has > u.d.Size {
		u.restart()
		return nil
	}
	u.count(has - u.at)
	u.at = has
	if u.move(res) != nil {
		u.restart()
	}
	return nil
}

// restart forgets where the upload was.
func (u *upload) restart() {
	u.count(-u.at)
	u.loc, u.at, u.resumed = nil, 0, false
	u.c.forget(u.ref, u.d)
}

// drop tells the registry that the upload is over. Not all know that.
func (u *upload) drop(ctx context.Context) {
	if u.loc != nil {
		if req, err := request(ctx, http.MethodDelete, u.loc, nil, 0); err == nil {
			if res, err := u.do(req, auth.ActionPull, auth.ActionPush); err == nil {
				end(res)
			}
		}
	}
	u.restart()
}

// send makes a request with n bytes of the blob as its body, from at on. The meter
// counts them and must be settled.
func (u *upload) send(ctx context.Context, method string, to *url.URL, at, n int64) (*http.Request, *meter, error) {
	m := &meter{count: u.count}
	body := func() (io.ReadCloser, error) {
		m.reset() // a request for a token and a redirect begin the body anew
		return io.NopCloser(io.TeeReader(io.NewSectionReader(u.blob, at, n), m)), nil
	}
	var first io.Reader
	if n > 0 {
		first, _ = body()
	}
	req, err := request(ctx, method, to, first, n)
	if err != nil {
		return nil, nil, err
	}
	if n > 0 {
		req.GetBody = body
		req.Header.Set("Content-Type", "application/octet-stream")
		if n > smallBody {
			req.Header.Set("Expect", "100-continue") // a refusal comes before the bytes
		}
	}
	return req, m, nil
}

// meter counts the bytes of a body for the progress that is shown. The transport
// may read on when the request has failed already.
type meter struct {
	count func(int64)
	mu    sync.Mutex
	n     int64
	done  bool
}

func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.done {
		m.n += int64(len(p))
		m.count(int64(len(p)))
	}
	return len(p), nil
}

func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(-m.n)
	m.n = 0
}

// settle ends the count with what has really arrived.
func (m *meter) settle(arrived int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(arrived - m.n)
	m.n, m.done = arrived, true
}

// uploadRange reads "0-LAST" as the number of bytes, with the unit that some
// registries put before it. An empty upload is "0-0" to some and no Range to
// others, so one byte counts as none.
func uploadRange(s string) (int64, bool) {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "bytes="), "bytes ")
	from, to, ok := strings.Cut(s, "-")
	last, err := strconv.ParseInt(to, 10, 64)
	if !ok || from != "0" || err != nil || last < -1 {
		return 0, false
	}
	if last <= 0 {
		return 0, true
	}
	return last + 1, true
}

// end drops what is left of an answer, so that its connection serves again.
func end(res *http.Response) {
	if res.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	}
	res.Body.Close()
}

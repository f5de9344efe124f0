package hub

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// maxHops is the number of redirects followed in a row.
const maxHops = 10

// answer is the last response of a chain of redirects with what the hops
// before it said about the file.
type answer struct {
	*http.Response
	// url is where the response came from; auth whether the token may still
	// go there; foreign whether a host other than the hub's answered.
	url     *url.URL
	auth    bool
	foreign bool
	// commit, linkedTag and linkedSize (-1 unknown) are X-Repo-Commit,
	// X-Linked-Etag and X-Linked-Size of the first hub answer that had them.
	commit, linkedTag string
	linkedSize        int64
}

// follow sends a request and follows redirects by the rules of the hub's own
// clients: the token stays with the endpoint and the known hub hosts, and once
// a chain has left them it is not sent again.
func (c *Client) follow(ctx context.Context, q request) (*answer, error) {
	a := &answer{url: q.url, auth: q.auth, foreign: !c.tokenHost(q.url), linkedSize: -1}
	seen := map[string]bool{}
	for hop := 0; ; hop++ {
		seen[a.url.String()] = true
		q.url, q.auth = a.url, a.auth
		res, err := c.roundTrip(ctx, q)
		if err != nil {
			return nil, err
		}
		a.Response = res
		if !a.foreign {
			a.note(res.Header)
		}
		if !isRedirect(res) {
			return a, nil
		}
		next, err := c.nextHop(a, res.Header.Get("Location"))
		discard(res)
		if err == nil {
			switch {
			case hop+1 > maxHops:
				err = fmt.Errorf("more than %d redirects", maxHops)
			case seen[next.String()]:
				err = fmt.Errorf("a loop: %s came before", redact(next))
			}
		}
		if err != nil {
			return nil, &Error{Kind: ErrRedirect, What: q.op.what, URL: redact(a.url), Err: err, RequestID: requestID(res.Header)}
		}
		a.url = next
		if !c.tokenHost(next) {
			a.auth, a.foreign = false, true
		}
	}
}

func isRedirect(res *http.Response) bool {
	switch res.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return res.Header.Get("Location") != ""
	}
	return false
}

// nextHop resolves Location by RFC 3986. https may not fall back to http
// unless the endpoint itself is http.
func (c *Client) nextHop(a *answer, location string) (*url.URL, error) {
	next, err := a.url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("Location is not a URL")
	}
	next.User, next.Fragment, next.RawFragment = nil, "", ""
	switch {
	case next.Scheme != "http" && next.Scheme != "https", next.Host == "":
		return nil, fmt.Errorf("to %s, which is not http or https", redact(next))
	case a.url.Scheme == "https" && next.Scheme == "http" && c.end.Scheme != "http":
		return nil, fmt.Errorf("from https down to http at %s", redact(next))
	}
	return next, nil
}

// note keeps the file's metadata, which the hub sends with its own answers
// only. Error answers carry tags of their error page, never of the file.
func (a *answer) note(h http.Header) {
	if a.StatusCode >= 400 {
		return
	}
	if v := h.Get("X-Repo-Commit"); v != "" && a.commit == "" {
		a.commit = v
	}
	if v, _ := parseETag(h.Get("X-Linked-Etag")); v != "" && a.linkedTag == "" {
		a.linkedTag = v
	}
	if n, ok := parseDigits(h.Get("X-Linked-Size")); ok && n > 0 && a.linkedSize < 0 {
		a.linkedSize = n
	}
}

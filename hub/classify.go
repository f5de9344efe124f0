package hub

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// maxErrorBody is how much of an error answer is read for its message.
const maxErrorBody = 64 << 10

func requestID(h http.Header) string {
	if id := h.Get("X-Request-Id"); id != "" {
		return clean(id)
	}
	return clean(h.Get("X-Amz-Cf-Id"))
}

// classify turns an error answer into an *Error: the hub's code decides
// first, then status and message. It closes the body.
func (c *Client) classify(a *answer, what string) *Error {
	text := readMessage(a.Response)
	a.Body.Close()
	h := a.Header
	e := &Error{
		What: what, URL: redact(a.url), Status: a.StatusCode,
		Code: clean(h.Get("X-Error-Code")), Message: clean(h.Get("X-Error-Message")), RequestID: requestID(h),
	}
	if e.Message == "" {
		e.Message = text
	}
	sent := a.auth && c.opt.Token != ""
	e.Kind, e.Hint = kindOf(e, sent)
	return e
}

const (
	hintTerms = "accept the terms on the model's page, then set HF_TOKEN to a token of that account"
	hintToken = "check HF_TOKEN (or the token file): the server does not accept it"
)

func kindOf(e *Error, tokenSent bool) (kind error, hint string) {
	switch e.Code {
	case "EntryNotFound":
		return ErrNotFound, "check the file name against the repository's listing"
	case "RevisionNotFound":
		return ErrRevision, "check the part after '@': a branch, a tag or a full commit"
	case "RepoNotFound":
		if e.Status == http.StatusUnauthorized && !tokenSent {
			return ErrNotFoundOrPrivate, "check the name; for a private repository set HF_TOKEN"
		}
		return ErrRepoNotFound, "check the name; a private repository needs a token with access (HF_TOKEN)"
	case "GatedRepo":
		if e.Status == http.StatusUnauthorized {
			if tokenSent {
				return ErrGatedNoToken, hintToken + "; and " + hintTerms
			}
			return ErrGatedNoToken, hintTerms
		}
		return ErrGatedNoAccess, "ask for access on the model's page and wait until it is granted"
	}
	message := strings.ToLower(e.Message)
	switch {
	case e.Status == http.StatusUnauthorized && strings.Contains(message, "invalid credentials"):
		return ErrBadToken, hintToken
	case e.Status == http.StatusUnauthorized && tokenSent:
		return ErrBadToken, hintToken + ", or the repository does not exist"
	case e.Status == http.StatusUnauthorized:
		return ErrNotFoundOrPrivate, "check the name; for a private repository set HF_TOKEN"
	case e.Status == http.StatusForbidden && strings.Contains(message, "is disabled"):
		return ErrDisabled, "the hub has taken it down; choose another source"
	case e.Status == http.StatusForbidden:
		return ErrForbidden, "the token may not read this; check its scopes"
	case e.Status == http.StatusNotFound, e.Status == http.StatusGone:
		return ErrNotFound, "check the name"
	case e.Status == http.StatusTooManyRequests:
		return ErrRateLimited, "wait a few minutes; a token raises the limit"
	}
	return ErrServer, ""
}

// readMessage takes the text of an error answer: JSON {"error": ...} or plain
// text. HTML pages say nothing in a line.
func readMessage(res *http.Response) string {
	b, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	var doc struct {
		Error json.RawMessage `json:"error"`
	}
	var text string
	if json.Unmarshal(b, &doc) == nil {
		if json.Unmarshal(doc.Error, &text) == nil {
			return clean(text)
		}
		return ""
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
		return clean(string(b))
	}
	return ""
}

package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

var (
	// ErrRegistry marks everything that a registry or the way to it is to blame
	// for.
	ErrRegistry = errors.New("registry")
	// ErrNotFound marks what the registry does not have.
	ErrNotFound = errors.New("not in the registry")
	// ErrDenied marks requests that the registry refuses to this user.
	ErrDenied = errors.New("access denied")
	// ErrBytes marks bytes that are not those that were asked for.
	ErrBytes = errors.New("wrong bytes")
)

// answer is an error that a registry has sent.
type answer struct {
	status int
	codes  []string
	text   string
}

func (a *answer) Error() string { return "the registry answers " + a.text }

// has reports whether the registry gave an error code.
func (a *answer) has(code string) bool {
	for _, c := range a.codes {
		if c == code {
			return true
		}
	}
	return false
}

// readAnswer turns an answer that is no success into an error, and ends it. The
// body's words are shown if they are a registry's, not a web page's.
func readAnswer(res *http.Response) *answer {
	defer res.Body.Close()
	a := &answer{status: res.StatusCode, text: res.Status}
	if a.text == "" {
		a.text = fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode))
	}
	if res.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return a // the length that it promises may never come
	}
	raw, _ := io.ReadAll(io.LimitReader(res.Body, 8<<10)) // only to be shown
	var doc struct {
		Errors []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(raw, &doc) == nil && len(doc.Errors) > 0 {
		for _, e := range doc.Errors[:min(len(doc.Errors), 4)] {
			a.codes = append(a.codes, e.Code)
			a.text += ": " + shorten(strings.TrimSuffix(e.Code+": "+e.Message, ": "))
		}
		return a
	}
	if t, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); t == "text/plain" {
		if s := shorten(string(raw)); s != "" {
			a.text += ": " + s
		}
	}
	return a
}

// shorten makes a stranger's words fit to be shown.
func shorten(s string) string {
	s = strings.Join(strings.Fields(string(bytes.ToValidUTF8([]byte(s), []byte("?")))), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "..."
	}
	return s
}

// fault explains an error of the registry or of the way to it. What is no fault
// of theirs, as a cancelled context, stays as it is.
func (c *Client) fault(ctx context.Context, ref Ref, what string, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, ErrRegistry) {
		return err
	}
	var a *answer
	var oras *errcode.ErrorResponse
	if !errors.As(err, &a) && errors.As(err, &oras) {
		a = &answer{status: oras.StatusCode, text: fmt.Sprintf("%d %s", oras.StatusCode, http.StatusText(oras.StatusCode))}
		for _, e := range oras.Errors {
			a.codes = append(a.codes, e.Code)
			a.text += ": " + shorten(e.Code+": "+e.Message)
		}
		err = a
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // its address may hold secrets
	}
	kind, advice := error(nil), ""
	switch {
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		kind, advice = ErrDenied, c.loginAdvice(ref)
	case a == nil:
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden || a.has("DENIED") || a.has("UNAUTHORIZED"):
		kind, advice = ErrDenied, c.loginAdvice(ref)
	case a.status == http.StatusNotFound:
		kind, advice = ErrNotFound, "check the name and the tag"
	case a.status == http.StatusRequestEntityTooLarge:
		advice = "a proxy or the registry takes no requests of this length; --chunk sets a smaller one"
	case a.status == http.StatusTooManyRequests:
		advice = "wait, or log in for a higher limit"
	case a.status == http.StatusInsufficientStorage:
		advice = "it is full"
	}
	if strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		advice = "the registry speaks plain HTTP; --plain-http uses it"
	}
	if kind != nil {
		err = fmt.Errorf("%w: %w", kind, err)
	}
	if advice != "" {
		err = fmt.Errorf("%w; %s", err, advice)
	}
	return fmt.Errorf("%w %s: %s: %w", ErrRegistry, ref, what, err)
}

func (c *Client) loginAdvice(ref Ref) string {
	if c.opt.Username != "" {
		return "check user and password, and that they may do this"
	}
	return "docker login " + ref.Host + " (or --username and --password-stdin), as a user who may do this"
}

package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Sentinels for what callers branch on. They are wrapped in an *Error that
// says which file, which answer and what to do.
var (
	// ErrRef marks a repository reference that breaks the naming rules.
	ErrRef = errors.New("bad repository reference")
	// ErrOptions marks options or environment variables that make no sense.
	ErrOptions = errors.New("bad hub options")

	// ErrNotFound: the repository and commit exist, the path does not. It is
	// also fs.ErrNotExist.
	ErrNotFound = errors.New("no such file in the repository")
	// ErrRevision: the repository exists, the branch, tag or commit does not.
	ErrRevision = errors.New("no such revision")
	// ErrRepoNotFound: absent, or hidden from the token that was sent.
	ErrRepoNotFound = errors.New("repository not found, or hidden from this token")
	// ErrNotFoundOrPrivate: an anonymous request for an absent or private
	// repository; the server does not say which.
	ErrNotFoundOrPrivate = errors.New("repository not found or private")
	// ErrGatedNoToken: the repository's terms must be accepted and no usable
	// token was sent.
	ErrGatedNoToken = errors.New("gated repository and no token")
	// ErrGatedNoAccess: the token is known, its owner has no access yet.
	ErrGatedNoAccess = errors.New("gated repository and no access")
	// ErrBadToken: the server does not know the token.
	ErrBadToken = errors.New("bad token")
	// ErrForbidden: the token is known and may not do this.
	ErrForbidden = errors.New("access refused")
	// ErrDisabled: the hub has switched the repository off.
	ErrDisabled = errors.New("repository disabled by the hub")
	// ErrRateLimited: the server still limited us after the last retry.
	ErrRateLimited = errors.New("rate limited")
	// ErrServer: 5xx or an answer that makes no sense, after retries.
	ErrServer = errors.New("server failed")
	// ErrNetwork: no answer, a broken connection or a stall, after retries.
	ErrNetwork = errors.New("network failed")
	// ErrOffline: offline mode and not in the cache or the spool.
	ErrOffline = errors.New("offline and not cached")
	// ErrNotHub: the endpoint answers, but not as a hub does.
	ErrNotHub = errors.New("not a Hugging Face hub")
	// ErrRedirect: a redirect that is not followed (loop, too many hops,
	// https to http, a host that is not allowed).
	ErrRedirect = errors.New("redirect refused")
	// ErrHost: the host is not in the list of allowed ones.
	ErrHost = errors.New("host not allowed")

	// ErrRange: the answer to a range request is not that range.
	ErrRange = errors.New("wrong answer to a range request")
	// ErrNoRange: the server ignores Range and there is no spool to hold the
	// whole file.
	ErrNoRange = errors.New("server does not serve ranges")
	// ErrEncoding: the server compressed the body although identity was asked.
	ErrEncoding = errors.New("compressed answer to an identity request")
	// ErrChanged: the file changed on the server between two parts.
	ErrChanged = errors.New("file changed while it was read")
	// ErrSize: the file's length is not the promised one.
	ErrSize = errors.New("wrong file size")
	// ErrHTML: an HTML page came in place of the file.
	ErrHTML = errors.New("an HTML page in place of the file")
	// ErrPointer: a Git LFS pointer came in place of the file.
	ErrPointer = errors.New("a Git LFS pointer in place of the file")
	// ErrTooLarge: the file is larger than the caller's limit.
	ErrTooLarge = errors.New("file larger than the limit")
	// ErrPath: the server names a file that could leave its folder.
	ErrPath = errors.New("unsafe path")
	// ErrListing: the listing of a repository is damaged or contradicts itself.
	ErrListing = errors.New("bad repository listing")

	// ErrDigest: the bytes are not those of the promised digest, also after
	// they were fetched again.
	ErrDigest = errors.New("digest mismatch")
	// ErrRepaired: bytes that may have been read already were wrong and have
	// been replaced in the spool. What was made from them must be made again;
	// reading once more gives the right bytes.
	ErrRepaired = errors.New("damaged bytes were replaced, start over")
	// ErrNoSpace: the disk of the spool is full.
	ErrNoSpace = errors.New("no space left for the spool")
	// ErrClosed: the snapshot or file was closed.
	ErrClosed = errors.New("closed")
)

// Error is a failure with everything a message needs. Kind is one of the
// sentinels; errors.Is sees it and Err.
type Error struct {
	Kind error
	// What failed: "org/name@main", with ": file" when one is concerned, or a
	// redacted URL.
	What string
	// URL without user, query and fragment; empty when no request was made.
	URL    string
	Status int
	// Code is X-Error-Code, Message the server's own text, RequestID
	// X-Request-Id. All are cleaned of control characters.
	Code, Message, RequestID string
	// Hint says what to do.
	Hint string
	Err  error
}

// Error gives one line: what, why, the server's words, what to do.
func (e *Error) Error() string {
	var b strings.Builder
	if e.What != "" {
		b.WriteString(e.What)
		b.WriteString(": ")
	}
	b.WriteString(e.Kind.Error())
	var facts []string
	if e.Status != 0 {
		facts = append(facts, fmt.Sprintf("HTTP %d", e.Status))
	}
	if e.Code != "" {
		facts = append(facts, e.Code)
	}
	if e.Message != "" {
		facts = append(facts, fmt.Sprintf("%q", e.Message))
	}
	if e.URL != "" {
		facts = append(facts, e.URL)
	}
	if e.RequestID != "" {
		facts = append(facts, "request id "+e.RequestID)
	}
	if len(facts) > 0 {
		b.WriteString(" (" + strings.Join(facts, ", ") + ")")
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Unwrap lets errors.Is find the sentinel and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// Is makes an absent file fs.ErrNotExist, as model.FileSet wants.
func (e *Error) Is(target error) bool {
	return target == fs.ErrNotExist && e.Kind == ErrNotFound
}

// about returns err as an *Error whose What is set, keeping what is known.
func about(what string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		if e.What == "" {
			c := *e
			c.What = what
			return &c
		}
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

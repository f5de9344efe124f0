package hub

import (
	"fmt"
	"strings"
)

// Ref names a model repository and a revision of it.
type Ref struct {
	// Repo is "name" or "namespace/name".
	Repo string
	// Revision is a branch, a tag, a 40-digit commit or "refs/pr/N".
	Revision string
}

// DefaultRevision is the branch meant when a reference names none.
const DefaultRevision = "main"

const (
	maxRepoPart = 96
	maxRevision = 255
)

// ParseRef reads "org/name", "org/name@revision" or either without the
// namespace. The rules are huggingface_hub's: letters, digits, '-', '_' and
// '.', at most 96 a part, no "--" or "..", not ending in ".git", no '-' or '.'
// at an end of a part.
func ParseRef(s string) (Ref, error) {
	repo, rev, has := strings.Cut(s, "@")
	r := Ref{Repo: repo, Revision: rev}
	if !has {
		r.Revision = DefaultRevision
	}
	if err := r.Validate(); err != nil {
		return Ref{}, err
	}
	return r, nil
}

// String writes the reference with its revision.
func (r Ref) String() string { return r.Repo + "@" + r.Revision }

// Name is the last part of the repository's name.
func (r Ref) Name() string { return r.Repo[strings.LastIndexByte(r.Repo, '/')+1:] }

// Validate checks both parts.
func (r Ref) Validate() error {
	bad := func(why string, args ...any) error {
		return fmt.Errorf("%w %q: %s", ErrRef, r.String(), fmt.Sprintf(why, args...))
	}
	parts := strings.Split(r.Repo, "/")
	if len(parts) > 2 {
		return bad("want name or namespace/name, with a revision after '@'")
	}
	for _, p := range parts {
		switch {
		case p == "":
			return bad("empty name")
		case len(p) > maxRepoPart:
			return bad("a name has %d characters, at most %d are allowed", len(p), maxRepoPart)
		case strings.ContainsAny(p[:1]+p[len(p)-1:], "-."):
			return bad("a name must not start or end with '-' or '.'")
		}
		for i := 0; i < len(p); i++ {
			if !isRepoByte(p[i]) {
				return bad("character %q is not allowed in a repository name", p[i:i+1])
			}
		}
	}
	switch {
	case strings.Contains(r.Repo, "--"), strings.Contains(r.Repo, ".."):
		return bad("\"--\" and \"..\" are not allowed in a repository name")
	case strings.HasSuffix(r.Repo, ".git"):
		return bad("leave out the \".git\" at the end")
	}
	return validRevision(r.Revision, bad)
}

func isRepoByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

// validRevision keeps to git's rules for names: what they forbid cannot be a
// branch or tag, and some of it would change the URL or a cache path.
func validRevision(rev string, bad func(string, ...any) error) error {
	switch {
	case rev == "":
		return bad("empty revision after '@'")
	case len(rev) > maxRevision:
		return bad("the revision has %d characters, at most %d are allowed", len(rev), maxRevision)
	case strings.Contains(rev, ".."), strings.Contains(rev, "//"), strings.Contains(rev, "@{"):
		return bad("a revision must not contain \"..\", \"//\" or \"@{\"")
	case strings.HasPrefix(rev, "/"), strings.HasSuffix(rev, "/"), strings.HasPrefix(rev, "-"):
		return bad("a revision must not start with '/' or '-' or end with '/'")
	}
	for _, seg := range strings.Split(rev, "/") {
		if strings.HasPrefix(seg, ".") || strings.HasSuffix(seg, ".lock") {
			return bad("a part of a revision must not start with '.' or end with \".lock\"")
		}
	}
	for _, c := range rev {
		if c <= ' ' || c == 0x7f || c == '\uFFFD' || strings.ContainsRune("~^:?*[\\", c) {
			return bad("character %q is not allowed in a revision", c)
		}
	}
	return nil
}

// IsCommit reports whether s is a full commit: 40 lower-case hex digits.
func IsCommit(s string) bool { return isHex(s, 40) }

func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

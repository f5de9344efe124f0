package hub

import (
	"crypto/sha1"
	"fmt"
	"hash"
	"path"
	"strings"

	"quern/internal/digest"
)

// File is one file of a repository at a commit, as a listing or a lock file
// has it.
type File struct {
	Path string
	// Size is in bytes; -1 when the server does not say (mirrors may report 0).
	Size int64
	// SHA256 of the content, lower-case hex; known for LFS files only.
	SHA256 string
	// GitOID is the git blob hash of a file stored in git itself. It is empty
	// for LFS files, whose own git hash is that of the pointer.
	GitOID string
}

// Digest gives the best digest of the content; the zero Digest when none is
// known.
func (f File) Digest() Digest {
	if f.SHA256 != "" {
		return Digest{SHA256, f.SHA256}
	}
	if f.GitOID != "" {
		return Digest{GitSHA1, f.GitOID}
	}
	return Digest{}
}

// Algorithm names how a Digest is made.
type Algorithm string

const (
	// SHA256 is over the bytes.
	SHA256 Algorithm = "sha256"
	// GitSHA1 is git's blob hash: SHA-1 over "blob ", the decimal length, a
	// zero byte and the bytes.
	GitSHA1 Algorithm = "git"
)

// Digest identifies content.
type Digest struct {
	Algorithm Algorithm
	Hex       string
}

// IsZero reports whether no digest is known.
func (d Digest) IsZero() bool { return d == Digest{} }

// String writes "sha256:HEX" or "git:HEX".
func (d Digest) String() string { return string(d.Algorithm) + ":" + d.Hex }

func (d Digest) valid() bool {
	switch d.Algorithm {
	case SHA256:
		return isHex(d.Hex, 64)
	case GitSHA1:
		return isHex(d.Hex, 40)
	}
	return false
}

// hasher starts a hash of content of a known size.
func (d Digest) hasher(size int64) hash.Hash {
	if d.Algorithm == GitSHA1 {
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", size)
		return h
	}
	return digest.New()
}

// sum hashes b as d.Algorithm says.
func (d Digest) sum(b []byte) string {
	h := d.hasher(int64(len(b)))
	h.Write(b)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// emptyBlob is git's hash of no bytes: the one digest that makes a reported
// size of 0 believable.
const (
	emptyBlob   = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
	emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// believe turns a reported size of 0 into "unknown" unless the digest is that
// of no bytes.
func (f File) believe() File {
	if f.Size == 0 && f.GitOID != emptyBlob && f.SHA256 != emptySHA256 {
		f.Size = -1
	}
	return f
}

// checkPath refuses names that are not plain relative paths on every system:
// "..", absolute, drive letters and UNC, backslashes, control characters.
func checkPath(p string) error {
	bad := func(why string) error { return fmt.Errorf("%w %q: %s", ErrPath, clean(p), why) }
	switch {
	case p == "":
		return bad("empty")
	case len(p) > 4096:
		return bad("too long")
	case strings.HasPrefix(p, "/"):
		return bad("absolute")
	case strings.ContainsRune(p, '\\'):
		return bad("holds a backslash")
	case len(p) >= 2 && p[1] == ':' && (p[0]|0x20) >= 'a' && (p[0]|0x20) <= 'z':
		return bad("starts with a drive letter")
	case path.Clean(p) != p:
		return bad("not in its shortest form")
	case p == "." || p == ".." || strings.HasPrefix(p, "../"):
		return bad("leaves the folder")
	}
	for _, r := range p {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return bad("holds a control character or is not UTF-8")
		}
	}
	return nil
}

package artifacts

import (
	"hash"

	"quern/internal/digest"
)

// Digest is the SHA-256 of some content: a comparable value whose text form is
// "sha256:" and 64 lower-case hex digits. The zero Digest means "unknown".
type Digest = digest.Digest

// ParseDigest reads "sha256:" and exactly 64 lower-case hex digits.
func ParseDigest(s string) (Digest, error) { return digest.Parse(s) }

// NewHash starts the SHA-256 of some content.
func NewHash() hash.Hash { return digest.New() }

// SumHash is the digest of what was written to h so far.
func SumHash(h hash.Hash) Digest { return digest.Sum(h) }

// DigestOf is the digest of b.
func DigestOf(b []byte) Digest { return digest.Of(b) }

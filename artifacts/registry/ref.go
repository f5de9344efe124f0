// Package registry moves artifacts to and from OCI registries. Requests, tokens
// and referrers go through oras-go; the blobs, which are gigabytes here, have an
// upload and a download of their own that go on where they broke off.
//
//	push   HEAD blob ── mount ── POST, PATCH..., PUT   each blob, three at a time
//	       PUT manifest, last                          then what refers to it
//	pull   GET manifest ── GET blob, Range             each blob, three at a time
//
// Credentials are those of docker's configuration, helpers included: these are
// the one command that is run here, and only a push or pull of the user's can
// come to it, since no other package than the command line's imports this one.
package registry

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"quern/artifacts"

	orasregistry "oras.land/oras-go/v2/registry"
)

// ErrRef marks text that names no place in a registry.
var ErrRef = errors.New("bad reference")

// Ref is a place in a registry: a tag, a digest, or both, of which the digest
// counts.
type Ref struct {
	Host       string // with its port
	Repository string
	Tag        string
	Digest     artifacts.Digest
}

// ParseRef reads HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]. Without tag and
// digest the tag is "latest". It fails with ErrRef.
func ParseRef(s string) (Ref, error) {
	bad := func(why string) (Ref, error) {
		return Ref{}, fmt.Errorf("%w %q: %s; a reference is HOST[:PORT]/REPOSITORY[:TAG]", ErrRef, s, why)
	}
	text := strings.TrimPrefix(s, "oci://")
	if i := strings.Index(text, "://"); i >= 0 {
		return bad("no " + text[:i+3] + " belongs before it; --plain-http chooses HTTP")
	}
	host, _, ok := strings.Cut(text, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return bad("the registry's host is missing")
	}
	p, err := orasregistry.ParseReference(text)
	if err != nil {
		return bad(strings.TrimPrefix(err.Error(), "invalid reference: "))
	}
	r := Ref{Host: p.Registry, Repository: p.Repository}
	tag := p.Reference
	if path, sum, ok := strings.Cut(text, "@"); ok {
		if r.Digest, err = artifacts.ParseDigest(sum); err != nil {
			return bad(err.Error())
		}
		if r.Digest.IsZero() { // it would pass for none
			return bad("a digest of zeros is that of no bytes")
		}
		// oras-go drops a tag that stands before a digest.
		tag = ""
		if i := strings.LastIndexByte(path, ':'); i > strings.LastIndexByte(path, '/') {
			tag = path[i+1:]
		}
	}
	if tag != "" {
		check := p
		check.Reference = tag
		if err := check.ValidateReferenceAsTag(); err != nil {
			return bad("the tag " + fmt.Sprintf("%.140q", tag) + " is none")
		}
	}
	r.Tag = tag
	if r.Tag == "" && r.Digest.IsZero() {
		r.Tag = "latest"
	}
	return r, nil
}

// String is the reference in full.
func (r Ref) String() string {
	s := r.Host + "/" + r.Repository
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if !r.Digest.IsZero() {
		s += "@" + r.Digest.String()
	}
	return s
}

// What is the tag or digest as requests name it.
func (r Ref) what() string {
	if !r.Digest.IsZero() {
		return r.Digest.String()
	}
	return r.Tag
}

// isLoopback reports whether the host is this machine.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
